//! Scopes of role assignments and of requests: `/`, a management group, a subscription, a resource group, a
//! resource, or a child such as one secret of a vault.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The resource type of management groups.
const MANAGEMENT_GROUPS: &str = "Microsoft.Management/managementGroups";

/// A scope in the tree of Azure resources.
///
/// A scope contains its descendants by path segments, ignoring case, so `rg1` does not contain `rg10`. The
/// original case is kept for display.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccessScope {
    text: Arc<str>,
    /// The text in lower case, without a trailing slash: empty for `/`.
    lower: Arc<str>,
}

/// A text is not a valid scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a scope: {reason}")]
pub struct ParseAccessScopeError {
    pub text: String,
    pub reason: &'static str,
}

impl AccessScope {
    /// The scope above all subscriptions.
    pub fn root() -> Self {
        Self { text: "/".into(), lower: "".into() }
    }

    /// The scope of a management group.
    pub(crate) fn management_group(name: &str) -> Self {
        Self::from_text(&format!("/providers/{MANAGEMENT_GROUPS}/{name}"))
    }

    fn from_text(text: &str) -> Self {
        let text: Arc<str> = text.into();
        let mut lower = Arc::clone(&text);
        if text.contains(|c: char| c.is_ascii_uppercase()) {
            Arc::make_mut(&mut lower).make_ascii_lowercase();
        }
        Self { text, lower }
    }

    /// The scope in its original case.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `other` equals this scope or is below it.
    pub fn contains(&self, other: &Self) -> bool {
        other
            .lower
            .strip_prefix(&*self.lower)
            .is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// This scope and its ancestors up to `/` in lower case, the nearest first.
    pub(crate) fn self_and_ancestors(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(&*self.lower), |scope| {
            scope.rsplit_once('/').map(|(above, _)| above)
        })
    }

    /// The scope in lower case, for indexes: empty for `/`.
    pub(crate) fn index_key(&self) -> &Arc<str> {
        &self.lower
    }

    /// The id of this scope's subscription, in its original case; `None` outside of subscriptions.
    pub fn subscription_id(&self) -> Option<&str> {
        let (keyword, id) = self.leading_segments()?;
        keyword.eq_ignore_ascii_case("subscriptions").then_some(id)
    }

    fn leading_segments(&self) -> Option<(&str, &str)> {
        let mut segments = self.text.strip_prefix('/')?.split('/');
        Some((segments.next()?, segments.next()?))
    }

    /// The name of the management group, if the scope is one.
    pub fn management_group_name(&self) -> Option<&str> {
        let mut segments = self.text.strip_prefix('/')?.splitn(4, '/');
        let [providers, namespace, kind] = [segments.next()?, segments.next()?, segments.next()?];
        let is_group = providers.eq_ignore_ascii_case("providers")
            && MANAGEMENT_GROUPS.split_once('/').is_some_and(|known| {
                namespace.eq_ignore_ascii_case(known.0) && kind.eq_ignore_ascii_case(known.1)
            });
        segments.next().filter(|name| is_group && !name.contains('/'))
    }

    /// The scope of the resource group that contains or equals this scope; `None` if there is none.
    pub fn resource_group(&self) -> Option<Self> {
        self.subscription_id()?;
        let segments: Vec<_> = self.text.splitn(6, '/').take(5).collect();
        match segments.as_slice() {
            [_, _, _, keyword, _] if keyword.eq_ignore_ascii_case("resourceGroups") => {
                Some(Self::from_text(&segments.join("/")))
            }
            _ => None,
        }
    }

    /// The scope of the top-level resource that contains or equals this scope:
    /// `…/providers/NAMESPACE/TYPE/NAME` in a resource group. `None` if there is none.
    pub fn top_level_resource(&self) -> Option<Self> {
        self.resource_group()?;
        let segments: Vec<_> = self.text.splitn(10, '/').take(9).collect();
        match segments.as_slice() {
            [_, _, _, _, _, keyword, _, _, _] if keyword.eq_ignore_ascii_case("providers") => {
                Some(Self::from_text(&segments.join("/")))
            }
            _ => None,
        }
    }

    /// The path segment after the first segment `keyword`, ignoring case; `None` if there is none.
    pub fn segment_after(&self, keyword: &str) -> Option<&str> {
        let mut segments = self.text.split('/');
        segments.find(|segment| segment.eq_ignore_ascii_case(keyword))?;
        segments.next()
    }

    /// The path of `child` below this scope, such as `secrets/name`.
    #[must_use]
    pub fn child(&self, child: &str) -> Self {
        Self::from_text(&format!("{}/{child}", self.text.trim_end_matches('/')))
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
        Ok(Self::from_text(trimmed))
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
        scope.text.to_string()
    }
}

impl From<lanyard_vocabulary::ArmResourceId> for AccessScope {
    fn from(id: lanyard_vocabulary::ArmResourceId) -> Self {
        Self::from_text(&String::from(id))
    }
}

lanyard_vocabulary::display_text!(AccessScope, text);

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
    fn parts_of_a_scope_are_found_ignoring_case() {
        let secret = scope(
            "/Subscriptions/S/resourcegroups/G/Providers/Microsoft.KeyVault/vaults/v/secrets/n",
        );
        assert_eq!(secret.subscription_id(), Some("S"));
        let part = |found: Option<AccessScope>| found.map(String::from).unwrap_or_default();
        assert_eq!(part(secret.resource_group()), "/Subscriptions/S/resourcegroups/G");
        assert_eq!(
            part(secret.top_level_resource()),
            "/Subscriptions/S/resourcegroups/G/Providers/Microsoft.KeyVault/vaults/v"
        );
        assert_eq!(secret.segment_after("Secrets"), Some("n"));
        assert_eq!(secret.management_group_name(), None);
        let group = scope("/providers/microsoft.management/ManagementGroups/Root");
        assert_eq!(group.management_group_name(), Some("Root"));
        assert_eq!(group, AccessScope::management_group("root"));
        for other in
            ["/", "/subscriptions/s", "/providers/Microsoft.Management/managementGroups/a/b"]
        {
            assert_eq!(scope(other).management_group_name(), None, "{other}");
            assert_eq!(scope(other).resource_group(), None, "{other}");
        }
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
            prop_assert_eq!(join(&lower).self_and_ancestors().any(|above| *above == *join(&upper).lower), contains);
        }
    }
}
