//! The objects in the namespace of a HostedCluster that its control plane needs, too.
//!
//! The HostedCluster refers to them by names that its author chooses. Their copies in the namespace
//! of the control plane have fixed names, as in HyperShift.

use std::collections::BTreeMap;
use std::fmt;

use lanyard_api::HostedCluster;
use serde_json::{Value, json};

use super::inputs::ControlPlaneOwner;
use super::ownership_marks::add_ownership_marks;
use super::{ApplyStep, DesiredObject, ObjectKey, ObjectWriter, OwnedKind};
use crate::hosted_cluster::ValidatedHostedCluster;

/// An object in the namespace of a HostedCluster that is copied for the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferencedObject {
    /// `spec.pullSecret`: the credentials of image registries.
    PullSecret,
    /// `spec.sshKey`: the public SSH keys of the nodes.
    SshKey,
    /// `spec.additionalTrustBundle`: further certificate authorities.
    TrustBundle,
}

/// The value that is copied: base64 in a Secret, text in a `ConfigMap`. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ReferencedValue(String);

/// The values of the objects that were found.
pub type ReferencedValues = BTreeMap<ReferencedObject, ReferencedValue>;

impl fmt::Debug for ReferencedValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReferencedValue")
    }
}

impl ReferencedValue {
    /// Returns the value of the copied key of a Secret or `ConfigMap`; `None` without the key.
    pub fn from_json(object: ReferencedObject, source: &Value) -> Option<Self> {
        source.get("data")?.get(object.data_key())?.as_str().map(|text| Self(text.to_owned()))
    }
}

impl ReferencedObject {
    /// All referenced objects.
    pub const ALL: [Self; 3] = [Self::PullSecret, Self::SshKey, Self::TrustBundle];

    /// Returns the field of `spec` with the reference.
    pub const fn field(self) -> &'static str {
        match self {
            Self::PullSecret => "pullSecret",
            Self::SshKey => "sshKey",
            Self::TrustBundle => "additionalTrustBundle",
        }
    }

    /// Returns the kind of the object and of its copy.
    pub const fn kind(self) -> OwnedKind {
        match self {
            Self::PullSecret | Self::SshKey => OwnedKind::Secret,
            Self::TrustBundle => OwnedKind::ConfigMap,
        }
    }

    /// Returns the key of `data` that is copied.
    pub const fn data_key(self) -> &'static str {
        match self {
            Self::PullSecret => ".dockerconfigjson",
            Self::SshKey => "id_rsa.pub",
            Self::TrustBundle => "ca-bundle.crt",
        }
    }

    const fn copy_name(self) -> &'static str {
        match self {
            Self::PullSecret => "pull-secret",
            Self::SshKey => "ssh-key",
            Self::TrustBundle => "user-ca-bundle",
        }
    }

    const fn secret_type(self) -> Option<&'static str> {
        match self {
            Self::PullSecret => Some("kubernetes.io/dockerconfigjson"),
            Self::SshKey => Some("Opaque"),
            Self::TrustBundle => None,
        }
    }

    /// Returns the name of the object that the HostedCluster refers to; `None` without a reference.
    pub fn source_name(self, wire: &HostedCluster) -> Option<&str> {
        let reference = wire.spec.as_ref()?.unknown.get(self.field())?;
        reference.get("name")?.as_str().filter(|name| !name.is_empty())
    }

    /// Returns the identity of the copy.
    pub fn copy_key(self, control_plane_namespace: &str) -> ObjectKey {
        ObjectKey {
            kind: self.kind(),
            namespace: Some(control_plane_namespace.to_owned()),
            name: self.copy_name().to_owned(),
        }
    }

    /// Returns the reference of the HostedControlPlane: to the copy, or an empty one where the API
    /// requires the field.
    pub(super) fn copied_reference(self, wire: &HostedCluster) -> Option<Value> {
        let copy = || json!({"name": self.copy_name()});
        match self {
            Self::PullSecret => Some(copy()),
            Self::SshKey => Some(self.source_name(wire).map_or_else(|| json!({}), |_| copy())),
            Self::TrustBundle => self.source_name(wire).map(|_| copy()),
        }
    }
}

/// Adds the copies of the referenced objects, in the order in which objects are applied.
///
/// The copies have no desired-state hash: it would be a digest of a credential in an annotation.
pub fn add_reference_copies(
    desired: &mut Vec<DesiredObject>,
    cluster: &ValidatedHostedCluster,
    owner: &ControlPlaneOwner,
    values: &ReferencedValues,
) {
    let Some(owner) = owner.owner_reference(cluster) else { return };
    for (object, ReferencedValue(text)) in values {
        let key = object.copy_key(&cluster.control_plane_namespace());
        let info = key.kind.info();
        let mut value = json!({
            "apiVersion": info.api_version,
            "kind": info.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "ownerReferences": [owner]},
            "data": {(object.data_key()): text},
        });
        if let Some(secret_type) = object.secret_type() {
            value["type"] = json!(secret_type);
        }
        add_ownership_marks(&mut value, cluster);
        desired.push(DesiredObject {
            key,
            writer: ObjectWriter::HostedCluster,
            step: ApplyStep::Configuration,
            value,
            keeps_live_vault_reader: false,
        });
    }
    desired.sort_by(|one, other| {
        (one.step, &one.key, one.writer).cmp(&(other.step, &other.key, other.writer))
    });
}
