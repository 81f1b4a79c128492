//! The objects of a cluster: what is desired, what differs, and making it so.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use lanyard_desired::diff::FieldPath;
use lanyard_desired::drift::ChangedObject;
use lanyard_desired::objects::{ControlPlaneOwner, DesiredObjectInputs, cluster_label};
use lanyard_desired::{
    DesiredObject, ObjectChange, ObjectKey, PruneScope, desired_objects, diff_objects,
};
use lanyard_kubernetes::ApiError;

use crate::apply::{AppliedChanges, ObjectApplier};
use crate::classification::ValidCluster;
use crate::conflict_backoff::WriteTarget;
use crate::context::ReconcileContext;
use crate::encryption_key::prerequisite_secret;
use crate::fetch::{FetchedObjects, fetch_objects};
use crate::observe::ObservedCluster;
use crate::store::{DesiredDigests, ObjectsToCompare, desired_digests};
use crate::unowned_objects::fetch_unowned;

/// What differs, and what was compared.
#[derive(Debug)]
pub(crate) struct ObjectComparison {
    pub(crate) changes: Vec<ObjectChange>,
    /// What is desired and was not known to be so.
    to_compare: Vec<DesiredObject>,
    /// What was known to be as it is desired.
    in_sync: BTreeSet<ObjectKey>,
    /// Whether an API server encrypts by what is desired here.
    has_encryption: bool,
    /// The versions of what was compared and stays.
    compared_versions: Vec<(ObjectKey, String)>,
    desired_digests: DesiredDigests,
    /// Why some of it could not be read.
    pub(crate) errors: Vec<ApiError>,
}

/// Whether objects of others can be in the namespace of a control plane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum NamespaceAge {
    /// This reconcile creates it, and fails if it exists: nothing is in it.
    New,
    #[default]
    Existing,
}

/// Compares what is there with what is desired.
pub(crate) async fn compare_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
    applier: ObjectApplier<'_>,
    namespace: NamespaceAge,
) -> ObjectComparison {
    let mut desired = desired_for_cluster(context, observed, usable);
    let wished = desired_digests(&desired);
    let mut known = context.stores.objects_to_compare(&observed.namespace, &wished);
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.without_content))
            .await;
    known.observed.extend(found.objects);
    // What cannot be read now is left as it is, and everything else goes on.
    desired.retain(|object| !found.unread.contains(&object.key));
    let versions = live_versions(&known);
    let open: Vec<_> =
        desired.into_iter().filter(|object| !known.in_sync.contains(&object.key)).collect();
    let label = cluster_label(observed.key.name());
    let pruning = pruning_scope(&observed.owner, &label);
    let mut changes = diff_objects(&known.observed, &open, pruning);
    let strangers = match namespace {
        NamespaceAge::New => FetchedObjects::default(),
        NamespaceAge::Existing => fetch_unowned(applier.api, &observed.namespace, &changes).await,
    };
    if !strangers.objects.is_empty() {
        known.observed.extend(strangers.objects);
        changes = diff_objects(&known.observed, &open, pruning);
    }
    changes.retain(|change| !strangers.unread.contains(change.key()));
    let errors = found.errors.into_iter().chain(strangers.errors).collect();
    // What is settled is desired: it was left out of the comparison alone.
    changes.retain(|change| !known.in_sync.contains(change.key()));
    let (settled, encrypts) = (known.in_sync, usable.cluster.encryption.is_some());
    ObjectComparison {
        changes,
        to_compare: open,
        in_sync: settled,
        has_encryption: encrypts,
        compared_versions: versions,
        desired_digests: wished,
        errors,
    }
}

fn live_versions(known: &ObjectsToCompare) -> Vec<(ObjectKey, String)> {
    let stays = known.observed.iter().filter(|(_, object)| !object.is_deleting());
    stays.map(|(key, it)| (key.clone(), it.resource_version.clone())).collect()
}

/// What is desired, without the kinds that cannot be used: what brings their objects is broken, and
/// all else goes on.
fn desired_for_cluster(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    usable: &ValidCluster,
) -> Vec<DesiredObject> {
    let settings = &context.settings;
    let inputs = DesiredObjectInputs {
        wire: &usable.wire,
        mode: settings.role.mode(),
        owner: observed.owner.clone(),
        vault_reader: settings.vault_reader,
        templates: &settings.templates,
        refresh: settings.volume_refresh,
        private_router: observed.private_router,
    };
    let mut desired = desired_objects(&usable.cluster, &inputs);
    desired.retain(|it| !observed.skips_kind(it.key.kind));
    desired
}

/// What is not desired is deleted only where the control plane that owns it is known.
const fn pruning_scope<'a>(owner: &'a ControlPlaneOwner, label: &'a str) -> PruneScope<'a> {
    match owner {
        ControlPlaneOwner::Known(uid) => {
            PruneScope::OwnedBy { cluster_label: label, owner_uid: uid.as_str() }
        }
        ControlPlaneOwner::Absent | ControlPlaneOwner::WithoutUid => PruneScope::Never,
    }
}

impl ObjectComparison {
    /// Whether an object is there as it is desired.
    pub(crate) fn is_in_sync(&self, key: &ObjectKey) -> bool {
        let mut changes = self.changes.iter().filter(|change| change.key() == key).peekable();
        let is_kept = changes.peek().is_some()
            && changes.all(|change| matches!(change, ObjectChange::Unchanged { .. }))
            && self.compared_versions.iter().any(|(stays, _)| stays == key);
        self.in_sync.contains(key) || is_kept
    }

    /// Leaves objects as they are.
    pub(crate) fn skip_objects(&mut self, keys: &[ObjectKey]) {
        self.changes.retain(|change| !keys.contains(change.key()));
    }

    /// Makes the changes that need not wait, and remembers what needs none. Tells when the first of
    /// those that wait, because somebody else writes the same, may be made.
    pub(crate) async fn apply_changes(
        mut self,
        context: &ReconcileContext,
        observed: &ObservedCluster,
        applier: ObjectApplier<'_>,
    ) -> (AppliedChanges, Option<Duration>) {
        self.mark_in_sync(observed, applier);
        let (open, held) = self.take_ready_changes(context, observed);
        let mut paths: HashMap<_, Vec<String>> = HashMap::new();
        for change in &open {
            paths.entry(change.key().clone()).or_default().extend(changed_paths(change));
        }
        let applied = applier.apply_changes(open).await;
        for key in &applied.written {
            let told = || {
                let rival = context.stores.other_writer(&observed.namespace, key);
                let paths = conflict_paths(paths.remove(key).unwrap_or_default(), rival.as_deref());
                ChangedObject { object: key.to_string(), paths }
            };
            context.record_write(
                &observed.key,
                WriteTarget::Object(key),
                self.desired_digest(key),
                told,
            );
        }
        if !applied.written.is_empty() {
            self.recompare_after_writes(observed, applier);
        }
        (applied, held)
    }

    /// The changes that need not wait, and when the first of the others may be made.
    fn take_ready_changes(
        &mut self,
        context: &ReconcileContext,
        observed: &ObservedCluster,
    ) -> (Vec<ObjectChange>, Option<Duration>) {
        let (mut open, mut held) = (Vec::new(), None);
        let secret =
            |change: &ObjectChange| prerequisite_secret(change).filter(|_| self.has_encryption);
        let is_ready = |secret: &ObjectKey| self.is_in_sync(secret);
        let waiting: Vec<_> =
            self.changes.iter().filter_map(secret).filter(|it| !is_ready(it)).collect();
        for change in std::mem::take(&mut self.changes) {
            let (subject, wish) =
                (WriteTarget::Object(change.key()), self.desired_digest(change.key()));
            match context.backoff_until(&observed.key, subject, wish) {
                Some(due) if change.is_write() => held = held.into_iter().chain([due]).min(),
                _ => open.push(change),
            }
        }
        // What of it is not about to be made keeps what rolls for it from rolling.
        let is_made = |it: &ObjectKey| open.iter().any(|made| made.is_write() && made.key() == it);
        let left: Vec<_> = waiting.into_iter().filter(|secret| !is_made(secret)).collect();
        open.retain(|change| {
            prerequisite_secret(change).is_none_or(|secret| !left.contains(&secret))
        });
        (open, held)
    }

    /// A digest of what is desired of an object; zero where nothing is.
    fn desired_digest(&self, key: &ObjectKey) -> u64 {
        self.desired_digests.get(key).copied().unwrap_or_default()
    }

    /// Compares what the answers to the writes told. At the next look the content would still be
    /// there, and the next look comes after those of all clusters that wait.
    fn recompare_after_writes(mut self, observed: &ObservedCluster, applier: ObjectApplier<'_>) {
        let known = applier.stores.objects_to_compare(&observed.namespace, &self.desired_digests);
        self.to_compare.retain(|object| !known.in_sync.contains(&object.key));
        self.changes = diff_objects(&known.observed, &self.to_compare, PruneScope::Never);
        self.compared_versions = live_versions(&known);
        self.mark_in_sync(observed, applier);
    }

    /// Remembers what is as it should be.
    fn mark_in_sync(&self, observed: &ObservedCluster, applier: ObjectApplier<'_>) {
        let good: Vec<_> = self
            .compared_versions
            .iter()
            .filter(|(key, _)| self.is_in_sync(key))
            .cloned()
            .collect();
        applier.stores.mark_in_sync(&observed.namespace, &good, &self.desired_digests);
    }

    /// What differs and stays so, because nothing is written now.
    pub(crate) fn unapplied_changes(&self) -> Vec<ChangedObject> {
        let differs = self.changes.iter().filter_map(|change| match change {
            ObjectChange::Unowned { object, differing_fields: why } => {
                let paths = why.iter().map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            ObjectChange::Apply {
                object, differing_fields: why, unowned_fields: foreign, ..
            } => {
                let paths = why.iter().chain(foreign).map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            _ => None,
        });
        differs.collect()
    }
}

fn changed_paths(change: &ObjectChange) -> Vec<String> {
    ChangedObject::from_change(change).map(|it| it.paths).unwrap_or_default()
}

/// What is told of an object that is set back again and again.
fn conflict_paths(paths: Vec<String>, rival: Option<&str>) -> Vec<String> {
    let rival = rival.unwrap_or("somebody else");
    if paths.is_empty() {
        return vec![format!("taken away again and again by {rival}")];
    }
    paths.into_iter().map(|path| format!("{path} (written again and again by {rival})")).collect()
}

/// What others hold otherwise than it is desired.
pub(crate) fn objects_with_conflicts(failures: &[(ObjectKey, ApiError)]) -> Vec<ChangedObject> {
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
