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

/// A pattern in lower case.
#[derive(Clone, PartialEq, Eq)]
enum ActionPatternKind {
    Exact(String),
    Glob(Glob),
}

/// The literal texts between the stars of a pattern.
#[derive(Clone, PartialEq, Eq)]
struct Glob {
    first: String,
    middle: Vec<String>,
    last: String,
}

impl ActionPattern {
    /// Compiles a pattern; every text is valid.
    pub fn compile(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let kind = match Glob::parse(&lower) {
            Some(glob) => ActionPatternKind::Glob(glob),
            None => ActionPatternKind::Exact(lower),
        };
        Self { text: text.to_owned(), kind }
    }

    /// Whether the pattern matches `action`, which must be lower-case.
    pub(crate) fn covers(&self, action: &str) -> bool {
        match &self.kind {
            ActionPatternKind::Exact(text) => text == action,
            ActionPatternKind::Glob(glob) => glob.matches(action),
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

impl Glob {
    /// `None` for a pattern without a star.
    fn parse(pattern: &str) -> Option<Self> {
        let (first, rest) = pattern.split_once('*')?;
        let (middle, last) = match rest.rsplit_once('*') {
            Some((middle, last)) => (middle.split('*').map(str::to_owned).collect(), last),
            None => (Vec::new(), rest),
        };
        Some(Self { first: first.to_owned(), middle, last: last.to_owned() })
    }

    /// Takes the leftmost occurrence of each literal, in time linear in both lengths: a later occurrence never
    /// helps, because the star after it matches any text.
    fn matches(&self, text: &str) -> bool {
        if !text.starts_with(&self.first) {
            return false;
        }
        let (mut previous, mut end) = (self.first.as_str(), self.first.len());
        for literal in &self.middle {
            let start = earliest_start(previous, end, literal);
            let Some(found) = text[start..].find(literal.as_str()) else { return false };
            end = start + found + literal.len();
            previous = literal;
        }
        let start = earliest_start(previous, end, &self.last);
        text[start..].ends_with(&self.last)
    }
}

/// The first position at which a literal may start if the one before it ends at `end`. The slashes around a star
/// that is a whole segment may be the same one.
fn earliest_start(previous: &str, end: usize, literal: &str) -> usize {
    if previous.ends_with('/') && literal.starts_with('/') { end - 1 } else { end }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn covers(pattern: &str, action: &str) -> bool {
        ActionPattern::compile(pattern).covers(&action.to_ascii_lowercase())
    }

    #[derive(Deserialize)]
    struct Case {
        pattern: String,
        action: String,
        matches: bool,
    }

    #[test]
    fn patterns_cover_actions_as_azure_documents() {
        let cases = include_str!("../../../../conformance/cases/action_patterns.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        for Case { pattern, action, matches } in cases {
            assert_eq!(covers(&pattern, &action), matches, "{pattern} against {action}");
        }
    }

    /// Whether a pattern matches, by trying every text for every star.
    fn covers_by_definition(pattern: &str, action: &str) -> bool {
        let Some(first) = pattern.chars().next() else { return action.is_empty() };
        let rest = &pattern[first.len_utf8()..];
        if first == '*' {
            let mut ends = action.char_indices().map(|(at, _)| at).chain([action.len()]);
            return ends.any(|at| covers_by_definition(rest, &action[at..]));
        }
        let skips_segment =
            pattern.starts_with("/*/") && covers_by_definition(&pattern[2..], action);
        let continues = action.strip_prefix(first).is_some_and(|it| covers_by_definition(rest, it));
        skips_segment || continues
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

        #[test]
        fn leftmost_match_finds_what_any_match_finds(
            pattern in "[ab/*]{0,8}", action in "[ab/é]{0,12}",
        ) {
            prop_assert_eq!(covers(&pattern, &action), covers_by_definition(&pattern, &action));
        }
    }
}
