//! Scopes of role assignments and of requests: `/`, a subscription, a resource group, a resource, or a child
//! such as one secret of a vault.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A scope in the tree of Azure resources.
///
/// A scope contains its descendants by path segments, ignoring case, so `rg1` does not contain `rg10`. The
/// original case is kept for display.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct AccessScope {
    text: String,
    lower: String,
}

/// A text is not a valid scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a scope: {reason}")]
pub(crate) struct ParseAccessScopeError {
    pub(crate) text: String,
    pub(crate) reason: &'static str,
}

impl AccessScope {
    /// The scope above all subscriptions.
    pub(crate) fn root() -> Self {
        Self { text: "/".to_owned(), lower: String::new() }
    }

    /// The scope in its original case.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `other` equals this scope or is below it.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other
            .lower
            .strip_prefix(&self.lower)
            .is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// This scope and its ancestors up to `/` in lower case, the nearest first.
    pub(super) fn self_and_ancestors(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.lower.as_str()), |scope| {
            scope.rsplit_once('/').map(|(above, _)| above)
        })
    }

    /// The path of `child` below this scope, such as `secrets/name`.
    #[must_use]
    pub(crate) fn child(&self, child: &str) -> Self {
        let base = self.text.trim_end_matches('/');
        let text = format!("{base}/{child}");
        let lower = text.to_ascii_lowercase();
        Self { text, lower }
    }

    /// The id of an extension resource at this scope, such as a role assignment.
    pub(crate) fn extension_resource_id(
        &self,
        resource_type: &str,
        name: impl fmt::Display,
    ) -> String {
        format!("{}/providers/{resource_type}/{name}", self.text.trim_end_matches('/'))
    }
}

impl FromStr for AccessScope {
    type Err = ParseAccessScopeError;

    /// Parses a scope; one trailing slash is tolerated.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |reason| Err(ParseAccessScopeError { text: text.to_owned(), reason });
        if text == "/" {
            return Ok(Self::root());
        }
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let Some(path) = trimmed.strip_prefix('/') else {
            return refuse("it does not begin with `/`");
        };
        if path.split('/').any(str::is_empty) {
            return refuse("it has an empty segment");
        }
        if path.chars().any(|c| c.is_control() || matches!(c, '?' | '#' | '\\')) {
            return refuse("it has a character that no scope has");
        }
        Ok(Self { text: trimmed.to_owned(), lower: trimmed.to_ascii_lowercase() })
    }
}

impl TryFrom<String> for AccessScope {
    type Error = ParseAccessScopeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AccessScope> for String {
    fn from(scope: AccessScope) -> Self {
        scope.text
    }
}

impl From<lanyard_vocabulary::ArmResourceId> for AccessScope {
    fn from(id: lanyard_vocabulary::ArmResourceId) -> Self {
        let text = String::from(id);
        let lower = text.to_ascii_lowercase();
        Self { text, lower }
    }
}

impl fmt::Display for AccessScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl PartialEq for AccessScope {
    fn eq(&self, other: &Self) -> bool {
        self.lower == other.lower
    }
}

impl Eq for AccessScope {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scope(text: &str) -> AccessScope {
        text.parse().unwrap()
    }

    #[test]
    fn every_level_contains_the_levels_below_it() {
        let levels = [
            "/",
            "/subscriptions/s",
            "/subscriptions/s/resourceGroups/g",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v/secrets/n",
        ]
        .map(scope);
        for (above, upper) in levels.iter().enumerate() {
            for (below, lower) in levels.iter().enumerate() {
                assert_eq!(upper.contains(lower), above <= below, "{upper} and {lower}");
            }
        }
    }

    #[test]
    fn ancestors_are_listed_segment_by_segment_to_the_root() {
        let scope = scope("/Subscriptions/s/resourceGroups/G");
        let all: Vec<_> = scope.self_and_ancestors().collect();
        assert_eq!(
            all,
            [
                "/subscriptions/s/resourcegroups/g",
                "/subscriptions/s/resourcegroups",
                "/subscriptions/s",
                "/subscriptions",
                ""
            ]
        );
        assert_eq!(AccessScope::root().self_and_ancestors().collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn scope_keeps_its_case_and_compares_without_case() {
        let mixed = scope("/Subscriptions/S/resourcegroups/RG/");
        assert_eq!(mixed.as_str(), "/Subscriptions/S/resourcegroups/RG");
        assert!(mixed.contains(&scope("/subscriptions/s/resourceGroups/rg/providers/A.B/c/d")));
    }

    #[test]
    fn invalid_scope_texts_are_rejected() {
        for text in ["", "subscriptions/s", "//", "/subscriptions//x", "/a?b", "/a#b", "/a/\u{7}"] {
            assert!(text.parse::<AccessScope>().is_err(), "{text:?}");
        }
    }

    fn path() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab]{1,2}", 1..6)
    }

    proptest! {
        #[test]
        fn scope_contains_by_whole_segments(upper in path(), lower in path()) {
            let join = |segments: &[String]| scope(&format!("/{}", segments.join("/")));
            let contains = lower.starts_with(&upper);
            prop_assert_eq!(join(&upper).contains(&join(&lower)), contains);
            prop_assert_eq!(join(&lower).self_and_ancestors().any(|above| above == join(&upper).lower), contains);
        }
    }
}
