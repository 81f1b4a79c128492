//! Patterns of names: `*` matches any text, every other character itself.

use std::fmt;
use std::str::FromStr;

use lanyard_api::VaultObjectKind;
use lanyard_vocabulary::EntraClientId;

use crate::policy::access::SharedIdentity;

/// A pattern of names in which `*` matches any text, including the empty text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamePattern(String);

impl NamePattern {
    /// Parses a pattern whose literal characters must be valid for `kind`.
    pub(crate) fn parse(text: &str, kind: NameKind) -> Result<Self, String> {
        let (rule, longest, others) = kind.rule();
        let fits = |c: char| c == '*' || kind.allows_char(c) || others.contains(c);
        if text.len() <= longest
            && text.chars().all(fits)
            && (kind.may_be_empty() || !text.is_empty())
        {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("`{text}` is not a pattern of {rule}, with `*` for any text"))
    }

    /// Returns a pattern that matches one name. The name must not contain `*`.
    pub(crate) const fn literal(name: String) -> Self {
        Self(name)
    }

    /// Returns whether a name matches. The time is linear in both lengths for each `*`, never exponential.
    pub(crate) fn matches(&self, name: &str) -> bool {
        wildcard_match(self.0.as_bytes(), name.as_bytes(), |one, other| one == other)
    }

    /// Like [`NamePattern::matches`], for names that Azure compares without case.
    pub(crate) fn matches_ignoring_case(&self, name: &str) -> bool {
        wildcard_match(self.0.as_bytes(), name.as_bytes(), |one, other| {
            one.eq_ignore_ascii_case(&other)
        })
    }
}

lanyard_vocabulary::display_text!(NamePattern, 0);

/// The kind of name that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// A Kubernetes namespace (RFC 1123 label).
    Namespace,
    /// A SecretProviderClass (RFC 1123 subdomain), or the empty name of a caller without a class.
    Class,
    /// A Key Vault.
    Vault,
    /// An object of a Key Vault.
    Object,
}

impl NameKind {
    /// Returns the rule in words, the maximum length, and the characters in addition to those of
    /// [`NameKind::allows_char`].
    const fn rule(self) -> (&'static str, usize, &'static str) {
        match self {
            Self::Namespace => ("at most 63 lower-case letters, digits and `-`", 63, "-"),
            Self::Class => ("at most 253 lower-case letters, digits, `-` and `.`", 253, "-."),
            Self::Vault => ("at most 24 letters, digits and `-`", 24, "-"),
            Self::Object => ("at most 127 letters, digits and `-`", 127, "-"),
        }
    }

    const fn allows_char(self, c: char) -> bool {
        match self {
            Self::Namespace | Self::Class => c.is_ascii_lowercase() || c.is_ascii_digit(),
            Self::Vault | Self::Object => c.is_ascii_alphanumeric(),
        }
    }

    const fn may_be_empty(self) -> bool {
        matches!(self, Self::Class)
    }
}

/// A pattern of objects: `<kind>/<name>`, where either part may be `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectPattern {
    kind: Option<VaultObjectKind>,
    name: NamePattern,
}

impl ObjectPattern {
    /// Returns a pattern that matches one object.
    pub(crate) fn exactly(kind: VaultObjectKind, name: &str) -> Self {
        Self { kind: Some(kind), name: NamePattern(name.to_owned()) }
    }

    /// Returns whether an object matches. Key Vault compares names without case.
    pub(crate) fn matches(&self, kind: VaultObjectKind, name: &str) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind) && self.name.matches_ignoring_case(name)
    }
}

impl FromStr for ObjectPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse =
            || format!("`{text}` is not `<kind>/<name>`: kinds are `secret`, `key`, `cert`, `*`");
        let (kind, name) = text.split_once('/').ok_or_else(refuse)?;
        let kind = match kind {
            "*" => None,
            _ => Some(
                VaultObjectKind::ALL.into_iter().find(|it| it.name() == kind).ok_or_else(refuse)?,
            ),
        };
        Ok(Self { kind, name: NamePattern::parse(name, NameKind::Object)? })
    }
}

impl fmt::Display for ObjectPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind.map_or("*", VaultObjectKind::name), self.name)
    }
}

/// A pattern of shared identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IdentityPattern {
    /// `*`: every identity of the node.
    Any,
    /// One identity.
    Exactly(SharedIdentity),
}

impl IdentityPattern {
    /// Returns whether an identity matches.
    pub(crate) fn matches(self, identity: SharedIdentity) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(only) => only == identity,
        }
    }
}

impl FromStr for IdentityPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "*" => Ok(Self::Any),
            SharedIdentity::SYSTEM_ASSIGNED => Ok(Self::Exactly(SharedIdentity::SystemAssigned)),
            _ => match text.parse::<EntraClientId>() {
                Ok(client) => Ok(Self::Exactly(SharedIdentity::UserAssigned(client))),
                Err(_) => Err(format!(
                    "`{text}` is neither a client id nor `{}` nor `*`",
                    SharedIdentity::SYSTEM_ASSIGNED
                )),
            },
        }
    }
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.pad("*"),
            Self::Exactly(identity) => identity.fmt(formatter),
        }
    }
}

/// Matches in linear time per `*` by backtracking only to the last one: an earlier `*` never has to be
/// reconsidered.
fn wildcard_match(pattern: &[u8], name: &[u8], same: fn(u8, u8) -> bool) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, read));
                at += 1;
            }
            Some(&plain) if same(plain, name[read]) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, read) = (after, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern(text.to_owned())
    }

    #[test]
    fn star_matches_any_text_and_other_characters_themselves() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("ocm-*", "ocm-", true),
            ("ocm-*", "ocm-prod-1", true),
            ("ocm-*", "xocm-1", false),
            ("*-kv", "hcp-kv", true),
            ("*-kv", "hcp-kv2", false),
            ("a*b*c", "a--b--b-c", true),
            ("a*b*c", "a--c--b", false),
            ("a.b", "axb", false),
            ("ab", "abc", false),
        ];
        for (text, name, expected) in cases {
            assert_eq!(pattern(text).matches(name), expected, "{text} {name}");
        }
        assert!(!pattern("Kv").matches("kv") && pattern("Kv").matches_ignoring_case("kV"));
    }

    #[test]
    fn pattern_with_many_stars_matches_in_linear_time() {
        let evil = pattern(&"*a".repeat(60));
        assert!(!evil.matches(&format!("{}b", "a".repeat(5_000))));
    }

    #[test]
    fn object_and_identity_patterns_are_parsed() {
        let any: ObjectPattern = "*/hcp-*".parse().unwrap();
        assert!(
            any.matches(VaultObjectKind::Key, "HCP-1")
                && !any.matches(VaultObjectKind::Key, "other")
        );
        let secret: ObjectPattern = "secret/*".parse().unwrap();
        assert!(
            secret.matches(VaultObjectKind::Secret, "x")
                && !secret.matches(VaultObjectKind::Certificate, "x")
        );
        for wrong in
            ["", "secret", "Secret/x", "certificate/x", "secret/", "secret/a/b", "secret/a b"]
        {
            assert!(wrong.parse::<ObjectPattern>().is_err(), "{wrong}");
        }
        for wrong in ["", "system", "1234"] {
            assert!(wrong.parse::<IdentityPattern>().is_err(), "{wrong}");
        }
    }

    /// A reference implementation with full backtracking: slow and obviously correct.
    fn naive_match(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                naive_match(&pattern[1..], name)
                    || (!name.is_empty() && naive_match(pattern, &name[1..]))
            }
            (Some(one), Some(other)) => one == other && naive_match(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_naive_backtracking(text in "[ab*]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(pattern(&text).matches(&name), naive_match(text.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn a_name_is_its_own_pattern(name in "[a-z0-9-]{1,63}", other in "[a-z0-9-]{1,63}") {
            let parsed = NamePattern::parse(&name, NameKind::Namespace).unwrap();
            prop_assert_eq!(parsed.matches(&other), name == other);
        }
    }
}
