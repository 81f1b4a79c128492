//! What has to change so that a hosted cluster has what it should have.
//!
//! The decision compares what is there with what is desired, field by field, and not only the mark
//! of the last desired state: whatever somebody changed by hand is seen. Fields that others added
//! are left alone, except in objects that say what a pod mounts, which are ours as a whole: there a
//! foreign parameter is a hole through which a class could read another vault, so it is taken away.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::hash::DESIRED_STATE_HASH;
use crate::objects::{DesiredObject, ObjectKey, ObservedObject, OwnedKind, is_ours, stamp};

mod compare;
mod path;
mod plan;
mod quantity;
#[cfg(test)]
mod tests;

pub use path::{FieldPath, Segment, removal_patch};
pub use plan::plan_text;

use compare::{differences, foreign_fields};

/// What has to be done about one object.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
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
        why: Vec<FieldPath>,
        /// Fields of others in an object that is ours as a whole. Applying leaves them, so they are
        /// taken away by [`removal_patch`].
        foreign: Vec<FieldPath>,
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
    Foreign {
        /// The object.
        object: DesiredObject,
        /// The fields that differ from what is desired, our labels among them.
        why: Vec<FieldPath>,
    },
    /// It is as it should be, or on its way out: nothing is written.
    Keep {
        /// Which object.
        key: ObjectKey,
    },
}

/// Which objects may be deleted when they are not desired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pruning<'a> {
    /// None.
    #[default]
    Never,
    /// Those that bear the label of this cluster and are owned by this control plane.
    Of {
        /// The label, as [`crate::objects::cluster_label`].
        cluster_label: &'a str,
        /// `metadata.uid` of the HostedControlPlane.
        owner_uid: &'a str,
    },
}

impl Change {
    /// Which object.
    pub const fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { object } | Self::Apply { object, .. } | Self::Foreign { object, .. } => {
                &object.key
            }
            Self::Prune { key, .. } | Self::Keep { key } => key,
        }
    }

    /// Whether something is written.
    pub const fn is_write(&self) -> bool {
        !matches!(self, Self::Keep { .. } | Self::Foreign { .. })
    }
}

/// What has to change, in the order in which it is done: what is desired in the order of its steps,
/// then what is not desired any more, in the opposite order.
pub fn diff(
    observed: &BTreeMap<ObjectKey, ObservedObject>,
    desired: &[DesiredObject],
    pruning: Pruning<'_>,
) -> Vec<Change> {
    let wanted: BTreeSet<_> = desired.iter().map(|object| &object.key).collect();
    let changes = desired.iter().map(|object| change(object, observed.get(&object.key)));
    let superfluous = observed
        .values()
        .rev()
        .filter(|object| !wanted.contains(&object.key) && pruning.concerns(object))
        .map(prune);
    changes.chain(superfluous).collect()
}

fn prune(object: &ObservedObject) -> Change {
    Change::Prune {
        key: object.key.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
    }
}

/// Whether what is there can never become what is desired: the API server changes neither which
/// pods a deployment selects nor which role a binding gives. It is made anew by the next comparison.
fn is_fixed(desired: &DesiredObject, live: &Value) -> bool {
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

fn change(desired: &DesiredObject, observed: Option<&ObservedObject>) -> Change {
    let Some(observed) = observed else { return Change::Create { object: desired.clone() } };
    let keep = || Change::Keep { key: desired.key.clone() };
    if observed.is_deleting() {
        return keep();
    }
    let followed = following(desired, &observed.value);
    let object = followed.as_ref().unwrap_or(desired);
    let why = differences(&observed.value, &object.value);
    let is_by_right = is_by_right(object, observed);
    // What others put into an object that is not ours is theirs.
    let whole = if is_by_right { whole(object.key.kind) } else { &[] };
    let foreign = whole
        .iter()
        .flat_map(|field| foreign_fields(&observed.value, &object.value, field))
        .collect::<Vec<_>>();
    if why.is_empty() && foreign.is_empty() {
        return keep();
    }
    let is_shared = object.key.kind == OwnedKind::Namespace;
    if !is_by_right && !observed.is_written_here && !is_shared {
        return Change::Foreign { object: object.clone(), why };
    }
    if is_by_right && is_fixed(object, &observed.value) {
        return prune(observed);
    }
    Change::Apply {
        force: is_by_right,
        object: object.clone(),
        why,
        foreign,
        resource_version: observed.resource_version.clone(),
    }
}

/// The fields of a kind that are ours as a whole.
const fn whole(kind: OwnedKind) -> &'static [&'static str] {
    match kind {
        OwnedKind::SecretProviderClass => &["spec"],
        OwnedKind::ConfigMap => &["data", "binaryData"],
        OwnedKind::Secret => &["data"],
        _ => &[],
    }
}

/// What we made for this cluster is ours. A namespace is shared with whoever administers it.
fn is_by_right(desired: &DesiredObject, observed: &ObservedObject) -> bool {
    let label = desired
        .value
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(crate::objects::CLUSTER_LABEL).and_then(Value::as_str));
    desired.key.kind != OwnedKind::Namespace
        && label.is_some_and(|label| is_ours(&observed.value, label))
}

const READER: &str = "/spec/parameters/userAssignedIdentityID";

/// The desired object with the reader that is there, for the writer that does not decide about it.
///
/// Two operators may be told different readers, or one of them none. If both insisted, they would
/// write for ever in turn. The operator of HostedClusters is configured with the reader and hands it
/// on to the other, so its value stands and the other one's is a copy, perhaps an old one.
fn following(desired: &DesiredObject, live: &Value) -> Option<DesiredObject> {
    // A class without a reader means the same as one with an empty one.
    let reader = live.pointer(READER).and_then(Value::as_str).unwrap_or_default();
    let own = desired.value.pointer(READER).filter(|_| desired.follows_reader)?;
    if own == reader {
        return None;
    }
    let mut followed = desired.clone();
    *followed.value.pointer_mut(READER)? = Value::from(reader);
    if followed.value.pointer("/metadata/annotations")?.get(DESIRED_STATE_HASH).is_some() {
        stamp(&mut followed.value);
    }
    Some(followed)
}

impl Pruning<'_> {
    /// The namespace and the control plane go with the cluster, never by comparison.
    fn concerns(self, object: &ObservedObject) -> bool {
        let Self::Of { cluster_label, owner_uid } = self else { return false };
        let owners = object.value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let is_owned = owners.into_iter().flatten().any(|owner| {
            !owner_uid.is_empty() && owner.get("uid").and_then(Value::as_str) == Some(owner_uid)
        });
        !matches!(object.key.kind, OwnedKind::Namespace | OwnedKind::HostedControlPlane)
            && !object.is_deleting()
            && is_owned
            && is_ours(&object.value, cluster_label)
    }
}
