//! The inputs and the metadata for rendering a cluster's objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lanyard_api::HostedCluster;
use lanyard_vocabulary::EntraClientId;

use super::ValidatedHostedCluster;
use super::control_plane_endpoint::ControlPlaneEndpoint;
use super::kms_api_version::KmsApiVersion;

/// The inputs for rendering a cluster's objects, in addition to the validated cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderContext {
    /// The client id of the managed identity with which the nodes of the management cluster read
    /// the vault. `None` means the system-assigned identity of the node.
    pub vault_reader: Option<EntraClientId>,
    /// The owner of the objects, in the namespace of the control plane. Kubernetes ignores owners
    /// in other namespaces, so the HostedCluster cannot be the owner.
    pub owner: Option<OwnerReference>,
    /// The address of the hosted API server, if it is known.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The KMS API version of the live `EncryptionConfiguration`.
    pub kms_api_version: KmsApiVersion,
}

/// Returns name, namespace, owner and the annotation with the cluster's namespace and name.
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
