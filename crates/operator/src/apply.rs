//! Applies changes: all writes to the objects of a hosted cluster go through this module.

use futures::StreamExt;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use lanyard_desired::objects::ApplyStep;
use lanyard_desired::{DesiredObject, ObjectChange, ObjectKey, ObjectWriter, diff::removal_patch};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy, FieldConflict, KubernetesApi};
use serde_json::Value;

use crate::encryption_key::prerequisite_secret;
use crate::error::FencedWriteError;
use crate::lease::FencingToken;
use crate::metrics::{OperatorMetrics, WriteVerb};
use crate::namespace_access;
use crate::store::WatchStores;
use crate::watched_resource::WatchedResource;

/// Applies changes on behalf of one cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObjectApplier<'a> {
    pub(crate) api: &'a KubernetesApi,
    pub(crate) stores: &'a WatchStores,
    pub(crate) metrics: &'a OperatorMetrics,
    pub(crate) fencing_token: &'a FencingToken,
}

/// The results of applied changes.
#[derive(Debug, Default)]
pub(crate) struct AppliedChanges {
    /// The written objects.
    pub(crate) written: Vec<ObjectKey>,
    /// The failed objects. All others were written, unless they depend on a failed one.
    pub(crate) failures: Vec<(ObjectKey, ApiError)>,
    /// Whether the lease ended before all changes were applied. The next holder continues.
    pub(crate) is_lease_lost: bool,
}

impl ObjectApplier<'_> {
    /// Applies the changes in order; those of one step run concurrently. It stops after a failed namespace,
    /// permission or control plane. Any other failure skips only the changes whose [`prerequisite_secret`]
    /// failed.
    pub(crate) async fn apply_changes(self, changes: Vec<ObjectChange>) -> AppliedChanges {
        let mut applied = AppliedChanges::default();
        for (step, mut changes) in group_by_step(changes) {
            changes.retain(|change| {
                let needed = prerequisite_secret(change);
                needed.is_none_or(|it| !applied.failures.iter().any(|(failed, _)| *failed == it))
            });
            let mut writes = futures::stream::iter(group_by_object(changes))
                .map(move |changes| self.apply_object_changes(changes))
                .buffer_unordered(MAX_CONCURRENT_WRITES);
            while let Some((key, result)) = writes.next().await {
                match result {
                    Ok(()) => applied.written.push(key),
                    Err(FencedWriteError::Api(error)) => applied.failures.push((key, error)),
                    Err(FencedWriteError::NotLeader) => applied.is_lease_lost = true,
                }
            }
            let is_needed = step.is_some_and(|step| step <= ApplyStep::ControlPlane);
            if applied.is_lease_lost || (is_needed && !applied.failures.is_empty()) {
                break;
            }
        }
        applied.failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        applied
    }

    /// Applies the changes of one object, one after the other.
    async fn apply_object_changes(
        self,
        changes: (ObjectKey, Vec<ObjectChange>),
    ) -> (ObjectKey, Result<(), FencedWriteError>) {
        let (key, changes) = changes;
        for change in changes {
            if let Err(error) = self.apply_change(change).await {
                return (key, Err(error));
            }
        }
        (key, Ok(()))
    }

    async fn apply_change(self, change: ObjectChange) -> Result<(), FencedWriteError> {
        match change {
            ObjectChange::Create { object } => {
                self.apply_object(&object, WriteVerb::Create, false).await.map(drop)
            }
            ObjectChange::Apply { object, unowned_fields: unowned, force, .. } => {
                let version = self.apply_object(&object, WriteVerb::Apply, force).await?;
                if unowned.is_empty() {
                    return Ok(());
                }
                let patch = removal_patch(&unowned, &version);
                self.remove_fields(&object.key, patch).await
            }
            ObjectChange::Prune { key, uid, resource_version } => {
                self.delete_object(&key, uid, Some(resource_version)).await
            }
            ObjectChange::Unowned { object, .. } => {
                Err(self.dry_run_conflict(&object).await.into())
            }
            _ => Ok(()),
        }
    }

    /// The conflict with the manager of an object that the operator did not create. It asks the API server
    /// with a dry-run apply, which writes nothing.
    async fn dry_run_conflict(self, object: &DesiredObject) -> ApiError {
        let key = &object.key;
        let parameters =
            PatchParams { dry_run: true, ..PatchParams::apply(object.writer.field_manager()) };
        let patch = Patch::Apply(&object.value);
        let objects = self.api_for(key);
        let ask = || objects.patch(&key.name, &parameters, &patch);
        let action = format!("apply {key}, which another client created");
        match self.api.call(ApiRetryPolicy::STANDARD, action.clone(), ask).await {
            Ok(answer) => {
                let managers = answer.metadata.managed_fields.unwrap_or_default();
                let mut managers = managers.into_iter().filter_map(|entry| entry.manager);
                let manager =
                    managers.find(|it| !ObjectWriter::is_our_field_manager(it)).unwrap_or_default();
                let field = ".metadata.labels".to_owned();
                ApiError::Conflict { action, conflicts: vec![FieldConflict { manager, field }] }
            }
            Err(error) => error,
        }
    }

    /// Applies an object and returns its new resource version. After the operator's RoleBinding it waits until
    /// the API server allows the writes that need it.
    pub(crate) async fn apply_object(
        self,
        object: &DesiredObject,
        verb: WriteVerb,
        force: bool,
    ) -> Result<String, FencedWriteError> {
        let key = &object.key;
        let mut parameters = PatchParams::apply(object.writer.field_manager());
        parameters.force = force;
        let patch = Patch::Apply(&object.value);
        let objects = self.api_for(key);
        let patch = || objects.patch(&key.name, &parameters, &patch);
        let written = self.write_object(key, verb, &format!("apply {key}"), patch).await?;
        let version = written.metadata.resource_version.clone().unwrap_or_default();
        self.stores.store_written(written);
        if object.step == ApplyStep::NamespaceAccess {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            namespace_access::wait_until_access_is_granted(self.api, namespace).await;
        }
        Ok(version)
    }

    async fn remove_fields(self, key: &ObjectKey, patch: Value) -> Result<(), FencedWriteError> {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(patch);
        let objects = self.api_for(key);
        let patch = || objects.patch(&key.name, &parameters, &patch);
        let action = format!("remove unowned fields from {key}");
        self.stores.store_written(self.write_object(key, WriteVerb::Apply, &action, patch).await?);
        Ok(())
    }

    /// Deletes the object with this uid. An object that is already deleted is no error.
    pub(crate) async fn delete_object(
        self,
        key: &ObjectKey,
        uid: String,
        resource_version: Option<String>,
    ) -> Result<(), FencedWriteError> {
        let preconditions = Preconditions { uid: Some(uid.clone()), resource_version };
        let parameters =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let objects = self.api_for(key);
        let delete = || objects.delete(&key.name, &parameters);
        match self.write_object(key, WriteVerb::Delete, &format!("delete {key}"), delete).await {
            Ok(answer) => {
                if let Some(object) = answer.left() {
                    self.stores.store_written(object);
                }
                Ok(())
            }
            Err(FencedWriteError::Api(error)) if error.is_not_found() => {
                self.stores.mark_deleted(key, &uid);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a write within the remaining time of the lease.
    pub(crate) async fn write_object<T, F, Fut>(
        self,
        key: &ObjectKey,
        verb: WriteVerb,
        action: &str,
        make: F,
    ) -> Result<T, FencedWriteError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        let kind_and_verb = (key.kind.info().kind, verb);
        write_fenced(self.api, self.fencing_token, self.metrics, kind_and_verb, action, make).await
    }

    fn api_for(self, key: &ObjectKey) -> Api<DynamicObject> {
        WatchedResource::owned(key.kind).api(self.api.client(), key.namespace.as_deref())
    }
}

/// Sends a write within the remaining time of the lease. It makes a single attempt; the next
/// reconciliation retries.
pub(crate) async fn write_fenced<T, F, Fut>(
    api: &KubernetesApi,
    fencing_token: &FencingToken,
    metrics: &OperatorMetrics,
    (kind, verb): (&'static str, WriteVerb),
    action: &str,
    make: F,
) -> Result<T, FencedWriteError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, kube::Error>>,
{
    let write = fencing_token.begin_write().ok_or(FencedWriteError::NotLeader)?;
    let policy = ApiRetryPolicy { attempt_timeout: write.deadline, attempts: 1 };
    let result = api.call(policy, action, make).await;
    drop(write);
    metrics.record_write(kind, verb, result.as_ref().err());
    result.map_err(FencedWriteError::Api)
}

/// Groups the writes by step. Each pruned object is a group of its own.
fn group_by_step(changes: Vec<ObjectChange>) -> Vec<(Option<ApplyStep>, Vec<ObjectChange>)> {
    let mut steps: Vec<(Option<ApplyStep>, Vec<ObjectChange>)> = Vec::new();
    for change in changes.into_iter().filter(|it| !matches!(it, ObjectChange::Unchanged { .. })) {
        let step = match &change {
            ObjectChange::Create { object }
            | ObjectChange::Apply { object, .. }
            | ObjectChange::Unowned { object, .. } => Some(object.step),
            _ => None,
        };
        match steps.last_mut() {
            Some((last, group)) if *last == step && step.is_some() => group.push(change),
            _ => steps.push((step, vec![change])),
        }
    }
    steps
}

/// Groups the changes of one step by object, so that two writers do not write one object concurrently.
fn group_by_object(changes: Vec<ObjectChange>) -> Vec<(ObjectKey, Vec<ObjectChange>)> {
    let mut groups: Vec<(ObjectKey, Vec<ObjectChange>)> = Vec::new();
    for change in changes {
        match groups.last_mut() {
            Some((key, group)) if key == change.key() => group.push(change),
            _ => groups.push((change.key().clone(), vec![change])),
        }
    }
    groups
}

/// The maximum number of concurrent writes per cluster.
const MAX_CONCURRENT_WRITES: usize = 4;
