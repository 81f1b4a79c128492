//! The changes that bring the live objects of a hosted cluster to the desired state.
//!
//! The comparison covers every desired field and does not rely on the desired-state hash, so manual
//! changes are detected. Fields that other managers added are left alone, except in objects that
//! determine which credential a pod mounts. lanyard owns those fields exclusively and removes
//! additions: a foreign parameter could make a class read another vault.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use crate::objects::{
    DesiredObject, ObjectKey, ObservedObject, OwnedKind, has_ownership_labels,
    set_desired_state_hash,
};

mod compare;
mod field_path;
mod mirrored;
mod plan;
mod quantity;
#[cfg(test)]
mod tests;

pub use field_path::{FieldPath, FieldPathSegment, removal_patch};
pub use plan::format_plan;

use compare::{differences, unowned_fields};
use mirrored::{stale_mirrored_fields, with_live_fields};

/// The change of one object.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ObjectChange {
    /// The object does not exist: apply it.
    Create {
        /// The desired object.
        object: DesiredObject,
    },
    /// The object differs: apply it.
    Apply {
        /// The desired object.
        object: DesiredObject,
        /// The fields that differ from the desired object.
        differing_fields: Vec<FieldPath>,
        /// Fields of other managers below fields that lanyard owns exclusively. Server-side apply
        /// keeps them, so [`removal_patch`] removes them.
        unowned_fields: Vec<FieldPath>,
        /// Whether to force the apply and take over fields that other managers own, because lanyard
        /// owns the object.
        force: bool,
        /// `metadata.resourceVersion` of the compared object.
        resource_version: String,
    },
    /// The object is lanyard's and either no longer desired or can never become the desired one:
    /// delete exactly this object, identified by uid and resource version.
    Prune {
        /// The identity of the object.
        key: ObjectKey,
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion` of the compared object.
        resource_version: String,
    },
    /// The object was created by another manager and differs: leave it unchanged. An apply would
    /// make it lanyard's, and it would be deleted with the cluster.
    Unowned {
        /// The desired object.
        object: DesiredObject,
        /// The fields that differ from the desired object, lanyard's labels included.
        differing_fields: Vec<FieldPath>,
    },
    /// The object matches the desired state or is being deleted: write nothing.
    Unchanged {
        /// The identity of the object.
        key: ObjectKey,
    },
}

/// The objects that may be deleted if they are not desired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PruneScope<'a> {
    /// No objects.
    #[default]
    Never,
    /// Objects that have the label of this cluster and are owned by this HostedControlPlane, except
    /// those that could not be rendered.
    OwnedBy {
        /// The label value, in the format of [`crate::objects::cluster_label`].
        cluster_label: &'a str,
        /// `metadata.uid` of the HostedControlPlane.
        owner_uid: &'a str,
        /// The objects that are desired but could not be rendered.
        unrendered: &'a BTreeSet<ObjectKey>,
    },
}

impl ObjectChange {
    /// The identity of the object.
    pub const fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { object } | Self::Apply { object, .. } | Self::Unowned { object, .. } => {
                &object.key
            }
            Self::Prune { key, .. } | Self::Unchanged { key } => key,
        }
    }

    /// Returns whether the change writes to the API server.
    pub const fn is_write(&self) -> bool {
        !matches!(self, Self::Unchanged { .. } | Self::Unowned { .. })
    }
}

/// Returns the changes in the order in which they are applied: desired objects in the order of
/// their steps, then deletions of undesired objects in the opposite order.
pub fn diff_objects(
    observed: &BTreeMap<ObjectKey, ObservedObject>,
    desired: &[DesiredObject],
    pruning: PruneScope<'_>,
) -> Vec<ObjectChange> {
    let wanted: BTreeSet<_> = desired.iter().map(|object| &object.key).collect();
    let changes = desired.iter().map(|object| plan_change(object, observed.get(&object.key)));
    let superfluous = observed
        .values()
        .rev()
        .filter(|object| !wanted.contains(&object.key) && pruning.includes(object))
        .map(prune_change);
    changes.chain(superfluous).collect()
}

fn prune_change(object: &ObservedObject) -> ObjectChange {
    ObjectChange::Prune {
        key: object.key.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
    }
}

/// Returns whether the live object must be deleted and recreated: a Deployment's selector and a
/// RoleBinding's role are immutable. The next comparison recreates the object.
fn requires_recreation(desired: &DesiredObject, live: &Value) -> bool {
    let field = match desired.key.kind {
        OwnedKind::Deployment => "/spec/selector",
        OwnedKind::RoleBinding => "/roleRef",
        _ => return false,
    };
    let [desired, live] =
        [&desired.value, live].map(|it| it.pointer(field).unwrap_or(&Value::Null));
    // The API server omits empty lists, so an absent list equals an empty one.
    !differences(live, desired).is_empty() || !differences(desired, live).is_empty()
}

fn plan_change(desired: &DesiredObject, observed: Option<&ObservedObject>) -> ObjectChange {
    let Some(observed) = observed else { return ObjectChange::Create { object: desired.clone() } };
    let keep = || ObjectChange::Unchanged { key: desired.key.clone() };
    if observed.is_deleting() {
        return keep();
    }
    let merged = with_live_vault_reader(desired, &observed.value)
        .or_else(|| with_live_fields(desired, &observed.value));
    let object = merged.as_ref().unwrap_or(desired);
    let why = differences(&observed.value, &object.value);
    let is_by_right = is_owned_by_cluster(object, observed);
    // Fields that other managers add to an object that lanyard does not own are left alone.
    let whole = if is_by_right { exclusive_fields(object.key.kind) } else { &[] };
    let mut foreign = whole
        .iter()
        .flat_map(|field| unowned_fields(&observed.value, &object.value, field))
        .collect::<Vec<_>>();
    if is_by_right {
        foreign.extend(stale_mirrored_fields(object, &observed.value));
    }
    if why.is_empty() && foreign.is_empty() {
        return keep();
    }
    let is_shared = object.key.kind == OwnedKind::Namespace;
    if !is_by_right && !observed.has_our_field_manager && !is_shared {
        return ObjectChange::Unowned { object: object.clone(), differing_fields: why };
    }
    if is_by_right && requires_recreation(object, &observed.value) {
        return prune_change(observed);
    }
    ObjectChange::Apply {
        force: is_by_right,
        object: object.clone(),
        differing_fields: why,
        unowned_fields: foreign,
        resource_version: observed.resource_version.clone(),
    }
}

/// Returns the fields of a kind that lanyard owns exclusively.
const fn exclusive_fields(kind: OwnedKind) -> &'static [&'static str] {
    match kind {
        OwnedKind::SecretProviderClass => &["spec"],
        OwnedKind::ConfigMap => &["data", "binaryData"],
        OwnedKind::Secret => &["data"],
        _ => &[],
    }
}

/// Returns whether lanyard created the object for this cluster. A namespace is never owned
/// exclusively, because administrators modify it, too.
fn is_owned_by_cluster(desired: &DesiredObject, observed: &ObservedObject) -> bool {
    let label = desired
        .value
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(crate::objects::CLUSTER_LABEL).and_then(Value::as_str));
    desired.key.kind != OwnedKind::Namespace
        && label.is_some_and(|label| has_ownership_labels(&observed.value, label))
}

const VAULT_READER_POINTER: &str = "/spec/parameters/userAssignedIdentityID";

/// Returns the desired object with the vault reader of the live object, for the writer that does
/// not decide about the reader.
///
/// Two operators may be configured with different readers, or one of them with none. If both
/// enforced their value, they would overwrite each other forever. The HostedCluster operator is
/// configured with the reader and passes it on to the other operator, so its value takes
/// precedence; the other one's copy may be outdated.
fn with_live_vault_reader(desired: &DesiredObject, live: &Value) -> Option<DesiredObject> {
    // A class without a reader is equivalent to a class with an empty reader.
    let reader = live.pointer(VAULT_READER_POINTER).and_then(Value::as_str).unwrap_or_default();
    let own =
        desired.value.pointer(VAULT_READER_POINTER).filter(|_| desired.keeps_live_vault_reader)?;
    if own == reader {
        return None;
    }
    let mut merged = desired.clone();
    *merged.value.pointer_mut(VAULT_READER_POINTER)? = Value::from(reader);
    if merged.value.pointer("/metadata/annotations")?.get(DESIRED_STATE_HASH_ANNOTATION).is_some() {
        set_desired_state_hash(&mut merged.value);
    }
    Some(merged)
}

impl PruneScope<'_> {
    /// The namespace and the HostedControlPlane are deleted with the cluster and never pruned.
    fn includes(self, object: &ObservedObject) -> bool {
        let Self::OwnedBy { cluster_label, owner_uid, unrendered } = self else { return false };
        let owners = object.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let is_owned = owners.into_iter().flatten().any(|owner| {
            !owner_uid.is_empty() && owner.get("uid").and_then(Value::as_str) == Some(owner_uid)
        });
        !matches!(object.key.kind, OwnedKind::Namespace | OwnedKind::HostedControlPlane)
            && !object.is_deleting()
            && !unrendered.contains(&object.key)
            && is_owned
            && has_ownership_labels(&object.value, cluster_label)
    }
}
