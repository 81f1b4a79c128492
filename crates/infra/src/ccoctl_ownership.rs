//! How ccoctl marks what it created: a tag, and the description of custom roles, which have no tags.

use lanyard_azure::ResourceTags;
use lanyard_changes::ToolMark;
use serde_json::Value;

/// The value of the tag.
pub(crate) const CCOCTL_TAG_VALUE: &str = "owned";

/// The owner of resources that ccoctl, or lanyard in its place, created: the `--name` of its commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CcoctlOwner(String);

impl CcoctlOwner {
    /// The owner with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The name of the tag on resource groups, storage accounts and identities.
    pub(crate) fn tag_name(&self) -> String {
        format!("openshift.io_cloud-credential-operator_{}", self.0)
    }

    /// The tags of a resource: those of the user, and the one that shows the owner.
    pub(crate) fn owned_tags(&self, user_tags: &ResourceTags) -> ResourceTags {
        let mut tags = user_tags.clone();
        tags.insert(self.tag_name(), CCOCTL_TAG_VALUE.to_owned());
        tags
    }

    /// The description of custom roles.
    pub(crate) fn role_description(&self) -> String {
        format!("Custom role for OpenShift. Owned by: {}", self.0)
    }

    /// How resources of this owner are marked.
    pub fn mark(&self) -> ToolMark {
        let (tag, value) = (self.tag_name(), CCOCTL_TAG_VALUE.to_owned());
        ToolMark { tag, value, description: self.role_description() }
    }

    /// Whether the body of a resource shows this owner.
    pub(crate) fn owns(&self, body: &Value) -> bool {
        self.mark().is_on(body)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tag_or_description_shows_the_owner() {
        let owner = CcoctlOwner::new("dev");
        for (body, is_owned) in [
            (json!({"tags": {"openshift.io_cloud-credential-operator_dev": "owned"}}), true),
            (json!({"tags": {"OpenShift.io_cloud-credential-operator_dev": "owned"}}), true),
            (json!({"tags": {"openshift.io_cloud-credential-operator_dev": "shared"}}), false),
            (json!({"tags": {"openshift.io_cloud-credential-operator_dev2": "owned"}}), false),
            (
                json!({"properties": {"description": "Custom role for OpenShift. Owned by: dev"}}),
                true,
            ),
            (
                json!({"properties": {"description": "Custom role for OpenShift. Owned by: dev2"}}),
                false,
            ),
            (json!({}), false),
        ] {
            assert_eq!(owner.owns(&body), is_owned, "{body}");
        }
    }
}
