//! What has to change so that a hosted cluster has what it should have.
//!
//! The decision compares what is there with what is desired, field by field, and not only the mark
//! of the last desired state: whatever somebody changed by hand is seen. Fields that others added
//! are left alone, except in objects that say what a pod mounts, which are ours as a whole: there a
//! foreign parameter is a hole through which a class could read another vault, so it is taken away.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use crate::objects::{
    DesiredObject, ObjectKey, ObservedObject, OwnedKind, has_ownership_labels,
    set_desired_state_hash,
};

mod compare;
mod field_path;
mod plan;
mod quantity;
#[cfg(test)]
mod tests;

pub use field_path::{FieldPath, FieldPathSegment, removal_patch};
pub use plan::format_plan;

use compare::{differences, unowned_fields};

/// What has to be done about one object.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ObjectChange {
    /// It is not there: apply it.
    Create {
        /// The object.
        object: DesiredObject,
    },
    /// It differs: apply it.
    Apply {
        /// The object.
        object: DesiredObject,
        /// The fields that differ from what is desired.
        differing_fields: Vec<FieldPath>,
        /// Fields of others in an object that is ours as a whole. Applying leaves them, so they are
        /// taken away by [`removal_patch`].
        unowned_fields: Vec<FieldPath>,
        /// Whether fields that somebody else has claimed are taken back: they are ours by right.
        force: bool,
        /// `metadata.resourceVersion` of what was compared.
        resource_version: String,
    },
    /// It is ours, and not desired any more or never to become what is desired: delete this one
    /// object and no other of its name.
    Prune {
        /// Which object.
        key: ObjectKey,
        /// `metadata.uid`.
        uid: String,
        /// `metadata.resourceVersion` of what was looked at.
        resource_version: String,
    },
    /// Somebody else made it, and it is not as it is desired: it is left as it is. Applying to it
    /// would make it ours, and it would go with the cluster.
    Unowned {
        /// The object.
        object: DesiredObject,
        /// The fields that differ from what is desired, our labels among them.
        differing_fields: Vec<FieldPath>,
    },
    /// It is as it should be, or on its way out: nothing is written.
    Unchanged {
        /// Which object.
        key: ObjectKey,
    },
}

/// Which objects may be deleted when they are not desired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PruneScope<'a> {
    /// None.
    #[default]
    Never,
    /// Those that bear the label of this cluster and are owned by this control plane.
    OwnedBy {
        /// The label, as [`crate::objects::cluster_label`].
        cluster_label: &'a str,
        /// `metadata.uid` of the HostedControlPlane.
        owner_uid: &'a str,
    },
}

impl ObjectChange {
    /// Which object.
    pub const fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { object } | Self::Apply { object, .. } | Self::Unowned { object, .. } => {
                &object.key
            }
            Self::Prune { key, .. } | Self::Unchanged { key } => key,
        }
    }

    /// Whether something is written.
    pub const fn is_write(&self) -> bool {
        !matches!(self, Self::Unchanged { .. } | Self::Unowned { .. })
    }
}

/// What has to change, in the order in which it is done: what is desired in the order of its steps,
/// then what is not desired any more, in the opposite order.
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

/// Whether what is there can never become what is desired: the API server changes neither which
/// pods a deployment selects nor which role a binding gives. It is made anew by the next comparison.
fn requires_recreation(desired: &DesiredObject, live: &Value) -> bool {
    let field = match desired.key.kind {
        OwnedKind::Deployment => "/spec/selector",
        OwnedKind::RoleBinding => "/roleRef",
        _ => return false,
    };
    let [desired, live] =
        [&desired.value, live].map(|it| it.pointer(field).unwrap_or(&Value::Null));
    // An empty list that is not stored is no difference, as anywhere else.
    !differences(live, desired).is_empty() || !differences(desired, live).is_empty()
}

fn plan_change(desired: &DesiredObject, observed: Option<&ObservedObject>) -> ObjectChange {
    let Some(observed) = observed else { return ObjectChange::Create { object: desired.clone() } };
    let keep = || ObjectChange::Unchanged { key: desired.key.clone() };
    if observed.is_deleting() {
        return keep();
    }
    let followed = with_live_vault_reader(desired, &observed.value);
    let object = followed.as_ref().unwrap_or(desired);
    let why = differences(&observed.value, &object.value);
    let is_by_right = is_owned_by_cluster(object, observed);
    // What others put into an object that is not ours is theirs.
    let whole = if is_by_right { exclusive_fields(object.key.kind) } else { &[] };
    let foreign = whole
        .iter()
        .flat_map(|field| unowned_fields(&observed.value, &object.value, field))
        .collect::<Vec<_>>();
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

/// The fields of a kind that are ours as a whole.
const fn exclusive_fields(kind: OwnedKind) -> &'static [&'static str] {
    match kind {
        OwnedKind::SecretProviderClass => &["spec"],
        OwnedKind::ConfigMap => &["data", "binaryData"],
        OwnedKind::Secret => &["data"],
        _ => &[],
    }
}

/// What we made for this cluster is ours. A namespace is shared with whoever administers it.
fn is_owned_by_cluster(desired: &DesiredObject, observed: &ObservedObject) -> bool {
    let label = desired
        .value
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(crate::objects::CLUSTER_LABEL).and_then(Value::as_str));
    desired.key.kind != OwnedKind::Namespace
        && label.is_some_and(|label| has_ownership_labels(&observed.value, label))
}

const VAULT_READER_POINTER: &str = "/spec/parameters/userAssignedIdentityID";

/// The desired object with the reader that is there, for the writer that does not decide about it.
///
/// Two operators may be told different readers, or one of them none. If both insisted, they would
/// write for ever in turn. The operator of HostedClusters is configured with the reader and hands it
/// on to the other, so its value stands and the other one's is a copy, perhaps an old one.
fn with_live_vault_reader(desired: &DesiredObject, live: &Value) -> Option<DesiredObject> {
    // A class without a reader means the same as one with an empty one.
    let reader = live.pointer(VAULT_READER_POINTER).and_then(Value::as_str).unwrap_or_default();
    let own =
        desired.value.pointer(VAULT_READER_POINTER).filter(|_| desired.keeps_live_vault_reader)?;
    if own == reader {
        return None;
    }
    let mut followed = desired.clone();
    *followed.value.pointer_mut(VAULT_READER_POINTER)? = Value::from(reader);
    if followed.value.pointer("/metadata/annotations")?.get(DESIRED_STATE_HASH_ANNOTATION).is_some()
    {
        set_desired_state_hash(&mut followed.value);
    }
    Some(followed)
}

impl PruneScope<'_> {
    /// The namespace and the control plane go with the cluster, never by comparison.
    fn includes(self, object: &ObservedObject) -> bool {
        let Self::OwnedBy { cluster_label, owner_uid } = self else { return false };
        let owners = object.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let is_owned = owners.into_iter().flatten().any(|owner| {
            !owner_uid.is_empty() && owner.get("uid").and_then(Value::as_str) == Some(owner_uid)
        });
        !matches!(object.key.kind, OwnedKind::Namespace | OwnedKind::HostedControlPlane)
            && !object.is_deleting()
            && is_owned
            && has_ownership_labels(&object.value, cluster_label)
    }
}
