//! The objects that lanyard writes for a hosted cluster: their content, their writers and the order
//! in which they are applied.
//!
//! As in HyperShift, there are two writers: one reconciles HostedClusters and one reconciles
//! HostedControlPlanes. One process may be both; each writer has its own field manager.

use std::fmt;

use serde_json::Value;

mod compose;
mod control_plane;
mod inputs;
mod kind;
mod mirrored_metadata;
mod ownership_marks;
mod reference_copies;

pub use compose::{desired_objects, unrendered_objects};
pub use inputs::{ControlPlaneOwner, DesiredObjectInputs, OperatorMode, VolumeRefresh};
pub use kind::{KindInfo, OwnedKind};
pub(crate) use mirrored_metadata::{
    COPIED_RESTART_DATE_ANNOTATION, RESTART_DATE_ANNOTATION, is_mirrored_annotation,
    is_mirrored_label,
};
pub(crate) use ownership_marks::set_desired_state_hash;
pub use ownership_marks::{
    CLUSTER_LABEL, MANAGED_BY_LABEL, MANAGED_BY_VALUE, cluster_label, has_ownership_labels,
    without_ownership_marks,
};
pub use reference_copies::{
    ReferencedObject, ReferencedValue, ReferencedValues, add_reference_copies,
};

/// The identity of an object: kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: OwnedKind,
    /// `metadata.namespace`; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectWriter {
    /// The controller that reconciles HostedClusters.
    HostedCluster,
    /// The controller that reconciles HostedControlPlanes.
    ControlPlane,
}

/// The step in which an object is applied. Objects of a later step depend on those of earlier
/// steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApplyStep {
    Namespace,
    /// The operator's own permissions in the namespace, which the writes of all later steps need.
    NamespaceAccess,
    /// The HostedControlPlane, which owns the objects of all later steps.
    ControlPlane,
    /// `ServiceAccounts` and `RoleBindings`.
    Access,
    /// SecretProviderClasses and configurations, which pods mount.
    Configuration,
    Workload,
}

/// An object to apply. The debug output omits the content, which may be a credential.
#[derive(Clone, PartialEq)]
pub struct DesiredObject {
    /// The identity of the object.
    pub key: ObjectKey,
    /// The writer of the object.
    pub writer: ObjectWriter,
    /// The step in which the object is applied.
    pub step: ApplyStep,
    /// The whole apply configuration: every field that the writer owns.
    pub value: Value,
    /// Whether this writer keeps the vault reader of the live object, because the other writer
    /// decides about it.
    pub keeps_live_vault_reader: bool,
}

/// A live object. The debug output omits the content, which may be a credential.
#[derive(Clone, PartialEq)]
pub struct ObservedObject {
    /// The identity of the object.
    pub key: ObjectKey,
    /// The object without `metadata.managedFields`.
    pub value: Value,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Whether one of lanyard's field managers owns a field of the object. This identifies
    /// lanyard's objects even if their labels were changed.
    pub has_our_field_manager: bool,
}

impl ObjectWriter {
    /// Both writers.
    pub const ALL: [Self; 2] = [Self::HostedCluster, Self::ControlPlane];

    /// Returns the name of the writer's field manager for server-side apply.
    pub const fn field_manager(self) -> &'static str {
        match self {
            Self::HostedCluster => "lanyard-hosted-cluster",
            Self::ControlPlane => "lanyard-control-plane",
        }
    }

    /// Returns whether this is the field manager of one of the writers.
    pub fn is_our_field_manager(name: &str) -> bool {
        Self::ALL.iter().any(|writer| writer.field_manager() == name)
    }
}

impl ObjectKey {
    /// Returns the key of a JSON object; `None` if lanyard does not write objects of its kind.
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

impl fmt::Debug for DesiredObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, writer, step, .. } = self;
        write!(formatter, "DesiredObject({key}, {writer:?}, {step:?})")
    }
}

impl fmt::Debug for ObservedObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, resource_version, .. } = self;
        write!(formatter, "ObservedObject({key}, version {resource_version})")
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
    /// Converts an object from the API server; `None` if lanyard does not write objects of its kind
    /// or if required metadata is missing.
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

    /// Returns whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
    }
}

#[cfg(test)]
mod tests;
