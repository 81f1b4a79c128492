//! One write of a resource: journal entry, request, long-running operation, and repetition while Azure rejects
//! the write for now.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_azure::{
    ArmRequest, AzureCallError, AzureResponse, OperationError, OperationStart, PendingOperation,
    PollPolicy,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, format_error_chain};
use serde_json::Value;

use crate::api_versions::api_version_of;
use crate::apply::{RunContext, RunOptions};
use crate::journal::{
    CreationMark, JournalEntry, JournalError, RecordedResource, WriteKind, WritePhase,
};
use crate::ownership_evidence::OwnershipEvidence;
use crate::plan::PlanProblem;
use crate::progress::ProgressPhase;
use crate::resource::{Ownership, ResourceKey, ResourceStack};
use crate::resource_request::UnknownValueError;
use crate::run_steps::ProgressReporter;
use crate::unrecorded_resources::unrecorded_in_group;

/// The write of a resource failed, or was not attempted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The plan has a problem with the resource.
    #[error("the plan cannot be applied: {0}")]
    Problem(PlanProblem),
    /// The journal cannot be written. The request to Azure was not sent.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Azure rejected the write.
    #[error(transparent)]
    Azure(Box<OperationError>),
    /// Azure rejected the write for now, for longer than the run repeats writes.
    #[error("Azure still rejects the write after {}s", waited.as_secs())]
    TimedOut {
        /// How long the write was repeated.
        waited: Duration,
        /// The last error.
        #[source]
        source: Box<OperationError>,
    },
    /// A write of an earlier run does not end.
    #[error("Azure is still changing `{id}` after {}s", waited.as_secs())]
    StillChanging {
        /// The id of the resource.
        id: ArmResourceId,
        /// How long the run waited.
        waited: Duration,
    },
    /// A run deleted a resource group, whose content cannot be restored.
    #[error("`{id}` was deleted with its content, which a roll-back cannot restore")]
    NotRestorable {
        /// The id of the group, or of a resource in it.
        id: ArmResourceId,
    },
    /// Another client created the resource.
    #[error(
        "`{id}` is not changed, because neither its tags nor its creator show that lanyard created it"
    )]
    NotOurs {
        /// The id of the resource.
        id: ArmResourceId,
    },
    /// The journal names a role assignment whose principal is not one of the cluster.
    #[error(
        "the role assignment `{id}` is not created again, because its principal in the journal is not one of this cluster"
    )]
    UnknownPrincipal {
        /// The id of the role assignment.
        id: ArmResourceId,
    },
    /// A resource group contains resources of other clients.
    #[error("`{id}` is not deleted, because it contains resources that are not part of this removal: {}", .resources.join(", "))]
    OtherResources {
        /// The id of the group.
        id: ArmResourceId,
        /// The ids of these resources, as Azure lists them.
        resources: Vec<String>,
    },
    /// A value of another resource is missing.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValueError),
}

/// What the deletion of a resource did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletionResult {
    /// The resource does not exist any more.
    Deleted,
    /// The resource belongs to another client, and stays. The journal does not record it as lanyard's any more.
    Kept,
}

/// What lanyard knows about a resource that it deletes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeletedRecord<'a> {
    /// The record of the resource; `None` if the journal has none.
    pub(crate) record: Option<&'a RecordedResource>,
    /// The records of the resources that are removed with it.
    pub(crate) contained: &'a [&'a RecordedResource],
}

impl From<AzureCallError> for ResourceError {
    fn from(error: AzureCallError) -> Self {
        OperationError::Call(error).into()
    }
}

impl From<OperationError> for ResourceError {
    fn from(error: OperationError) -> Self {
        Self::Azure(Box::new(error))
    }
}

impl ErrorHint for ResourceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Problem(problem) => return problem.hint(),
            Self::Journal(error) => return error.hint(),
            Self::Azure(error) => return error.hint(),
            Self::TimedOut { .. } | Self::StillChanging { .. } => {
                "run the command again, or wait longer with --timeout"
            }
            Self::NotOurs { .. } => {
                "to let lanyard change or remove it, adopt it: with `lanyard import azure` for a cluster, otherwise with --import; otherwise choose another name"
            }
            Self::UnknownPrincipal { .. } => {
                "check who can write to the journal; to create the roles of the configuration, run the command without --roll-back"
            }
            Self::OtherResources { .. } => {
                "move or delete these resources, or remove them with the group by --include-unrecorded"
            }
            Self::NotRestorable { .. } => {
                "run the command without --roll-back, which creates the missing resources again"
            }
            Self::UnknownValue(_) => "run the command again",
        }))
    }
}

/// The pauses between two attempts of a write.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Writes one resource.
pub(crate) struct ResourceWriter<'a> {
    pub(crate) context: RunContext<'a>,
    pub(crate) key: &'a ResourceKey,
    pub(crate) stack: ResourceStack,
    pub(crate) id: &'a ArmResourceId,
    pub(crate) kind: WriteKind,
    pub(crate) depends_on: &'a [ResourceKey],
    /// The resource before an apply command changes or deletes it, for a roll-back.
    pub(crate) before: Option<Value>,
    /// The properties that an update sets, for a roll-back.
    pub(crate) desired: Option<Value>,
    pub(crate) report: ProgressReporter<'a>,
}

impl ResourceWriter<'_> {
    /// Sends the PUT request that `build` returns, and returns the resource. `build` is called for each attempt,
    /// because a repeated update needs the resource as it is then.
    ///
    /// # Errors
    ///
    /// [`ResourceError`] if Azure rejects the write, or still rejects it when the time of the run is over.
    pub(crate) async fn put(
        &self,
        build: impl AsyncFn() -> Result<ArmRequest, ResourceError>,
    ) -> Result<Value, ResourceError> {
        self.announce().await?;
        let write = self.repeat(async || match build().await {
            Ok(request) => Ok(self.attempt(&request).await?),
            // A read before the write can be throttled, too.
            Err(ResourceError::Azure(error)) => Ok(Err(*error)),
            Err(error) => Err(error),
        });
        match self.context.journal.while_writable(write).await? {
            Ok(response) => Ok(response.body),
            Err(error) => {
                if self.kind == WriteKind::Create && self.is_final(&error) {
                    self.retract_creation().await?;
                }
                Err(error)
            }
        }
    }

    /// Whether Azure rejected the write. Without a reply, or while its operation runs, Azure can still do it.
    fn is_final(&self, error: &ResourceError) -> bool {
        let ResourceError::Azure(error) = error else { return false };
        let state = self.context.journal.state();
        let is_accepted =
            |record: &RecordedResource| matches!(record.phase, WritePhase::Accepted(_));
        let is_running = state.get(self.key).is_some_and(is_accepted);
        matches!(**error, OperationError::Failed { .. })
            || (!is_running && error.class().is_permanent())
    }

    /// Ends the record of a creation that Azure rejected, if nothing shows that the resource is lanyard's.
    async fn retract_creation(&self) -> Result<(), JournalError> {
        let version = api_version_of(self.id);
        // Without a reply, the next run decides from the live resource.
        let Ok(live) = self.context.arm.fetch_optional(self.id.as_str(), version).await else {
            return Ok(());
        };
        let state = self.context.journal.state();
        match live {
            None => self.record_removed().await,
            Some(live) => {
                let evidence = OwnershipEvidence::new(state.get(self.key), self.context.tags);
                if evidence.is_ours(self.id, &live.body) {
                    return Ok(());
                }
                self.record(self.id, Ownership::Existing, &live.body).await
            }
        }
    }

    /// Deletes the resource, unless it belongs to another client. A resource that does not exist counts as deleted.
    ///
    /// # Errors
    ///
    /// As [`ResourceWriter::put`], and [`ResourceError::OtherResources`] for a resource group.
    pub(crate) async fn delete(
        &self,
        deleted: DeletedRecord<'_>,
    ) -> Result<DeletionResult, ResourceError> {
        let RunContext { arm, tags, options, .. } = self.context;
        let api_version = api_version_of(self.id);
        let live = self.read(async || arm.fetch_optional(self.id.as_str(), api_version).await);
        let Some(live) = live.await? else {
            self.record_removed().await?;
            return Ok(DeletionResult::Deleted);
        };
        if !OwnershipEvidence::new(deleted.record, tags).is_ours(self.id, &live.body) {
            self.record(self.id, Ownership::Existing, &live.body).await?;
            return Ok(DeletionResult::Kept);
        }
        if self.id.resource_type().is_none() && !options.removes_unrecorded {
            let unrecorded =
                async || unrecorded_in_group(arm, self.id, deleted.contained, tags).await;
            let resources = self.read(unrecorded).await?;
            if !resources.is_empty() {
                let id = self.id.clone();
                return Err(ResourceError::OtherResources { id, resources });
            }
        }
        self.announce().await?;
        let request = ArmRequest::delete(self.id.as_str(), api_version);
        let deletion = self.repeat(async || Ok(self.attempt(&request).await?));
        match self.context.journal.while_writable(deletion).await? {
            Err(ResourceError::Azure(error)) if is_not_found(&error) => {}
            result => drop(result?),
        }
        self.record_removed().await?;
        Ok(DeletionResult::Deleted)
    }

    async fn record_removed(&self) -> Result<(), JournalError> {
        let (at, key) = (self.context.clock.now(), self.key.clone());
        self.context.journal.record(&JournalEntry::Removed { at, key }).await
    }

    /// Records that the resource with this id and body exists.
    pub(crate) async fn record(
        &self,
        id: &ArmResourceId,
        ownership: Ownership,
        body: &Value,
    ) -> Result<(), JournalError> {
        let entry = JournalEntry::Recorded {
            at: self.context.clock.now(),
            key: self.key.clone(),
            stack: self.stack,
            id: id.clone(),
            ownership,
            depends_on: self.depends_on.to_vec(),
            created: Some(CreationMark::of(body)),
        };
        self.context.journal.record(&entry).await
    }

    async fn announce(&self) -> Result<(), JournalError> {
        let entry = JournalEntry::Writing {
            at: self.context.clock.now(),
            key: self.key.clone(),
            stack: self.stack,
            id: self.id.clone(),
            write: self.kind,
            depends_on: self.depends_on.to_vec(),
            before: self.before.clone(),
            desired: self.desired.clone(),
        };
        self.context.journal.record(&entry).await
    }

    /// Reads what a write depends on. Repeats the read while Azure rejects it for now.
    pub(crate) async fn read<T>(
        &self,
        read: impl AsyncFn() -> Result<T, AzureCallError>,
    ) -> Result<T, ResourceError> {
        self.repeat(async || Ok(read().await.map_err(OperationError::Call))).await
    }

    /// Repeats an attempt while Azure rejects it for now. The outer error of an attempt is final.
    async fn repeat<T>(
        &self,
        attempt: impl AsyncFn() -> Result<Result<T, OperationError>, ResourceError>,
    ) -> Result<T, ResourceError> {
        let clock = self.context.clock;
        let began = clock.monotonic();
        let mut pause = FIRST_PAUSE;
        loop {
            let source = match attempt().await? {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let class = source.class();
            if class.is_permanent() {
                return Err(source.into());
            }
            let wait = class.requested_delay().map_or(pause, |asked| asked.max(pause));
            let waited = clock.monotonic().saturating_sub(began);
            if waited.saturating_add(wait) > self.context.options.retry_timeout {
                return Err(ResourceError::TimedOut { waited, source: Box::new(source) });
            }
            (self.report)(ProgressPhase::Waiting {
                reason: format_error_chain(&source),
                pause: wait,
            });
            clock.sleep(wait).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Sends the request once, and follows the long-running operation.
    async fn attempt(
        &self,
        request: &ArmRequest,
    ) -> Result<Result<AzureResponse, OperationError>, JournalError> {
        let operation = match self.context.arm.start(request).await {
            Ok(OperationStart::Completed(response)) => return Ok(Ok(response)),
            Ok(OperationStart::Pending(operation)) => operation,
            Err(error) => return Ok(Err(error)),
        };
        let (at, key) = (self.context.clock.now(), self.key.clone());
        let accepted = JournalEntry::Accepted { at, key, operation: operation.clone() };
        self.context.journal.record(&accepted).await?;
        (self.report)(ProgressPhase::Accepted);
        Ok(wait_for_operation(self.context, operation).await)
    }
}

fn is_not_found(error: &OperationError) -> bool {
    matches!(error, OperationError::Call(AzureCallError::NotFound { .. }))
}

/// Waits until a long-running operation ends.
pub(crate) async fn wait_for_operation(
    context: RunContext<'_>,
    operation: PendingOperation,
) -> Result<AzureResponse, OperationError> {
    let RunOptions { poll_interval, retry_timeout, .. } = context.options;
    let policy = PollPolicy { interval: poll_interval, timeout: retry_timeout };
    context.arm.wait(operation, context.clock, policy).await
}
