//! Azure resource ids.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of an Azure resource, of a resource group or of a subscription.
///
/// The original case is kept, and comparison ignores it, as in Azure Resource Manager. Scopes contain each
/// other by segments: `rg1` does not contain `rg10`. An id is used in URLs without escaping, so no segment
/// has a special meaning in a URL: none is `.` or `..`, and none contains `%`.
///
/// ```
/// use lanyard_vocabulary::ArmResourceId;
///
/// let vnet: ArmResourceId =
///     "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/virtualNetworks/v"
///         .parse()?;
/// assert_eq!(vnet.resource_group(), Some("RG"));
/// assert_eq!(vnet.name(), "v");
/// let group: ArmResourceId = "/SUBSCRIPTIONS/s/resourcegroups/rg".parse()?;
/// assert!(group.contains(&vnet));
/// # Ok::<(), lanyard_vocabulary::ParseArmResourceIdError>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArmResourceId(String);

/// A text is not a valid Azure resource id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an Azure resource id: {reason}")]
pub struct ParseArmResourceIdError {
    pub text: String,
    pub reason: &'static str,
}

impl ArmResourceId {
    /// The id of a subscription.
    pub fn subscription_scope(subscription: &crate::SubscriptionId) -> Self {
        Self(format!("/subscriptions/{subscription}"))
    }

    /// The id in its original case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments of the path.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.trim_start_matches('/').split('/')
    }

    /// The subscription of the resource.
    pub fn subscription(&self) -> &str {
        self.segments().nth(1).unwrap_or_default()
    }

    /// The resource group of the resource, if it is in one.
    pub fn resource_group(&self) -> Option<&str> {
        let mut segments = self.segments().skip(2);
        let keyword = segments.next()?;
        keyword.eq_ignore_ascii_case("resourceGroups").then(|| segments.next()).flatten()
    }

    /// The type of the resource as `Namespace/type/childType`; `None` for groups and subscriptions. An
    /// extension resource has the type of its last provider.
    pub fn resource_type(&self) -> Option<String> {
        let segments: Vec<_> = self.segments().collect();
        let provider = segments.iter().rposition(|s| s.eq_ignore_ascii_case("providers"))?;
        let (namespace, rest) = segments.get(provider + 1..)?.split_first()?;
        let types = rest.iter().step_by(2);
        Some(std::iter::once(namespace).chain(types).copied().collect::<Vec<_>>().join("/"))
    }

    /// Whether the resource has the type, which Azure compares without case.
    pub fn has_type(&self, resource_type: &str) -> bool {
        self.resource_type().is_some_and(|it| it.eq_ignore_ascii_case(resource_type))
    }

    /// The last segment: the name of the resource.
    pub fn name(&self) -> &str {
        self.segments().next_back().unwrap_or_default()
    }

    /// The name that follows `kind` in the path, such as `virtualNetworks`.
    pub fn name_of(&self, kind: &str) -> Option<&str> {
        let mut segments = self.segments();
        segments.find(|segment| segment.eq_ignore_ascii_case(kind))?;
        segments.next()
    }

    /// The id of a child of this resource, such as `subnets/default`.
    ///
    /// The result is exactly one type and one name below this id, whatever the name is. Characters that are
    /// not allowed in a segment (see [`ArmResourceId`]) are replaced by U+FFFD. No resource has that
    /// character in its name, so Azure reports such an id as not found.
    #[must_use]
    pub fn child(&self, kind: &'static str, name: &str) -> Self {
        Self(format!("{}/{kind}/{}", self.0, sanitize_segment(name)))
    }

    /// The id of the resource `Namespace/type` named `name` in this group or subscription; names are treated
    /// as in [`ArmResourceId::child`].
    #[must_use]
    pub fn provider_resource(&self, resource_type: &'static str, name: &str) -> Self {
        Self(format!("{}/providers/{resource_type}/{}", self.0, sanitize_segment(name)))
    }

    /// Whether `other` equals this scope or is below it.
    pub fn contains(&self, other: &Self) -> bool {
        let mut theirs = other.segments();
        self.segments()
            .all(|mine| theirs.next().is_some_and(|their| their.eq_ignore_ascii_case(mine)))
    }
}

impl FromStr for ArmResourceId {
    type Err = ParseArmResourceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |reason| Err(ParseArmResourceIdError { text: text.to_owned(), reason });
        let Some(path) = text.strip_prefix('/') else {
            return refuse("it does not begin with `/`");
        };
        let segments: Vec<_> = path.split('/').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return refuse("it has an empty segment");
        }
        if segments.iter().any(|segment| is_dot_segment(segment)) {
            return refuse("it has a segment `.` or `..`");
        }
        if path.chars().any(|c| c != '/' && is_forbidden_char(c)) {
            return refuse("it has a character that no id has");
        }
        if !segments[0].eq_ignore_ascii_case("subscriptions") || segments.len() < 2 {
            return refuse("it does not begin with `/subscriptions/<id>`");
        }
        if segments.len() == 2 {
            return Ok(Self(text.to_owned()));
        }
        let after_group = if segments[2].eq_ignore_ascii_case("resourceGroups") {
            if segments.len() < 4 {
                return refuse("the resource group has no name");
            }
            &segments[4..]
        } else {
            &segments[2..]
        };
        match after_group {
            [] => {}
            [keyword, _, _, _, ..] if keyword.eq_ignore_ascii_case("providers") => {
                if after_group.len() % 2 == 1 {
                    return refuse("types and names do not pair up");
                }
            }
            _ => return refuse("`/providers/<namespace>/<type>/<name>` is incomplete"),
        }
        Ok(Self(text.to_owned()))
    }
}

/// Whether a URL would resolve the segment as a relative path.
fn is_dot_segment(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

/// Whether the character is not allowed in a segment.
fn is_forbidden_char(c: char) -> bool {
    c.is_control() || matches!(c, '/' | '?' | '#' | '\\' | '%')
}

/// Replaces the characters that are not allowed in a segment.
fn sanitize_segment(text: &str) -> Cow<'_, str> {
    let relative = is_dot_segment(text);
    if !text.is_empty() && !relative && !text.contains(is_forbidden_char) {
        return Cow::Borrowed(text);
    }
    let replaced =
        |c| if relative || is_forbidden_char(c) { char::REPLACEMENT_CHARACTER } else { c };
    let segment: String = text.chars().map(replaced).collect();
    Cow::Owned(if segment.is_empty() { char::REPLACEMENT_CHARACTER.into() } else { segment })
}

impl TryFrom<String> for ArmResourceId {
    type Error = ParseArmResourceIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ArmResourceId> for String {
    fn from(id: ArmResourceId) -> Self {
        id.0
    }
}

crate::display_text!(ArmResourceId, 0);

impl PartialEq for ArmResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ArmResourceId {}

impl Hash for ArmResourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.0.bytes() {
            state.write_u8(byte.to_ascii_lowercase());
        }
        state.write_u8(0xff);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> ArmResourceId {
        text.parse().unwrap()
    }

    #[test]
    fn the_case_is_kept_and_comparison_ignores_it() {
        let mixed = id("/subscriptions/S/resourcegroups/Rg");
        assert_eq!(mixed.as_str(), "/subscriptions/S/resourcegroups/Rg");
        assert_eq!(mixed, id("/subscriptions/s/resourceGroups/rG"));
        assert_eq!(mixed.resource_group(), Some("Rg"));
    }

    #[test]
    fn scopes_contain_by_segments_and_not_by_prefix() {
        let group = id("/subscriptions/s/resourceGroups/rg1");
        assert!(group.contains(&id("/subscriptions/s/resourcegroups/RG1/providers/A.B/c/d")));
        assert!(!group.contains(&id("/subscriptions/s/resourceGroups/rg10")));
        assert!(!group.contains(&id("/subscriptions/s")));
    }

    #[test]
    fn the_type_names_every_level_of_the_last_provider() {
        let cases = [
            ("/subscriptions/s", None),
            ("/subscriptions/s/resourceGroups/g", None),
            (
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/n",
                Some("Microsoft.Network/virtualNetworks/subnets"),
            ),
            (
                "/subscriptions/s/resourceGroups/g/providers/A.B/c/d/providers/Microsoft.Authorization/roleAssignments/x",
                Some("Microsoft.Authorization/roleAssignments"),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(id(text).resource_type().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn types_are_compared_without_case_and_whole() {
        let subnet = id(
            "/subscriptions/s/resourceGroups/g/providers/microsoft.network/VirtualNetworks/v/subnets/n",
        );
        assert!(subnet.has_type("Microsoft.Network/virtualNetworks/subnets"));
        assert!(!subnet.has_type("Microsoft.Network/virtualNetworks"));
        assert!(!id("/subscriptions/s/resourceGroups/g").has_type(""));
    }

    #[test]
    fn names_with_dots_and_stars_are_names() {
        for name in ["...", ".a", "a..b", "*.apps", "example.com", "a b", "rg_(1)"] {
            let text = format!("/subscriptions/s/resourceGroups/g/providers/A.B/c/{name}");
            assert_eq!(id(&text).name(), name);
            assert_eq!(
                id("/subscriptions/s/resourceGroups/g").provider_resource("A.B/c", name),
                id(&text)
            );
        }
    }

    #[test]
    fn child_names_with_forbidden_characters_stay_one_level_below() {
        let zone = id("/subscriptions/s/resourceGroups/g/providers/A.B/c/d");
        for (name, expected) in [
            ("", "\u{fffd}"),
            (".", "\u{fffd}"),
            ("..", "\u{fffd}\u{fffd}"),
            ("../x", "..\u{fffd}x"),
            ("x%2f", "x\u{fffd}2f"),
            ("x?y#z", "x\u{fffd}y\u{fffd}z"),
            ("\\\n", "\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(zone.child("e", name).name(), expected, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn child_id_is_always_one_type_and_name_below_its_parent(name in "([./%?#\\\\]|.){0,12}") {
            let group = id("/subscriptions/s/resourceGroups/g");
            let resource = group.provider_resource("A.B/c", &name);
            let child = resource.child("d", &name);
            prop_assert_eq!(child.as_str().parse::<ArmResourceId>(), Ok(child.clone()));
            prop_assert!(group.contains(&resource) && resource.contains(&child));
            prop_assert_eq!(child.segments().count(), resource.segments().count() + 2);
            prop_assert_eq!(resource.segments().count(), group.segments().count() + 4);
        }
    }

    #[test]
    fn invalid_resource_ids_are_rejected() {
        let cases = [
            "",
            "subscriptions/s",
            "/subscriptions",
            "/subscriptions/",
            "/subscriptions/s/",
            "/subscriptions/s/resourceGroups",
            "/subscriptions/s/resourceGroups/g/providers/A.B",
            "/subscriptions/s/resourceGroups/g/providers/A.B/c",
            "/subscriptions/s/resourceGroups/g/providers/A.B/c/d/e",
            "/subscriptions/s/resourceGroups//providers/A.B/c/d",
            "/subscriptions/s/resourceGroups/g?x",
            "/subscriptions/s/resourceGroups/g\\x",
            "/subscriptions/..",
            "/subscriptions/s/resourceGroups/.",
            "/subscriptions/s/resourceGroups/..",
            "/subscriptions/s/resourceGroups/%2e%2E",
            "/subscriptions/s/resourceGroups/g%2Fproviders",
            "/subscriptions/s/resourceGroups/g/providers/A.B/c/../providers/A.B/d/e",
        ];
        for text in cases {
            assert!(text.parse::<ArmResourceId>().is_err(), "{text:?}");
        }
    }
}
