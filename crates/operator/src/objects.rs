//! The objects of a cluster: what is desired, what differs, and making it so.

use lanyard_desired::diff::FieldPath;
use lanyard_desired::drift::ChangedObject;
use lanyard_desired::objects::{Inputs, Owner, cluster_label};
use lanyard_desired::{Change, DesiredObject, ObjectKey, Pruning, desired_objects, diff};
use lanyard_kubernetes::ApiError;

use crate::apply::{Applied, Applier};
use crate::context::Context;
use crate::judge::Usable;
use crate::observe::Observed;
use crate::read::fetch_objects;
use crate::store::{Unsettled, Wished, wished};
use crate::strangers::fetch_strangers;

/// What differs, and what was compared.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) changes: Vec<Change>,
    /// What is desired and was not known to be so.
    open: Vec<DesiredObject>,
    /// The versions of what was compared.
    versions: Vec<(ObjectKey, String)>,
    wished: Wished,
    /// Why some of it could not be read.
    pub(crate) errors: Vec<ApiError>,
}

/// Compares what is there with what is desired.
pub(crate) async fn compare(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    applier: Applier<'_>,
) -> Comparison {
    let mut desired = desired(context, observed, usable);
    let wished = wished(&desired);
    let mut known = context.stores.unsettled(&observed.namespace, &wished);
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.unknown)).await;
    known.observed.extend(found.objects);
    // What cannot be read now is left as it is, and everything else goes on.
    desired.retain(|object| !found.unread.contains(&object.key));
    let versions = versions_of(&known);
    let open: Vec<_> =
        desired.into_iter().filter(|object| !known.settled.contains(&object.key)).collect();
    let label = cluster_label(observed.key.name());
    let pruning = pruning(&observed.owner, &label);
    let mut changes = diff(&known.observed, &open, pruning);
    let strangers = fetch_strangers(applier.api, &observed.namespace, &changes).await;
    if !strangers.objects.is_empty() {
        known.observed.extend(strangers.objects);
        changes = diff(&known.observed, &open, pruning);
    }
    changes.retain(|change| !strangers.unread.contains(change.key()));
    let errors = found.errors.into_iter().chain(strangers.errors).collect();
    // What is settled is desired: it was left out of the comparison alone.
    changes.retain(|change| !known.settled.contains(change.key()));
    Comparison { changes, open, versions, wished, errors }
}

fn versions_of(known: &Unsettled) -> Vec<(ObjectKey, String)> {
    known.observed.iter().map(|(key, it)| (key.clone(), it.resource_version.clone())).collect()
}

/// What is desired, without the kinds that cannot be used: what brings their objects is broken, and
/// all else goes on.
fn desired(context: &Context, observed: &Observed, usable: &Usable) -> Vec<DesiredObject> {
    let settings = &context.settings;
    let inputs = Inputs {
        wire: &usable.wire,
        mode: settings.role.mode(),
        owner: observed.owner.clone(),
        vault_reader: settings.vault_reader,
        templates: &settings.templates,
        refresh: settings.refresh,
        private_router: observed.private_router,
    };
    let mut desired = desired_objects(&usable.cluster, &inputs);
    desired.retain(|it| !observed.leaves_out(it.key.kind));
    desired
}

/// What is not desired is deleted only where the control plane that owns it is known.
const fn pruning<'a>(owner: &'a Owner, label: &'a str) -> Pruning<'a> {
    match owner {
        Owner::Known(uid) => Pruning::Of { cluster_label: label, owner_uid: uid.as_str() },
        Owner::NotYet | Owner::Blank => Pruning::Never,
    }
}

impl Comparison {
    /// Whether an object is written.
    pub(crate) fn writes(&self, key: &ObjectKey) -> bool {
        self.changes.iter().any(|change| change.is_write() && change.key() == key)
    }

    /// Makes the changes, and remembers what needs none.
    pub(crate) async fn apply(mut self, observed: &Observed, applier: Applier<'_>) -> Applied {
        self.settle(observed, applier);
        let applied = applier.apply(std::mem::take(&mut self.changes)).await;
        if applied.written > 0 {
            self.look_again(observed, applier);
        }
        applied
    }

    /// Compares what the answers to the writes told. At the next look the content would still be
    /// there, and the next look comes after those of all clusters that wait.
    fn look_again(mut self, observed: &Observed, applier: Applier<'_>) {
        let known = applier.stores.unsettled(&observed.namespace, &self.wished);
        self.open.retain(|object| !known.settled.contains(&object.key));
        self.changes = diff(&known.observed, &self.open, Pruning::Never);
        self.versions = versions_of(&known);
        self.settle(observed, applier);
    }

    /// Remembers what is as it should be.
    fn settle(&self, observed: &Observed, applier: Applier<'_>) {
        let kept = |key: &ObjectKey| {
            let is_keep = |it: &&Change| matches!(it, Change::Keep { .. });
            self.changes.iter().filter(is_keep).any(|it| it.key() == key)
        };
        let good: Vec<_> = self
            .versions
            .iter()
            .filter(|(key, _)| kept(key) && !self.writes(key))
            .cloned()
            .collect();
        applier.stores.settle(&observed.namespace, &good, &self.wished);
    }

    /// What differs and stays so, because nothing is written now.
    pub(crate) fn left(&self) -> Vec<ChangedObject> {
        let differs = self.changes.iter().filter_map(|change| match change {
            Change::Foreign { object, why } => {
                let paths = why.iter().map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            Change::Apply { object, why, foreign, .. } => {
                let paths = why.iter().chain(foreign).map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            _ => None,
        });
        differs.collect()
    }
}

/// What others hold otherwise than it is desired.
pub(crate) fn held_by_others(failures: &[(ObjectKey, ApiError)]) -> Vec<ChangedObject> {
    let held = failures.iter().filter_map(|(key, error)| match error {
        ApiError::Conflict { conflicts, .. } => {
            let field = |it: &lanyard_kubernetes::FieldConflict| {
                format!("{} (held by {})", it.field.trim_start_matches('.'), it.manager)
            };
            let paths = conflicts.iter().map(field).collect();
            Some(ChangedObject { object: key.to_string(), paths })
        }
        _ => None,
    });
    held.collect()
}
