//! What the objects of a cluster need to know beyond the cluster, and how they are named.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lanyard_api::HostedCluster;
use lanyard_vocabulary::EntraClientId;

use super::ValidatedHostedCluster;

/// What the objects need to know beyond the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderContext {
    /// The client id of the managed identity with which the nodes of the management cluster read
    /// the vault. Without one the identity that the system assigned to the node is used.
    pub vault_reader: Option<EntraClientId>,
    /// The owner of the objects. It is in the namespace of the control plane, because an owner
    /// in another namespace owns nothing; the HostedCluster is in another one.
    pub owner: Option<OwnerReference>,
}

/// Name, place, owner and the way back to the cluster.
pub(super) fn object_metadata(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
    name: &str,
) -> ObjectMeta {
    let annotation = (HostedCluster::CLUSTER_ANNOTATION.to_owned(), cluster.namespaced_name());
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(cluster.control_plane_namespace()),
        annotations: Some(BTreeMap::from([annotation])),
        owner_references: names.owner.clone().map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}
