//! The tags on the resources that lanyard creates.

use serde_json::{Value, json};

/// The tag with the name of the hosted cluster. Tag names must not contain a slash, so it is not a Kubernetes
/// label.
const CLUSTER_TAG: &str = "lanyard-cluster";
/// The tag with the infrastructure id.
const INFRA_ID_TAG: &str = "lanyard-infra-id";
/// The annotations of Kubernetes objects with the values of both tags.
const ANNOTATIONS: [&str; 2] = ["lanyard.dev/cluster", "lanyard.dev/infra-id"];

/// The tags that show which cluster a resource belongs to. They are set when a resource is created, and are not
/// compared later: an imported resource has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipTags {
    name: String,
    infra_id: String,
    other_tool: Option<ToolMark>,
}

/// How another tool marks what it creates for an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolMark {
    /// The name of the tag.
    pub tag: String,
    /// The value of the tag.
    pub value: String,
    /// The description of resources that have no tags.
    pub description: String,
}

impl ToolMark {
    /// Whether the body of a resource has the tag or the description. Azure compares the names of tags without case.
    pub fn is_on(&self, body: &Value) -> bool {
        tag_of(body, &self.tag) == Some(&self.value)
            || body.pointer("/properties/description").and_then(Value::as_str)
                == Some(&self.description)
    }
}

impl OwnershipTags {
    /// The tags of a cluster, or of a shared stack: its name and its infrastructure id.
    pub fn new(name: impl Into<String>, infra_id: impl Into<String>) -> Self {
        Self { name: name.into(), infra_id: infra_id.into(), other_tool: None }
    }

    /// The same tags; resources with the mark of another tool count as tagged.
    #[must_use]
    pub fn with_mark_of(mut self, other_tool: ToolMark) -> Self {
        self.other_tool = Some(other_tool);
        self
    }

    /// Whether the body of a resource has the tags, or the body of a Kubernetes object the annotations.
    pub fn are_on(&self, body: &Value) -> bool {
        let is_of_other_tool = self.other_tool.as_ref().is_some_and(|mark| mark.is_on(body));
        let annotations = &body["metadata"]["annotations"];
        is_of_other_tool
            || self.pairs().iter().all(|(tag, value)| tag_of(body, tag) == Some(value))
            || self.annotations().iter().all(|(name, value)| annotations[name] == *value)
    }

    fn annotations(&self) -> [(&'static str, &str); 2] {
        let [(_, name), (_, infra_id)] = self.pairs();
        let [cluster, id] = ANNOTATIONS;
        [(cluster, name), (id, infra_id)]
    }

    /// Adds the annotations to the body of a Kubernetes object.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn add_annotations_to(&self, body: &mut Value) {
        let [(cluster, name), (id, infra_id)] = self.annotations();
        let marked = json!({ "metadata": { "annotations": { cluster: name, id: infra_id } } });
        *body = crate::property_diff::merge_properties(&marked, body);
    }

    /// The names and values of the tags.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 2] {
        [(CLUSTER_TAG, &self.name), (INFRA_ID_TAG, &self.infra_id)]
    }

    /// Whether the body has a tag that a controller of the cluster sets on its virtual machines, disks and addresses:
    /// `kubernetes.io_cluster.<infraID>` of the cloud provider, or
    /// `sigs.k8s.io_cluster-api-provider-azure_cluster_<name>` of Cluster API.
    pub(crate) fn show_cluster_controller(&self, body: &Value) -> bool {
        let (name, infra_id) = (&self.name, &self.infra_id);
        let tags = [
            format!("kubernetes.io_cluster.{infra_id}"),
            format!("sigs.k8s.io_cluster-api-provider-azure_cluster_{infra_id}"),
            format!("sigs.k8s.io_cluster-api-provider-azure_cluster_{name}"),
        ];
        tags.iter().any(|tag| body["tags"][tag].as_str() == Some("owned"))
    }

    /// Adds the tags to a body.
    pub fn add_to(&self, body: &mut Value) {
        let tags = body.as_object_mut().map(|body| body.entry("tags").or_insert_with(|| json!({})));
        if let Some(Value::Object(tags)) = tags {
            tags.extend(self.pairs().map(|(tag, value)| (tag.to_owned(), value.into())));
        }
    }
}

/// The value of a tag. Azure compares the names of tags without case.
fn tag_of<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    let tags = body.get("tags")?.as_object()?;
    let (_, value) = tags.iter().find(|(it, _)| it.eq_ignore_ascii_case(name))?;
    value.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_the_cluster_s_controllers_are_known_by_their_tag() {
        let tags = OwnershipTags::new("harbour", "harbour-x");
        let tagged = |tags_of_body| tags.show_cluster_controller(&json!({ "tags": tags_of_body }));
        assert!(tagged(json!({ "kubernetes.io_cluster.harbour-x": "owned" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-x": "shared" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-xy": "owned" })));
        assert!(!tagged(json!({})));
    }
}
