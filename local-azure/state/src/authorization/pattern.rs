//! Patterns of role permissions: `Microsoft.Network/*/read`.
//!
//! Matching ignores case, because the lists of Azure's own roles are inconsistent (`privatelinkservices`,
//! `Microsoft.Authorization/*/Write`). A `*` matches any text, slashes included. A `*` that is a whole
//! segment also matches no segment at all: `userAssignedIdentities/*/assign/action` is the documented pattern
//! for the operation `userAssignedIdentities/assign/action`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A compiled permission pattern.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ActionPattern {
    text: String,
    kind: ActionPatternKind,
}

#[derive(Clone, PartialEq, Eq)]
enum ActionPatternKind {
    AnyAction,
    Exact(String),
    Glob(Vec<GlobPiece>),
}

#[derive(Clone, PartialEq, Eq)]
enum GlobPiece {
    /// Lower-case literal text.
    Literal(String),
    /// `*`: any text, including none.
    AnyText,
    /// `/*/`: a slash, or a slash and any text that ends with one.
    AnySegments,
}

impl ActionPattern {
    /// Compiles a pattern; every text is valid.
    pub fn compile(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let kind = if lower == "*" {
            ActionPatternKind::AnyAction
        } else if lower.contains('*') {
            ActionPatternKind::Glob(parse_glob(&lower))
        } else {
            ActionPatternKind::Exact(lower)
        };
        Self { text: text.to_owned(), kind }
    }

    /// Whether the pattern matches `action`, which must be lower-case.
    pub(crate) fn covers(&self, action: &str) -> bool {
        match &self.kind {
            ActionPatternKind::AnyAction => true,
            ActionPatternKind::Exact(text) => text == action,
            ActionPatternKind::Glob(pieces) => glob_matches(pieces, action),
        }
    }

    /// The pattern in its original case.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<String> for ActionPattern {
    fn from(text: String) -> Self {
        Self::compile(&text)
    }
}

impl From<ActionPattern> for String {
    fn from(pattern: ActionPattern) -> Self {
        pattern.text
    }
}

impl fmt::Debug for ActionPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, formatter)
    }
}

fn parse_glob(lower: &str) -> Vec<GlobPiece> {
    let mut pieces = Vec::new();
    let mut rest = lower;
    while let Some(star) = rest.find('*') {
        let (before, after) = (&rest[..star], &rest[star + 1..]);
        let whole_segment = before.ends_with('/') && after.starts_with('/');
        let (literal, piece, next) = if whole_segment {
            (&before[..before.len() - 1], GlobPiece::AnySegments, &after[1..])
        } else {
            (before, GlobPiece::AnyText, after)
        };
        if !literal.is_empty() {
            pieces.push(GlobPiece::Literal(literal.to_owned()));
        }
        pieces.push(piece);
        rest = next;
    }
    if !rest.is_empty() {
        pieces.push(GlobPiece::Literal(rest.to_owned()));
    }
    pieces
}

fn glob_matches(pieces: &[GlobPiece], text: &str) -> bool {
    let Some((piece, rest)) = pieces.split_first() else {
        return text.is_empty();
    };
    match piece {
        GlobPiece::Literal(literal) => {
            text.strip_prefix(literal.as_str()).is_some_and(|after| glob_matches(rest, after))
        }
        GlobPiece::AnyText => {
            rest.is_empty() || text.char_indices().any(|(at, _)| glob_matches(rest, &text[at..]))
        }
        GlobPiece::AnySegments => {
            text.starts_with('/')
                && text.match_indices('/').any(|(at, _)| glob_matches(rest, &text[at + 1..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covers(pattern: &str, action: &str) -> bool {
        ActionPattern::compile(pattern).covers(&action.to_ascii_lowercase())
    }

    #[test]
    fn patterns_cover_actions_as_azure_documents() {
        let cases = [
            ("*", "Microsoft.Network/virtualNetworks/read", true),
            ("*/read", "Microsoft.Network/virtualNetworks/subnets/read", true),
            ("*/read", "Microsoft.Network/virtualNetworks/write", false),
            ("Microsoft.Network/*", "Microsoft.Network/virtualNetworks/join/action", true),
            ("Microsoft.Network/*", "Microsoft.NetworkFunction/x/read", false),
            (
                "Microsoft.Authorization/*/Write",
                "microsoft.authorization/roleAssignments/write",
                true,
            ),
            (
                "Microsoft.Network/privatelinkservices/read",
                "Microsoft.Network/privateLinkServices/read",
                true,
            ),
            (
                "Microsoft.Network/virtualNetworks/read",
                "Microsoft.Network/virtualNetworks/subnets/read",
                false,
            ),
            // A segment of only `*` may be empty.
            (
                "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action",
                "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
                true,
            ),
            (
                "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action",
                "Microsoft.ManagedIdentity/userAssignedIdentities/a/b/assign/action",
                true,
            ),
            ("Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaults/read", true),
            ("Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaults/keys/read", true),
            ("Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaultsread", false),
            ("Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaults/unread", false),
            // Not a whole segment: the slash is required.
            ("Microsoft.KeyVault/vaults/*", "Microsoft.KeyVault/vaults", false),
            ("Microsoft.KeyVault/locations/*/read", "Microsoft.KeyVault/locations/a/b/read", true),
        ];
        for (pattern, action, expected) in cases {
            assert_eq!(covers(pattern, action), expected, "{pattern} against {action}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_without_a_star_covers_itself_only(
            one in "[a-zA-Z./]{1,20}", other in "[a-zA-Z./]{1,20}",
        ) {
            prop_assert!(covers(&one, &one));
            prop_assert_eq!(covers(&one, &other), one.eq_ignore_ascii_case(&other));
        }

        #[test]
        fn a_star_segment_covers_any_depth(
            head in "[a-z]{1,5}", middle in prop::collection::vec("[a-z]{1,4}", 0..4), tail in "[a-z]{1,5}",
        ) {
            let mut segments = vec![head.clone()];
            segments.extend(middle);
            segments.push(tail.clone());
            let pattern = format!("{head}/*/{tail}");
            let action = segments.join("/");
            prop_assert!(covers(&pattern, &action));
        }

        #[test]
        fn matching_never_panics(pattern in ".{0,12}", action in ".{0,24}") {
            covers(&pattern, &action);
        }
    }
}
