//! Facts of existing objects that the desired objects depend on.

use kube::api::DynamicObject;
use lanyard_desired::hosted_cluster::control_plane_endpoint::ControlPlaneEndpoint;
use lanyard_desired::hosted_cluster::encryption_config::ENCRYPTION_CONFIG_SECRET;
use lanyard_desired::hosted_cluster::key_rotation::read_kms_api_version;
use lanyard_desired::hosted_cluster::kms_api_version::KmsApiVersion;
use lanyard_desired::{ObjectKey, OwnedKind};
use serde::Deserialize;

/// Facts of an existing object that the desired objects depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RenderFacts {
    /// The address of the hosted API server, from the status of a HostedControlPlane.
    pub(crate) control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The KMS API version of an `EncryptionConfiguration`.
    pub(crate) kms_api_version: KmsApiVersion,
}

impl RenderFacts {
    /// The facts of an object with its status; `None` for most objects.
    pub(super) fn of(key: &ObjectKey, object: &DynamicObject) -> Option<Box<Self>> {
        let facts = match key.kind {
            OwnedKind::HostedControlPlane => {
                let endpoint = object.data.pointer("/status/controlPlaneEndpoint")?;
                let endpoint = ControlPlaneEndpoint::deserialize(endpoint).ok()?;
                Some(endpoint).filter(|endpoint| !endpoint.host.is_empty()).map(|endpoint| Self {
                    control_plane_endpoint: Some(endpoint),
                    ..Self::default()
                })
            }
            OwnedKind::Secret if key.name == ENCRYPTION_CONFIG_SECRET => {
                let kms_api_version = read_kms_api_version(&object.data);
                Some(Self { kms_api_version, ..Self::default() })
            }
            _ => None,
        };
        facts.map(Box::new)
    }
}
