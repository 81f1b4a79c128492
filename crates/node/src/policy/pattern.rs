//! Patterns of names: `*` stands for any text, everything else for itself.

use std::fmt;
use std::str::FromStr;

use lanyard_api::ObjectKind;
use lanyard_vocabulary::ClientId;

use crate::policy::access::SharedIdentity;

/// A pattern of names in which `*` stands for any text, the empty one too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Reads a pattern whose plain characters are of `kind`.
    pub(crate) fn parse(text: &str, kind: NameKind) -> Result<Self, String> {
        let (rule, longest, others) = kind.rule();
        let fits = |c: char| c == '*' || kind.takes(c) || others.contains(c);
        if text.len() <= longest
            && text.chars().all(fits)
            && (kind.may_be_empty() || !text.is_empty())
        {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("`{text}` is not a pattern of {rule}, with `*` for any text"))
    }

    /// The pattern of one name, which has no `*` in it.
    pub(crate) const fn plain(name: String) -> Self {
        Self(name)
    }

    /// Whether a name fits. Time is linear in both lengths for each `*`, never exponential.
    pub(crate) fn fits(&self, name: &str) -> bool {
        fits(self.0.as_bytes(), name.as_bytes(), |one, other| one == other)
    }

    /// [`Pattern::fits`] for names that Azure compares without case.
    pub(crate) fn fits_any_case(&self, name: &str) -> bool {
        fits(self.0.as_bytes(), name.as_bytes(), |one, other| one.eq_ignore_ascii_case(&other))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// What a pattern is a pattern of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// A Kubernetes namespace (RFC 1123 label).
    Namespace,
    /// A SecretProviderClass (RFC 1123 subdomain), or nothing: a caller that names no class.
    Class,
    /// A vault.
    Vault,
    /// An object of a vault.
    Object,
}

impl NameKind {
    /// The rule in words, the longest text, the characters beside those of [`NameKind::takes`].
    const fn rule(self) -> (&'static str, usize, &'static str) {
        match self {
            Self::Namespace => ("at most 63 lower-case letters, digits and `-`", 63, "-"),
            Self::Class => ("at most 253 lower-case letters, digits, `-` and `.`", 253, "-."),
            Self::Vault => ("at most 24 letters, digits and `-`", 24, "-"),
            Self::Object => ("at most 127 letters, digits and `-`", 127, "-"),
        }
    }

    const fn takes(self, c: char) -> bool {
        match self {
            Self::Namespace | Self::Class => c.is_ascii_lowercase() || c.is_ascii_digit(),
            Self::Vault | Self::Object => c.is_ascii_alphanumeric(),
        }
    }

    const fn may_be_empty(self) -> bool {
        matches!(self, Self::Class)
    }
}

/// A pattern of objects: `<kind>/<name>`, where either may be `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectPattern {
    kind: Option<ObjectKind>,
    name: Pattern,
}

impl ObjectPattern {
    /// The one object of this kind and name.
    pub(crate) fn exactly(kind: ObjectKind, name: &str) -> Self {
        Self { kind: Some(kind), name: Pattern(name.to_owned()) }
    }

    /// Whether an object fits. Vaults compare names without case.
    pub(crate) fn fits(&self, kind: ObjectKind, name: &str) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind) && self.name.fits_any_case(name)
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
            _ => Some(ObjectKind::ALL.into_iter().find(|it| it.name() == kind).ok_or_else(refuse)?),
        };
        Ok(Self { kind, name: Pattern::parse(name, NameKind::Object)? })
    }
}

impl fmt::Display for ObjectPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind.map_or("*", ObjectKind::name), self.name)
    }
}

/// Which identity a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IdentityPattern {
    /// `*`: any that the node has.
    Any,
    /// One of them.
    Only(SharedIdentity),
}

impl IdentityPattern {
    /// Whether an identity fits.
    pub(crate) fn fits(self, identity: SharedIdentity) -> bool {
        match self {
            Self::Any => true,
            Self::Only(only) => only == identity,
        }
    }
}

impl FromStr for IdentityPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "*" => Ok(Self::Any),
            SharedIdentity::SYSTEM => Ok(Self::Only(SharedIdentity::SystemAssigned)),
            _ => match text.parse::<ClientId>() {
                Ok(client) => Ok(Self::Only(SharedIdentity::UserAssigned(client))),
                Err(_) => Err(format!(
                    "`{text}` is neither a client id nor `{}` nor `*`",
                    SharedIdentity::SYSTEM
                )),
            },
        }
    }
}

impl fmt::Display for IdentityPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.pad("*"),
            Self::Only(identity) => identity.fmt(formatter),
        }
    }
}

/// Matches by remembering the last `*` alone: an earlier one never has to be reconsidered.
fn fits(pattern: &[u8], name: &[u8], same: fn(u8, u8) -> bool) -> bool {
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

    fn pattern(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    #[test]
    fn a_star_stands_for_any_text_and_all_else_for_itself() {
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
            assert_eq!(pattern(text).fits(name), expected, "{text} {name}");
        }
        assert!(!pattern("Kv").fits("kv") && pattern("Kv").fits_any_case("kV"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_answered_at_once() {
        let evil = pattern(&"*a".repeat(60));
        assert!(!evil.fits(&format!("{}b", "a".repeat(5_000))));
    }

    #[test]
    fn objects_and_identities_are_read_by_their_words() {
        let any: ObjectPattern = "*/hcp-*".parse().unwrap();
        assert!(any.fits(ObjectKind::Key, "HCP-1") && !any.fits(ObjectKind::Key, "other"));
        let secret: ObjectPattern = "secret/*".parse().unwrap();
        assert!(secret.fits(ObjectKind::Secret, "x") && !secret.fits(ObjectKind::Certificate, "x"));
        for wrong in
            ["", "secret", "Secret/x", "certificate/x", "secret/", "secret/a/b", "secret/a b"]
        {
            assert!(wrong.parse::<ObjectPattern>().is_err(), "{wrong}");
        }
        for wrong in ["", "system", "1234"] {
            assert!(wrong.parse::<IdentityPattern>().is_err(), "{wrong}");
        }
    }

    /// The same question, answered by trying every way: slow and obviously right.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                naive(&pattern[1..], name) || (!name.is_empty() && naive(pattern, &name[1..]))
            }
            (Some(one), Some(other)) => one == other && naive(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_trying_every_way_finds(text in "[ab*]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(pattern(&text).fits(&name), naive(text.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn a_name_is_its_own_pattern(name in "[a-z0-9-]{1,63}", other in "[a-z0-9-]{1,63}") {
            let parsed = Pattern::parse(&name, NameKind::Namespace).unwrap();
            prop_assert_eq!(parsed.fits(&other), name == other);
        }
    }
}
