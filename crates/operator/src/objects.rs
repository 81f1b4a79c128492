//! The objects of a cluster: computes the desired ones, compares and applies them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use lanyard_desired::diff::FieldPath;
use lanyard_desired::drift::ChangedObject;
use lanyard_desired::objects::{
    ControlPlaneOwner, DesiredObjectInputs, add_reference_copies, cluster_label, unrendered_objects,
};
use lanyard_desired::{
    DesiredObject, ObjectChange, ObjectKey, PruneScope, ValidationProblem, desired_objects,
    diff_objects,
};
use lanyard_kubernetes::ApiError;

use crate::apply::{AppliedChanges, ObjectApplier};
use crate::classification::ValidCluster;
use crate::conflict_backoff::WriteTarget;
use crate::context::ReconcileContext;
use crate::encryption_key::prerequisite_secret;
use crate::fetch::{FetchedObjects, fetch_objects};
use crate::namespace_access::desired_access_binding;
use crate::observe::ObservedCluster;
use crate::references::{ReadReferences, read_references, recent_references, record_read};
use crate::store::{DesiredDigests, ObjectsToCompare, desired_digests};
use crate::unowned_objects::fetch_unowned;

/// The result of a comparison.
#[derive(Debug)]
pub(crate) struct ObjectComparison {
    pub(crate) changes: Vec<ObjectChange>,
    /// The desired objects with an unusable value of the HostedCluster; they stay as they are.
    pub(crate) unrendered: BTreeSet<ObjectKey>,
    /// The desired objects that are not known to be in sync.
    to_compare: Vec<DesiredObject>,
    /// The objects that are known to be in sync.
    in_sync: BTreeSet<ObjectKey>,
    /// Whether the desired API server encrypts with a key of the vault.
    has_encryption: bool,
    /// The versions of the compared objects that are not being deleted.
    compared_versions: Vec<(ObjectKey, String)>,
    desired_digests: DesiredDigests,
    /// Errors for objects that could not be read.
    pub(crate) errors: Vec<ApiError>,
    /// The referenced objects that cannot be copied.
    pub(crate) lints: Vec<ValidationProblem>,
}

/// Whether the control-plane namespace may contain objects of other owners.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum NamespaceAge {
    /// This reconcile creates it, and fails if it exists: nothing is in it.
    New,
    #[default]
    Existing,
}

/// Compares the existing objects with the desired ones.
pub(crate) async fn compare_objects(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    applier: ObjectApplier<'_>,
    namespace: NamespaceAge,
) -> ObjectComparison {
    let recent = recent_references(context, observed, valid);
    let is_recent = recent.is_some();
    let references = match recent {
        Some(references) => references,
        None => read_references(context, observed, valid).await,
    };
    let mut desired = desired_for_cluster(context, observed, valid, &references);
    let unrendered = unrendered_objects(&valid.cluster, &render_inputs(context, observed, valid));
    let mut digests = desired_digests(&desired);
    digests.extend(references.in_sync_digests.clone());
    if !is_recent {
        record_read(context, observed, valid, &references, &digests);
    }
    let mut known = context.stores.objects_to_compare(&observed.namespace, &digests);
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.without_content))
            .await;
    known.observed.extend(found.objects);
    // Unread objects stay unchanged; all others are applied.
    desired.retain(|object| !found.unread.contains(&object.key));
    let versions = live_versions(&known);
    let to_compare: Vec<_> =
        desired.into_iter().filter(|object| !known.in_sync.contains(&object.key)).collect();
    let label = cluster_label(observed.key.name());
    let pruning = pruning_scope(&observed.owner, &label, &unrendered);
    let mut changes = diff_objects(&known.observed, &to_compare, pruning);
    let unowned = match namespace {
        NamespaceAge::New => FetchedObjects::default(),
        NamespaceAge::Existing => fetch_unowned(applier.api, &observed.namespace, &changes).await,
    };
    if !unowned.objects.is_empty() {
        known.observed.extend(unowned.objects);
        changes = diff_objects(&known.observed, &to_compare, pruning);
    }
    // A copy without a read value is desired, but not among the desired objects: do not prune it.
    changes.retain(|change| {
        !unowned.unread.contains(change.key())
            && !references.kept_copies.contains(change.key())
            && !references.in_sync_digests.contains_key(change.key())
    });
    let errors = found.errors.into_iter().chain(unowned.errors).chain(references.errors).collect();
    // Objects in sync were excluded from the comparison, but they are desired: do not prune them.
    changes.retain(|change| !known.in_sync.contains(change.key()));
    let (in_sync, has_encryption) = (known.in_sync, valid.cluster.encryption.is_some());
    ObjectComparison {
        changes,
        unrendered,
        to_compare,
        in_sync,
        has_encryption,
        compared_versions: versions,
        desired_digests: digests,
        errors,
        lints: references.lints,
    }
}

fn live_versions(known: &ObjectsToCompare) -> Vec<(ObjectKey, String)> {
    let stays = known.observed.iter().filter(|(_, object)| !object.is_deleting());
    stays.map(|(key, it)| (key.clone(), it.resource_version.clone())).collect()
}

/// The desired objects without the kinds that cannot be used. Identities that need these kinds stay
/// broken; all others are delivered.
fn desired_for_cluster(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    valid: &ValidCluster,
    references: &ReadReferences,
) -> Vec<DesiredObject> {
    let inputs = render_inputs(context, observed, valid);
    let mut desired = desired_objects(&valid.cluster, &inputs);
    if let Some(account) = &context.settings.service_account {
        let binding = desired_access_binding(&observed.key, &observed.namespace, account);
        let position = desired.partition_point(|object| object.step <= binding.step);
        desired.insert(position, binding);
    }
    add_reference_copies(&mut desired, &valid.cluster, &observed.owner, &references.values);
    desired.retain(|it| !observed.skips_kind(it.key.kind));
    desired
}

fn render_inputs<'a>(
    context: &'a ReconcileContext,
    observed: &ObservedCluster,
    valid: &'a ValidCluster,
) -> DesiredObjectInputs<'a> {
    let settings = &context.settings;
    DesiredObjectInputs {
        wire: &valid.wire,
        mode: settings.role.mode(),
        owner: observed.owner.clone(),
        vault_reader: settings.vault_reader,
        templates: &settings.templates,
        refresh: settings.volume_refresh,
        private_router: observed.private_router,
        control_plane_endpoint: observed.control_plane_endpoint.clone(),
        kms_api_version: observed.kms_api_version,
    }
}

/// Objects are pruned only if the control plane that owns them is known.
const fn pruning_scope<'a>(
    owner: &'a ControlPlaneOwner,
    label: &'a str,
    unrendered: &'a BTreeSet<ObjectKey>,
) -> PruneScope<'a> {
    match owner {
        ControlPlaneOwner::Known(uid) => {
            PruneScope::OwnedBy { cluster_label: label, owner_uid: uid.as_str(), unrendered }
        }
        ControlPlaneOwner::Absent | ControlPlaneOwner::WithoutUid => PruneScope::Never,
    }
}

impl ObjectComparison {
    /// Whether an object exists and matches the desired one.
    pub(crate) fn is_in_sync(&self, key: &ObjectKey) -> bool {
        let mut changes = self.changes.iter().filter(|change| change.key() == key).peekable();
        let is_kept = changes.peek().is_some()
            && changes.all(|change| matches!(change, ObjectChange::Unchanged { .. }))
            && self.compared_versions.iter().any(|(stays, _)| stays == key);
        self.in_sync.contains(key) || is_kept
    }

    /// Excludes objects from the changes.
    pub(crate) fn skip_objects(&mut self, keys: &[ObjectKey]) {
        self.changes.retain(|change| !keys.contains(change.key()));
    }

    /// Applies the changes that are not in back-off, and marks objects in sync. Returns when the first of
    /// the others is due.
    pub(crate) async fn apply_changes(
        mut self,
        context: &ReconcileContext,
        observed: &ObservedCluster,
        applier: ObjectApplier<'_>,
    ) -> (AppliedChanges, Option<Duration>) {
        self.mark_in_sync(observed, applier);
        let (ready, backoff_until) = self.take_ready_changes(context, observed);
        let mut paths: HashMap<_, Vec<String>> = HashMap::new();
        for change in &ready {
            paths.entry(change.key().clone()).or_default().extend(changed_paths(change));
        }
        let applied = applier.apply_changes(ready).await;
        for key in &applied.written {
            let describe_object = || {
                let other_writer = context.stores.other_writer(&observed.namespace, key);
                let paths =
                    conflict_paths(paths.remove(key).unwrap_or_default(), other_writer.as_deref());
                ChangedObject { object: key.to_string(), paths }
            };
            context.record_write(
                &observed.key,
                WriteTarget::Object(key),
                self.desired_digest(key),
                describe_object,
            );
        }
        if !applied.written.is_empty() {
            self.recompare_after_writes(observed, applier);
        }
        (applied, backoff_until)
    }

    /// Takes the changes that are not in back-off; also returns when the first of the others is due.
    fn take_ready_changes(
        &mut self,
        context: &ReconcileContext,
        observed: &ObservedCluster,
    ) -> (Vec<ObjectChange>, Option<Duration>) {
        let (mut ready, mut backoff_until) = (Vec::new(), None);
        let secret =
            |change: &ObjectChange| prerequisite_secret(change).filter(|_| self.has_encryption);
        let is_ready = |secret: &ObjectKey| self.is_in_sync(secret);
        let waiting: Vec<_> =
            self.changes.iter().filter_map(secret).filter(|it| !is_ready(it)).collect();
        for change in std::mem::take(&mut self.changes) {
            let (subject, desired_digest) =
                (WriteTarget::Object(change.key()), self.desired_digest(change.key()));
            match context.backoff_until(&observed.key, subject, desired_digest) {
                Some(due) if change.is_write() => {
                    backoff_until = backoff_until.into_iter().chain([due]).min();
                }
                _ => ready.push(change),
            }
        }
        // Without its configuration Secret the API server must not roll out.
        let is_made =
            |it: &ObjectKey| ready.iter().any(|write| write.is_write() && write.key() == it);
        let missing: Vec<_> = waiting.into_iter().filter(|secret| !is_made(secret)).collect();
        ready.retain(|change| {
            prerequisite_secret(change).is_none_or(|secret| !missing.contains(&secret))
        });
        (ready, backoff_until)
    }

    /// The digest of the desired object; zero if the object is not desired.
    fn desired_digest(&self, key: &ObjectKey) -> u64 {
        self.desired_digests.get(key).copied().unwrap_or_default()
    }

    /// Compares the write responses. This drops their content now; the next reconciliation may wait behind
    /// all queued clusters.
    fn recompare_after_writes(mut self, observed: &ObservedCluster, applier: ObjectApplier<'_>) {
        let known = applier.stores.objects_to_compare(&observed.namespace, &self.desired_digests);
        self.to_compare.retain(|object| !known.in_sync.contains(&object.key));
        self.changes = diff_objects(&known.observed, &self.to_compare, PruneScope::Never);
        self.compared_versions = live_versions(&known);
        self.mark_in_sync(observed, applier);
    }

    /// Marks the objects that match the desired ones as in sync.
    fn mark_in_sync(&self, observed: &ObservedCluster, applier: ObjectApplier<'_>) {
        let good: Vec<_> = self
            .compared_versions
            .iter()
            .filter(|(key, _)| self.is_in_sync(key))
            .cloned()
            .collect();
        applier.stores.mark_in_sync(&observed.namespace, &good, &self.desired_digests);
    }

    /// The differences that remain because nothing is written now.
    pub(crate) fn unapplied_changes(&self) -> Vec<ChangedObject> {
        let differs = self.changes.iter().filter_map(|change| match change {
            ObjectChange::Unowned { object, differing_fields: differing } => {
                let paths = differing.iter().map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            ObjectChange::Apply {
                object,
                differing_fields: differing,
                unowned_fields: unowned,
                ..
            } => {
                let paths = differing.iter().chain(unowned).map(FieldPath::to_string).collect();
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

/// The paths to report for an object that another manager keeps changing.
fn conflict_paths(paths: Vec<String>, other_manager: Option<&str>) -> Vec<String> {
    let other_manager = other_manager.unwrap_or("another client");
    if paths.is_empty() {
        return vec![format!("repeatedly deleted by {other_manager}")];
    }
    paths
        .into_iter()
        .map(|path| format!("{path} (repeatedly changed by {other_manager})"))
        .collect()
}

/// The objects with fields that other field managers own.
pub(crate) fn objects_with_conflicts(failures: &[(ObjectKey, ApiError)]) -> Vec<ChangedObject> {
    let conflicts_by_object = failures.iter().filter_map(|(key, error)| match error {
        ApiError::Conflict { conflicts, .. } => {
            let field = |it: &lanyard_kubernetes::FieldConflict| {
                format!("{} (held by {})", it.field.trim_start_matches('.'), it.manager)
            };
            let paths = conflicts.iter().map(field).collect();
            Some(ChangedObject { object: key.to_string(), paths })
        }
        _ => None,
    });
    conflicts_by_object.collect()
}
