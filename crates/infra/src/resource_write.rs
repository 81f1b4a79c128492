//! One write of a resource: journal entry, request, long-running operation, and repetition while Azure rejects
//! the write for now.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_azure::{
    ArmRequest, AzureCallError, AzureResponse, ErrorClass, OperationError, OperationStart,
    PendingOperation, PollPolicy,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, format_error_chain};
use serde_json::Value;

use crate::apply::{RunContext, RunOptions};
use crate::journal::{JournalEntry, JournalError, WriteKind};
use crate::plan::PlanProblem;
use crate::progress::ProgressPhase;
use crate::resource::{Ownership, ResourceKey, ResourceStack};
use crate::resource_request::UnknownValueError;
use crate::run_steps::ProgressReporter;

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
    /// A value of another resource is missing.
    #[error(transparent)]
    UnknownValue(#[from] UnknownValueError),
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
            Self::Azure(error) => match &**error {
                OperationError::Call(error) => return error.hint(),
                _ => {
                    "look up the error code in the documentation of the service; then run the command again"
                }
            },
            Self::TimedOut { .. } | Self::StillChanging { .. } => {
                "run the command again, or wait longer with --timeout"
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
        Ok(self.context.journal.while_writable(self.repeat(build)).await??.body)
    }

    /// Deletes the resource. A resource that does not exist counts as deleted.
    ///
    /// # Errors
    ///
    /// As [`ResourceWriter::put`].
    pub(crate) async fn delete(&self, api_version: &'static str) -> Result<(), ResourceError> {
        self.announce().await?;
        let request = ArmRequest::delete(self.id.as_str(), api_version);
        let deletion = self.repeat(async || Ok(request.clone()));
        match self.context.journal.while_writable(deletion).await? {
            Err(ResourceError::Azure(error)) if is_not_found(&error) => {}
            result => drop(result?),
        }
        let (at, key) = (self.context.clock.now(), self.key.clone());
        Ok(self.context.journal.record(&JournalEntry::Removed { at, key }).await?)
    }

    /// Records that the resource exists.
    pub(crate) async fn record(
        &self,
        id: &ArmResourceId,
        ownership: Ownership,
    ) -> Result<(), JournalError> {
        let entry = JournalEntry::Recorded {
            at: self.context.clock.now(),
            key: self.key.clone(),
            stack: self.stack,
            id: id.clone(),
            ownership,
            depends_on: self.depends_on.to_vec(),
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

    async fn repeat(
        &self,
        build: impl AsyncFn() -> Result<ArmRequest, ResourceError>,
    ) -> Result<AzureResponse, ResourceError> {
        let clock = self.context.clock;
        let began = clock.monotonic();
        let mut pause = FIRST_PAUSE;
        loop {
            let source = match self.attempt(&build().await?).await? {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let asked = match source.class() {
                ErrorClass::Permanent => return Err(source.into()),
                ErrorClass::Throttled { pause } => pause,
                _ => None,
            };
            let wait = asked.map_or(pause, |asked| asked.max(pause));
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
