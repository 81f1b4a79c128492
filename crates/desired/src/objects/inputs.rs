//! What the objects need to know beyond the cluster.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_vocabulary::EntraClientId;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::templates::WorkloadTemplates;

/// What the objects need to know beyond the cluster.
#[derive(Debug, Clone)]
pub struct DesiredObjectInputs<'a> {
    /// The HostedCluster as it came; its control plane gets fields that nobody here knows, too.
    pub wire: &'a HostedCluster,
    /// What is written at all.
    pub mode: OperatorMode,
    /// The control plane that owns the objects.
    pub owner: ControlPlaneOwner,
    /// The client id of the managed identity with which the nodes of the management cluster read
    /// the vault.
    pub vault_reader: Option<EntraClientId>,
    /// How the components run.
    pub templates: &'a WorkloadTemplates,
    /// What a mounted volume does when its class changes.
    pub refresh: VolumeRefresh,
    /// The address of the router to private vaults, where the cluster has one.
    pub private_router: Option<IpAddr>,
}

/// What the operator writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperatorMode {
    /// Everything.
    #[default]
    All,
    /// How the identities are, and no object: another operator writes those.
    IdentityOnly,
}

/// The control plane as the owner of objects.
///
/// An owner must be in the namespace of what it owns, so the HostedCluster can own nothing there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlPlaneOwner {
    /// It is not there yet. Only it and its namespace are desired; everything else waits for its
    /// uid.
    #[default]
    Absent,
    /// It is there, with this uid.
    Known(String),
    /// Nobody asks an API server: its uid stays empty, as in renderings of the reference.
    WithoutUid,
}

/// What a mounted volume does when its class changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VolumeRefresh {
    /// The driver reads the class and the vault again after a while: rotation is on.
    #[default]
    Polled,
    /// It stays as it was mounted, until the pod ends: rotation is off.
    AtMount,
}

impl ControlPlaneOwner {
    /// The uid, where there is one.
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
