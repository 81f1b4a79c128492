//! The tags on the resources that lanyard creates.

use serde_json::{Value, json};

use lanyard_vocabulary::InfraId;

use crate::ccoctl_ownership::CcoctlOwner;
use crate::cluster_identifiers::ClusterName;

/// The tag with the name of the hosted cluster. Tag names must not contain a slash, so it is not a Kubernetes
/// label.
const CLUSTER_TAG: &str = "lanyard-cluster";
/// The tag with the infrastructure id.
const INFRA_ID_TAG: &str = "lanyard-infra-id";

/// The tags that show which cluster a resource belongs to. They are set when a resource is created, and are not
/// compared later: an imported resource has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipTags {
    name: String,
    infra_id: String,
    ccoctl_owner: Option<CcoctlOwner>,
}

impl OwnershipTags {
    /// The tags of a cluster.
    pub fn new(name: &ClusterName, infra_id: &InfraId) -> Self {
        Self { name: name.to_string(), infra_id: infra_id.to_string(), ccoctl_owner: None }
    }

    /// The same tags; resources that ccoctl created for this owner count as tagged.
    #[must_use]
    pub fn with_ccoctl_owner(mut self, owner: CcoctlOwner) -> Self {
        self.ccoctl_owner = Some(owner);
        self
    }

    /// Whether the body of a resource has the tags.
    pub fn are_on(&self, body: &Value) -> bool {
        if self.ccoctl_owner.as_ref().is_some_and(|owner| owner.owns(body)) {
            return true;
        }
        let tags = body.get("tags").and_then(Value::as_object);
        // Azure compares the names of tags without case.
        let tag = |name: &str| {
            let found = tags?.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
            found.and_then(|(_, value)| value.as_str())
        };
        tag(CLUSTER_TAG) == Some(&self.name) && tag(INFRA_ID_TAG) == Some(&self.infra_id)
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
    pub(crate) fn add_to(&self, body: &mut Value) {
        let tags = body.as_object_mut().map(|body| body.entry("tags").or_insert_with(|| json!({})));
        if let Some(Value::Object(tags)) = tags {
            tags.insert(CLUSTER_TAG.to_owned(), self.name.clone().into());
            tags.insert(INFRA_ID_TAG.to_owned(), self.infra_id.clone().into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_the_cluster_s_controllers_are_known_by_their_tag() {
        let tags = OwnershipTags::new(&"harbour".parse().unwrap(), &"harbour-x".parse().unwrap());
        let tagged = |tags_of_body| tags.show_cluster_controller(&json!({ "tags": tags_of_body }));
        assert!(tagged(json!({ "kubernetes.io_cluster.harbour-x": "owned" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-x": "shared" })));
        assert!(!tagged(json!({ "kubernetes.io_cluster.harbour-xy": "owned" })));
        assert!(!tagged(json!({})));
    }
}
