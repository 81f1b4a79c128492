//! What the steps of a run share: journal entries, the repetition of requests, and deletions.

use std::time::Duration;

use lanyard_clock::{Backoff, RetryClass};
use lanyard_vocabulary::format_error_chain;
use serde_json::Value;

use crate::accepted_write::WriteProgress;
use crate::effect::EffectAccess;
use crate::effect_error::{EffectError, EffectErrorCause};
use crate::journal::{JournalEntry, JournalError, WriteKind};
use crate::live_state::LiveResource;
use crate::ownership_evidence::OwnershipEvidence;
use crate::progress::ProgressPhase;
use crate::recorded_resource::{RecordedResource, WritePhase};
use crate::resource_error::ResourceError;
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey, StackName};
use crate::run_context::RunContext;
use crate::run_progress::StepProgress;

/// The pauses between two attempts of a request.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(15));

/// The work on one resource in a run.
pub(crate) struct Step<'a, A> {
    pub(crate) context: RunContext<'a, A>,
    pub(crate) key: &'a ResourceKey,
    pub(crate) stack: &'a StackName,
    pub(crate) depends_on: &'a [ResourceKey],
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
#[derive(Debug)]
pub(crate) struct Deletion<'a> {
    pub(crate) id: &'a ResourceId,
    /// The record of the resource; `None` if the journal has none.
    pub(crate) record: Option<&'a RecordedResource>,
    /// The records of the resources that are removed with it.
    pub(crate) contained: &'a [&'a RecordedResource],
    /// The body before an apply command deletes the resource, for a roll-back.
    pub(crate) before: Option<Value>,
}

/// The bodies that the journal keeps of a write, for a roll-back.
#[derive(Debug, Default)]
pub(crate) struct WriteBodies {
    /// The resource before an apply command changes or deletes it.
    pub(crate) before: Option<Value>,
    /// The properties that an update sets.
    pub(crate) desired: Option<Value>,
}

impl<A: EffectAccess> Step<'_, A> {
    /// Records that a write begins.
    pub(crate) async fn announce(
        &self,
        id: &ResourceId,
        write: WriteKind,
        bodies: WriteBodies,
    ) -> Result<(), JournalError> {
        let entry = JournalEntry::Writing {
            at: self.context.clock.now(),
            key: self.key.clone(),
            stack: self.stack.clone(),
            id: id.clone(),
            write,
            depends_on: self.depends_on.to_vec(),
            before: bodies.before,
            desired: bodies.desired,
        };
        self.context.journal.record(&entry).await
    }

    /// Records that the resource exists.
    pub(crate) async fn record(
        &self,
        live: &LiveResource,
        ownership: Ownership,
    ) -> Result<(), JournalError> {
        let entry = JournalEntry::Recorded {
            at: self.context.clock.now(),
            key: self.key.clone(),
            stack: self.stack.clone(),
            id: live.id.clone(),
            ownership,
            depends_on: self.depends_on.to_vec(),
            created: Some(live.creation.clone()),
        };
        self.context.journal.record(&entry).await
    }

    /// Records that the resource does not exist any more.
    pub(crate) async fn record_removed(&self) -> Result<(), JournalError> {
        let (at, key) = (self.context.clock.now(), self.key.clone());
        self.context.journal.record(&JournalEntry::Removed { at, key }).await
    }

    /// Follows a write until the service has done it, and returns the body of the resource.
    pub(crate) async fn follow(
        &self,
        write: WriteProgress,
        progress: &StepProgress<'_>,
    ) -> Result<Value, ResourceError> {
        let write = match write {
            WriteProgress::Complete(body) => return Ok(body),
            WriteProgress::Accepted(write) => write,
        };
        let RunContext { access, journal, clock, options, .. } = self.context;
        let (at, key, operation) = (clock.now(), self.key.clone(), write.clone());
        journal.record(&JournalEntry::Accepted { at, key, operation }).await?;
        progress.report(ProgressPhase::Accepted);
        Ok(access.wait(&write, clock, options.wait_limits()).await?)
    }

    /// Sends a request, and sends it again while the service rejects it for now.
    pub(crate) async fn repeat<T>(
        &self,
        progress: &StepProgress<'_>,
        request: impl AsyncFn() -> Result<T, EffectError>,
    ) -> Result<T, ResourceError> {
        let mut attempts = Attempts::begin(self.context);
        loop {
            match request().await {
                Ok(value) => return Ok(value),
                Err(error) => attempts.pause_after(error, progress).await?,
            }
        }
    }

    /// Ends the record of a creation that the service rejected, if nothing shows that the resource is lanyard's.
    pub(crate) async fn retract_creation(
        &self,
        id: &ResourceId,
        rejection: &EffectError,
    ) -> Result<(), JournalError> {
        if !self.is_final(rejection) {
            return Ok(());
        }
        // Without a reply, the next run decides from the live resource.
        let Ok(live) = self.context.access.read(id).await else { return Ok(()) };
        let Some(live) = live else { return self.record_removed().await };
        let state = self.context.journal.state();
        if OwnershipEvidence::new(state.get(self.key), self.context.tags).is_ours(&live) {
            return Ok(());
        }
        self.record(&live, Ownership::Existing).await
    }

    /// Whether the service rejected the write. Without a reply, or while its operation runs, it can still do it.
    fn is_final(&self, rejection: &EffectError) -> bool {
        let has_ended = matches!(
            rejection.cause,
            EffectErrorCause::OperationFailed
                | EffectErrorCause::Conflict { after_accepting: true }
        );
        let state = self.context.journal.state();
        let phase = state.get(self.key).map(|record| &record.phase);
        let is_running = matches!(phase, Some(WritePhase::Accepted(_)));
        has_ended
            || (matches!(rejection.class, RetryClass::Denied | RetryClass::Invalid) && !is_running)
    }

    /// Deletes the resource, unless it belongs to another client. A resource that does not exist counts as deleted.
    pub(crate) async fn delete(
        &self,
        deletion: Deletion<'_>,
        progress: &StepProgress<'_>,
    ) -> Result<DeletionResult, ResourceError> {
        let RunContext { access, tags, options, .. } = self.context;
        let Deletion { id, record, contained, before } = deletion;
        let Some(live) = self.repeat(progress, async || access.read(id).await).await? else {
            self.record_removed().await?;
            return Ok(DeletionResult::Deleted);
        };
        if !OwnershipEvidence::new(record, tags).is_ours(&live) {
            self.record(&live, Ownership::Existing).await?;
            return Ok(DeletionResult::Kept);
        }
        if A::is_container(id) && !options.removes_unrecorded {
            let read = async || access.read_foreign_content(id, contained, tags).await;
            let resources = self.repeat(progress, read).await?;
            if !resources.is_empty() {
                return Err(ResourceError::OtherResources { id: id.clone(), resources });
            }
        }
        let bodies = WriteBodies { before, desired: None };
        self.announce(id, WriteKind::Delete, bodies).await?;
        let mut attempts = Attempts::begin(self.context);
        loop {
            let sent = match access.delete(id, &live).await {
                Ok(write) => self.follow(write, progress).await,
                Err(error) => Err(error.into()),
            };
            match sent {
                Ok(_) => break,
                Err(ResourceError::Rejected(error))
                    if error.cause == EffectErrorCause::NotFound =>
                {
                    break;
                }
                Err(ResourceError::Rejected(error)) => {
                    attempts.pause_after(error, progress).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.record_removed().await?;
        Ok(DeletionResult::Deleted)
    }
}

/// The attempts of one request.
pub(crate) struct Attempts<'a, A> {
    context: RunContext<'a, A>,
    began: Duration,
    failures: u32,
}

impl<'a, A> Attempts<'a, A> {
    pub(crate) fn begin(context: RunContext<'a, A>) -> Self {
        Self { context, began: context.clock.monotonic(), failures: 0 }
    }

    /// Waits until the next attempt.
    ///
    /// # Errors
    ///
    /// The error if it is final, or if the time of the run for one write is over.
    pub(crate) async fn pause_after(
        &mut self,
        error: EffectError,
        progress: &StepProgress<'_>,
    ) -> Result<(), ResourceError> {
        let asked = match error.class {
            RetryClass::Denied | RetryClass::Invalid => return Err(error.into()),
            RetryClass::Throttled { after } => after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.failures += 1;
        let pause = BACKOFF.delay(self.failures).max(asked);
        let clock = self.context.clock;
        let waited = clock.monotonic().saturating_sub(self.began);
        if waited.saturating_add(pause) > self.context.options.retry_timeout {
            return Err(ResourceError::TimedOut { waited, source: error });
        }
        progress.report(ProgressPhase::Waiting { reason: format_error_chain(&error), pause });
        clock.sleep(pause).await;
        Ok(())
    }
}
