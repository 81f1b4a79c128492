//! Making the changes: the only place that writes objects of a hosted cluster.

use futures::StreamExt;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use lanyard_desired::objects::Step;
use lanyard_desired::{Change, DesiredObject, ObjectKey, Writer, diff::removal_patch};
use lanyard_kubernetes::{ApiError, FieldConflict, KubernetesApi, Patience};
use serde_json::Value;

use crate::encryption_key::waits_for;
use crate::error::WriteError;
use crate::lease::Fence;
use crate::metrics::{OperatorMetrics, Verb};
use crate::store::Stores;
use crate::subject::Subject;

/// Makes changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applier<'a> {
    pub(crate) api: &'a KubernetesApi,
    pub(crate) stores: &'a Stores,
    pub(crate) metrics: &'a OperatorMetrics,
    pub(crate) fence: &'a Fence,
}

/// What became of the changes.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// What was written.
    pub(crate) written: Vec<ObjectKey>,
    /// What failed. Everything else was done, unless it needs what failed.
    pub(crate) failures: Vec<(ObjectKey, ApiError)>,
    /// Whether the lease ended in the middle. The next holder goes on.
    pub(crate) is_cut_short: bool,
}

impl Applier<'_> {
    /// Makes the changes in their order: those of one step side by side, and nothing more where the
    /// namespace or the control plane failed. One object that cannot be written keeps no other one
    /// from being written, but for what [`waits_for`] it.
    pub(crate) async fn apply(self, changes: Vec<Change>) -> Applied {
        let mut applied = Applied::default();
        for (step, mut changes) in in_steps(changes) {
            changes.retain(|change| {
                let needed = waits_for(change);
                needed.is_none_or(|it| !applied.failures.iter().any(|(failed, _)| *failed == it))
            });
            let mut writes = futures::stream::iter(by_object(changes))
                .map(|changes| self.make_all(changes))
                .buffer_unordered(AT_ONCE);
            while let Some((key, made)) = writes.next().await {
                match made {
                    Ok(()) => applied.written.push(key),
                    Err(WriteError::Api(error)) => applied.failures.push((key, error)),
                    Err(WriteError::NotLeader) => applied.is_cut_short = true,
                }
            }
            let is_needed = step.is_some_and(|step| step <= Step::ControlPlane);
            if applied.is_cut_short || (is_needed && !applied.failures.is_empty()) {
                break;
            }
        }
        applied.failures.sort_by(|(one, _), (other, _)| one.cmp(other));
        applied
    }

    /// Makes the changes of one object, one after the other.
    async fn make_all(
        self,
        changes: (ObjectKey, Vec<Change>),
    ) -> (ObjectKey, Result<(), WriteError>) {
        let (key, changes) = changes;
        for change in changes {
            if let Err(error) = self.make(change).await {
                return (key, Err(error));
            }
        }
        (key, Ok(()))
    }

    async fn make(self, change: Change) -> Result<(), WriteError> {
        match change {
            Change::Create { object } => self.patch(&object, Verb::Create, false).await.map(drop),
            Change::Apply { object, foreign, force, .. } => {
                let version = self.patch(&object, Verb::Apply, force).await?;
                if foreign.is_empty() {
                    return Ok(());
                }
                let patch = removal_patch(&foreign, &version);
                self.remove_fields(&object.key, patch).await
            }
            Change::Prune { key, uid, resource_version } => {
                self.delete(&key, uid, Some(resource_version)).await
            }
            Change::Foreign { object, .. } => Err(self.contest(&object).await.into()),
            _ => Ok(()),
        }
    }

    /// Whose an object is that somebody else made: the API server says it when it is asked what
    /// applying would do. Nothing is written.
    async fn contest(self, object: &DesiredObject) -> ApiError {
        let key = &object.key;
        let parameters =
            PatchParams { dry_run: true, ..PatchParams::apply(object.writer.field_manager()) };
        let patch = Patch::Apply(&object.value);
        let objects = self.objects(key);
        let ask = || objects.patch(&key.name, &parameters, &patch);
        let action = format!("apply {key}, which somebody else made");
        match self.api.call(Patience::USUAL, action.clone(), ask).await {
            Ok(answer) => {
                let managers = answer.metadata.managed_fields.unwrap_or_default();
                let mut managers = managers.into_iter().filter_map(|entry| entry.manager);
                let manager = managers.find(|it| !Writer::is_manager(it)).unwrap_or_default();
                let field = ".metadata.labels".to_owned();
                ApiError::Conflict { action, conflicts: vec![FieldConflict { manager, field }] }
            }
            Err(error) => error,
        }
    }

    /// Applies an object; returns its new version.
    async fn patch(
        self,
        object: &DesiredObject,
        verb: Verb,
        force: bool,
    ) -> Result<String, WriteError> {
        let key = &object.key;
        let mut parameters = PatchParams::apply(object.writer.field_manager());
        parameters.force = force;
        let patch = Patch::Apply(&object.value);
        let objects = self.objects(key);
        let patch = || objects.patch(&key.name, &parameters, &patch);
        let written = self.write(key, verb, &format!("apply {key}"), patch).await?;
        let version = written.metadata.resource_version.clone().unwrap_or_default();
        self.stores.written(written);
        Ok(version)
    }

    async fn remove_fields(self, key: &ObjectKey, patch: Value) -> Result<(), WriteError> {
        let parameters = PatchParams::default();
        let patch = Patch::Merge(patch);
        let objects = self.objects(key);
        let patch = || objects.patch(&key.name, &parameters, &patch);
        let action = format!("take foreign fields from {key}");
        self.stores.written(self.write(key, Verb::Apply, &action, patch).await?);
        Ok(())
    }

    /// Deletes this one object, and no other one of its name. One that is gone is fine.
    pub(crate) async fn delete(
        self,
        key: &ObjectKey,
        uid: String,
        resource_version: Option<String>,
    ) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: Some(uid), resource_version };
        let parameters =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let objects = self.objects(key);
        let delete = || objects.delete(&key.name, &parameters);
        match self.write(key, Verb::Delete, &format!("delete {key}"), delete).await {
            Ok(answer) => {
                if let Some(object) = answer.left() {
                    self.stores.written(object);
                }
                Ok(())
            }
            Err(WriteError::Api(error)) if error.is_absence() => {
                self.stores.missing(key);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a call that writes, within the time that is left on the lease.
    pub(crate) async fn write<T, F, Fut>(
        self,
        key: &ObjectKey,
        verb: Verb,
        action: &str,
        make: F,
    ) -> Result<T, WriteError>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        let kind = key.kind.facts().kind;
        write(self.api, self.fence, self.metrics, (kind, verb), action, make).await
    }

    fn objects(self, key: &ObjectKey) -> Api<DynamicObject> {
        Subject::owned(key.kind).objects(self.api.client(), key.namespace.as_deref())
    }
}

/// Makes a call that writes, within the time that is left on the lease. There is one try: the next
/// look is another one.
pub(crate) async fn write<T, F, Fut>(
    api: &KubernetesApi,
    fence: &Fence,
    metrics: &OperatorMetrics,
    (kind, verb): (&'static str, Verb),
    action: &str,
    make: F,
) -> Result<T, WriteError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, kube::Error>>,
{
    let writing = fence.begin().ok_or(WriteError::NotLeader)?;
    let patience = Patience { deadline: writing.deadline, tries: 1 };
    let made = api.call(patience, action, make).await;
    drop(writing);
    metrics.wrote(kind, verb, made.as_ref().err());
    made.map_err(WriteError::Api)
}

/// The writes, in groups that follow each other. What is pruned is deleted one after the other.
fn in_steps(changes: Vec<Change>) -> Vec<(Option<Step>, Vec<Change>)> {
    let mut steps: Vec<(Option<Step>, Vec<Change>)> = Vec::new();
    for change in changes.into_iter().filter(|it| !matches!(it, Change::Keep { .. })) {
        let step = match &change {
            Change::Create { object }
            | Change::Apply { object, .. }
            | Change::Foreign { object, .. } => Some(object.step),
            _ => None,
        };
        match steps.last_mut() {
            Some((last, group)) if *last == step && step.is_some() => group.push(change),
            _ => steps.push((step, vec![change])),
        }
    }
    steps
}

/// The changes of one step by object: one that both writers write is written by one at a time.
fn by_object(changes: Vec<Change>) -> Vec<(ObjectKey, Vec<Change>)> {
    let mut groups: Vec<(ObjectKey, Vec<Change>)> = Vec::new();
    for change in changes {
        match groups.last_mut() {
            Some((key, group)) if key == change.key() => group.push(change),
            _ => groups.push((change.key().clone(), vec![change])),
        }
    }
    groups
}

/// How many objects of one cluster are written at once.
const AT_ONCE: usize = 4;
