//! The inputs for rendering objects, in addition to the validated cluster.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_vocabulary::EntraClientId;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::control_plane_endpoint::ControlPlaneEndpoint;
use crate::hosted_cluster::kms_api_version::KmsApiVersion;
use crate::templates::WorkloadTemplates;

/// The inputs for rendering objects, in addition to the validated cluster.
#[derive(Debug, Clone)]
pub struct DesiredObjectInputs<'a> {
    /// The HostedCluster as it was read. Its unknown fields are copied to the HostedControlPlane.
    pub wire: &'a HostedCluster,
    /// Whether the operator writes objects.
    pub mode: OperatorMode,
    /// The HostedControlPlane that owns the objects.
    pub owner: ControlPlaneOwner,
    /// The client id of the managed identity with which the nodes of the management cluster read
    /// the vault.
    pub vault_reader: Option<EntraClientId>,
    /// The workload templates.
    pub templates: &'a WorkloadTemplates,
    /// Whether mounted volumes follow changes of their class.
    pub refresh: VolumeRefresh,
    /// The address of the router to private vaults, if the cluster has one.
    pub private_router: Option<IpAddr>,
    /// The address of the hosted API server, from the status of the HostedControlPlane.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The KMS API version of the live `EncryptionConfiguration`.
    pub kms_api_version: KmsApiVersion,
}

/// The objects that the operator writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperatorMode {
    /// All objects and the identity status.
    #[default]
    All,
    /// Only the identity status. Another operator writes the objects.
    IdentityOnly,
}

/// The HostedControlPlane as the owner of objects.
///
/// Kubernetes requires an owner in the same namespace, so the HostedCluster cannot own these
/// objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlPlaneOwner {
    /// The control plane does not exist yet. Only it and its namespace are rendered; all other
    /// objects need its uid.
    #[default]
    Absent,
    /// The control plane exists and has this uid.
    Known(String),
    /// The uid is unknown because no API server is available: owner references have an empty uid,
    /// as in HyperShift's fixtures.
    WithoutUid,
}

/// Whether mounted volumes follow changes of their class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolumeRefresh {
    /// Rotation is enabled: the driver periodically reads the class and the vault again.
    #[default]
    Polled,
    /// Rotation is disabled: the volume keeps its content until the pod is deleted.
    AtMount,
}

impl ControlPlaneOwner {
    /// Returns the uid, if it is known.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Known(uid) => Some(uid),
            Self::Absent | Self::WithoutUid => None,
        }
    }

    pub(super) fn owner_reference(
        &self,
        cluster: &ValidatedHostedCluster,
    ) -> Option<OwnerReference> {
        let uid = match self {
            Self::Absent => return None,
            Self::Known(uid) => uid.clone(),
            Self::WithoutUid => String::new(),
        };
        Some(OwnerReference {
            api_version: HostedControlPlane::API_VERSION.to_owned(),
            kind: HostedControlPlane::KIND.to_owned(),
            name: cluster.name.clone(),
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        })
    }
}
