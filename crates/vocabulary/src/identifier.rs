//! Validated identifiers, constructed only by parsing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: {rule}")]
pub struct ParseIdentifierError {
    /// The kind of the identifier, with its article.
    pub kind: &'static str,
    /// The violated rule.
    pub rule: &'static str,
    pub text: String,
}

macro_rules! text_identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdentifierError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(ParseIdentifierError { kind: $kind, rule: $rule, text: text.to_owned() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdentifierError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(identifier: $name) -> Self {
                identifier.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&self.0)
            }
        }
    };
}

fn has_only_alphanumerics_and(text: &str, others: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Whether the text is `.` or `..`, which have a special meaning in paths.
fn is_dot_segment(text: &str) -> bool {
    matches!(text, "." | "..")
}

text_identifier!(
    /// A tenant: a directory id or one of its domain names.
    EntraTenantId,
    "a tenant id",
    "1 to 255 letters, digits, `.` and `-`, but neither `.` nor `..`",
    |text| (1..=255).contains(&text.len())
        && has_only_alphanumerics_and(text, ".-")
        && !is_dot_segment(text)
);

text_identifier!(
    /// A subscription id. The HostedCluster API does not require a UUID, so neither does this type.
    SubscriptionId,
    "a subscription id",
    "1 to 255 letters, digits and `-`",
    |text| (1..=255).contains(&text.len()) && has_only_alphanumerics_and(text, "-")
);

text_identifier!(
    /// The name of a vault: the first label of its host name.
    VaultName,
    "a vault name",
    "3 to 24 letters, digits and `-`",
    |text| (3..=24).contains(&text.len()) && has_only_alphanumerics_and(text, "-")
);

text_identifier!(
    /// The name of a secret, key or certificate in a vault.
    SecretName,
    "a vault object name",
    "1 to 127 letters, digits and `-`",
    |text| (1..=127).contains(&text.len()) && has_only_alphanumerics_and(text, "-")
);

text_identifier!(
    /// The version of a key. The service uses 32 hexadecimal digits, but does not document that form.
    KeyVersion,
    "a key version",
    "1 to 127 letters and digits",
    |text| (1..=127).contains(&text.len()) && has_only_alphanumerics_and(text, "")
);

text_identifier!(
    /// The unique infrastructure id of a hosted cluster.
    InfraId,
    "an infrastructure id",
    "1 to 253 letters, digits, `.` and `-`, but neither `.` nor `..`",
    |text| (1..=253).contains(&text.len()) && has_only_alphanumerics_and(text, ".-") && !is_dot_segment(text)
);

impl InfraId {
    /// Generates an id from the name of a cluster: at most 21 characters of the name, a dash and five
    /// random characters, as HyperShift does. `random` chooses each character from the given number of
    /// alternatives.
    ///
    /// Source: `infraid.New` of HyperShift.
    pub fn generate(name: &str, mut random: impl FnMut(usize) -> usize) -> Self {
        const MAX_BASE: usize = 21;
        // The alphabet of Kubernetes' generated names, which avoids words.
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut base = String::new();
        for c in name.chars() {
            let c = if c.is_ascii_alphanumeric() { c } else { '-' };
            if c != '-' || !base.ends_with('-') {
                base.push(c);
            }
        }
        base.truncate(MAX_BASE);
        let suffix = (0..5).map(|_| char::from(ALPHABET[random(ALPHABET.len()) % ALPHABET.len()]));
        Self(format!("{}-{}", base.trim_end_matches('-'), suffix.collect::<String>()))
    }
}

/// Returns the random UUID (version 4) with these random bits.
pub fn random_uuid(bits: u128) -> String {
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().hyphenated().to_string()
}

/// The client id (application id) of an identity, a UUID in its hyphenated form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntraClientId(Uuid);

impl EntraClientId {
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for EntraClientId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for EntraClientId {
    type Err = ParseIdentifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `Uuid` also parses braces, URNs and bare digits, which the APIs reject.
        let hyphenated = text.len() == 36;
        match Uuid::try_parse(text) {
            Ok(uuid) if hyphenated => Ok(Self(uuid)),
            _ => Err(ParseIdentifierError {
                kind: "a client id",
                rule: "a UUID of the form 8-4-4-4-12",
                text: text.to_owned(),
            }),
        }
    }
}

impl TryFrom<String> for EntraClientId {
    type Error = ParseIdentifierError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<EntraClientId> for String {
    fn from(client: EntraClientId) -> Self {
        client.0.to_string()
    }
}

impl fmt::Display for EntraClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0.hyphenated().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_rejected_with_their_rule() {
        let error = "ab".parse::<VaultName>().unwrap_err();
        assert_eq!(error.to_string(), "`ab` is not a vault name: 3 to 24 letters, digits and `-`");
        assert!("a_b".parse::<SecretName>().is_err());
        assert!("".parse::<EntraTenantId>().is_err());
        for bad in ["", "a-b", "a/b", "ä", "a b", &"a".repeat(128)] {
            assert!(bad.parse::<KeyVersion>().is_err(), "{bad}");
        }
        assert!("..".parse::<EntraTenantId>().is_err());
        assert!(".".parse::<InfraId>().is_err());
        assert!("contoso.onmicrosoft.com".parse::<EntraTenantId>().is_ok());
    }

    #[test]
    fn infra_id_has_at_most_253_characters() {
        assert!("a".repeat(253).parse::<InfraId>().is_ok());
        assert!("a".repeat(254).parse::<InfraId>().is_err());
    }

    #[test]
    fn generated_infra_id_has_the_beginning_of_the_name_and_a_suffix() {
        let id = |name: &str| InfraId::generate(name, |_| 0).to_string();
        assert_eq!(id("harbour"), "harbour-bbbbb");
        assert_eq!(id("a--b"), "a-b-bbbbb");
        assert_eq!(id("a.-b"), "a-b-bbbbb");
        assert_eq!(id("a2345678901234567890-234"), "a2345678901234567890-bbbbb");
        assert_eq!(id("a--2345678901234567890234"), "a-2345678901234567890-bbbbb");
    }

    #[test]
    fn random_uuid_has_version_4() {
        assert_eq!(random_uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(random_uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn client_id_must_be_a_hyphenated_uuid() {
        assert!("11111111-2222-3333-4444-555555555555".parse::<EntraClientId>().is_ok());
        assert!("11111111222233334444555555555555".parse::<EntraClientId>().is_err());
        assert!("{11111111-2222-3333-4444-555555555555}".parse::<EntraClientId>().is_err());
    }
}
