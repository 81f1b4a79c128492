//! Every object that is written for a hosted cluster: what it holds, who writes it, and in which
//! order.
//!
//! There are two writers, as in the reference: the one that looks at HostedClusters and the one
//! that looks at their control planes. One program may be both; their fields stay apart by the name
//! of the manager.

use std::fmt;

use serde_json::Value;

mod compose;
mod control_plane;
mod inputs;
mod kind;
mod ownership_marks;

pub use compose::desired_objects;
pub use inputs::{ControlPlaneOwner, DesiredObjectInputs, OperatorMode, VolumeRefresh};
pub use kind::{KindInfo, OwnedKind};
pub(crate) use ownership_marks::set_desired_state_hash;
pub use ownership_marks::{
    CLUSTER_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, cluster_label, has_ownership_labels,
    without_ownership_marks,
};

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: OwnedKind,
    /// `metadata.namespace`; nothing for a kind without namespaces.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
}

/// Who writes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectWriter {
    /// The one that looks at HostedClusters.
    HostedCluster,
    /// The one that looks at HostedControlPlanes.
    ControlPlane,
}

/// When an object is written. What comes later needs what comes earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApplyStep {
    /// The namespace.
    Namespace,
    /// The control plane, which owns everything after it.
    ControlPlane,
    /// Accounts and their rights.
    Access,
    /// Classes and configurations, which pods mount.
    Configuration,
    /// Workloads.
    Workload,
}

/// An object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredObject {
    /// Which object.
    pub key: ObjectKey,
    /// Who writes it.
    pub writer: ObjectWriter,
    /// When.
    pub step: ApplyStep,
    /// The whole apply configuration: every field that the writer owns.
    pub value: Value,
    /// Whether the other writer decides about the reader of the vault, and this one follows.
    pub keeps_live_vault_reader: bool,
}

/// An object as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// Which object.
    pub key: ObjectKey,
    /// The object without `metadata.managedFields`.
    pub value: Value,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Whether a field of it belongs to one of our field managers: it was written here, whatever
    /// became of its labels.
    pub has_our_field_manager: bool,
}

impl ObjectWriter {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HostedCluster, Self::ControlPlane];

    /// The name under which the API server keeps what it owns.
    pub const fn field_manager(self) -> &'static str {
        match self {
            Self::HostedCluster => "lanyard-hosted-cluster",
            Self::ControlPlane => "lanyard-control-plane",
        }
    }

    /// Whether a field manager is one of the two.
    pub fn is_our_field_manager(name: &str) -> bool {
        Self::ALL.iter().any(|writer| writer.field_manager() == name)
    }
}

impl ObjectKey {
    /// The key of an object, if it is of a kind that is written here.
    pub fn from_json(object: &Value) -> Option<Self> {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        let kind = OwnedKind::parse(text("/apiVersion")?, text("/kind")?)?;
        Some(Self {
            kind,
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name")?.to_owned(),
        })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.info().kind;
        match &self.namespace {
            Some(namespace) => write!(formatter, "{kind} {namespace}/{}", self.name),
            None => write!(formatter, "{kind} {}", self.name),
        }
    }
}

impl ObservedObject {
    /// Takes an object as the API server gives it; nothing if it is of a kind that is not written
    /// here or lacks what every stored object has.
    pub fn from_json(mut value: Value) -> Option<Self> {
        let key = ObjectKey::from_json(&value)?;
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        let managed_fields = metadata.remove("managedFields");
        let entries = managed_fields.as_ref().and_then(Value::as_array).into_iter().flatten();
        let mut managers = entries.filter_map(|it| it.get("manager").and_then(Value::as_str));
        let is_written_here = managers.any(ObjectWriter::is_our_field_manager);
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
        let (resource_version, uid) = (text("resourceVersion")?, text("uid")?);
        Some(Self { key, value, resource_version, uid, has_our_field_manager: is_written_here })
    }

    /// Whether somebody asked the API server to delete it.
    pub fn is_deleting(&self) -> bool {
        self.value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
    }
}

#[cfg(test)]
mod tests;
