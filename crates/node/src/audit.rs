//! The audit trail: which pod read which version of which object, when, and which rule allowed it. Never a
//! value.
//!
//! The trail is a file (or standard output) of JSON lines. Each line contains the SHA-256 of the line before
//! it and of itself, so that [`verify_chain`] detects a changed, removed or inserted line. A user who can
//! rewrite the whole file can rewrite the chain too: ship the lines, or at least the newest hash, to another
//! place.
//!
//! - A republish that reads an unchanged version adds no line: there is one line for each pod, object,
//!   version and decision. The deduplication remembers a bounded number of events, and no lost ones, so a
//!   line may appear twice, but no event is missing because of it.
//! - After log rotation renames the file, the trail opens a new file and continues the chain in it.
//! - A line that cannot be written stays pending, up to [`MAX_PENDING_LINES`] lines; the trail counts the
//!   events that are lost beyond that. Reads do not wait for the trail and do not fail with it.

mod chain;
mod event;
mod output;
mod recent_events;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lanyard_clock::{ErrorHint, SharedClock};
use parking_lot::Mutex;

pub use chain::{ChainBreak, ChainSummary, is_trail_line, verify_chain};
pub use event::{AuditEvent, AuditRecord, AuditVerdict, ObjectRead, ReadRequester};

use output::LineOutput;
use recent_events::RecentAuditEvents;
use writer::{AuditWriter, AuditWriterMessage};

/// The maximum number of pending lines of a file that cannot be written.
pub const MAX_PENDING_LINES: usize = 4096;

/// The output of the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSink {
    /// A file, created with mode 0600 and only ever appended to.
    File(PathBuf),
    /// Standard output, for a cluster that collects it.
    Stdout,
}

/// The audit trail could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file could not be opened or read.
    #[error("the audit trail {} could not be opened", path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The writer thread could not be started.
    #[error("the audit trail's writer could not be started")]
    Thread(#[source] std::io::Error),
}

impl ErrorHint for AuditError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Open { .. } => {
                "choose a file in an existing directory that the node plugin may write to"
            }
            Self::Thread(_) => "check the limits of processes and threads on the node",
        }))
    }
}

/// The audit trail, for adding events. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AuditTrail(Option<Arc<AuditTrailShared>>);

#[derive(Debug)]
struct AuditTrailShared {
    clock: SharedClock,
    /// The events that are written or pending.
    recent: Arc<Mutex<RecentAuditEvents>>,
    queue: Option<SyncSender<AuditWriterMessage>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// The number of events dropped since the queue was last not full.
    dropped_events: Mutex<u64>,
}

impl AuditTrail {
    /// Creates a trail without output, which only deduplicates events for a caller that logs them.
    pub fn without_output(clock: SharedClock) -> Self {
        Self(Some(Arc::new(AuditTrailShared {
            clock,
            recent: Arc::default(),
            queue: None,
            writer: Mutex::default(),
            dropped_events: Mutex::new(0),
        })))
    }

    /// Creates a disabled trail, which treats every event as new.
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Starts a trail, or continues the one in the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened: a node that is configured with a trail must not run
    /// without it.
    pub fn open(sink: &AuditSink, clock: SharedClock) -> Result<Self, AuditError> {
        let (output, chain) = output::open_output(sink)?;
        Self::with_output(output, chain, clock).map_err(AuditError::Thread)
    }

    fn with_output(
        output: Box<dyn LineOutput>,
        chain: chain::HashChain,
        clock: SharedClock,
    ) -> Result<Self, std::io::Error> {
        let (queue, messages): (_, Receiver<AuditWriterMessage>) = sync_channel(MAX_PENDING_LINES);
        let recent = Arc::default();
        let mut writer = AuditWriter::new(output, chain, Arc::clone(&recent));
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&messages))?;
        let trail = Self(Some(Arc::new(AuditTrailShared {
            clock,
            recent,
            queue: Some(queue),
            writer: Mutex::new(Some(thread)),
            dropped_events: Mutex::new(0),
        })));
        trail.record(AuditEvent::Started { version: env!("CARGO_PKG_VERSION").to_owned() });
        Ok(trail)
    }

    /// Adds an event, unless an equal one was added recently, and returns whether it is new. Never blocks.
    pub fn record(&self, event: AuditEvent) -> bool {
        let Some(shared) = &self.0 else { return true };
        if event.is_never_deduplicated() || shared.recent.lock().insert(&event) {
            shared.send(event);
            return true;
        }
        false
    }

    /// Waits until every recorded event is written or has failed, for at most two seconds, so that a hanging
    /// disk does not block shutdown. Blocks the thread.
    pub fn flush(&self) {
        if let Some(shared) = &self.0
            && !shared.flush(FLUSH_TIMEOUT)
        {
            tracing::error!("the audit trail was not written in time; its last lines may be lost");
        }
    }
}

impl AuditTrailShared {
    fn send(&self, event: AuditEvent) {
        let Some(queue) = &self.queue else { return };
        let mut overflown = self.dropped_events.lock();
        let message = AuditWriterMessage::Event {
            time: self.clock.now(),
            event: Box::new(event),
            lost_before: *overflown,
        };
        match queue.try_send(message) {
            Ok(()) => *overflown = 0,
            Err(TrySendError::Full(lost) | TrySendError::Disconnected(lost)) => {
                if let AuditWriterMessage::Event { event, .. } = lost {
                    // The event counts as new at its next occurrence.
                    self.recent.lock().remove(&event);
                }
                if *overflown == 0 {
                    tracing::error!("the audit trail cannot keep up; events are being lost");
                }
                *overflown += 1;
            }
        }
    }
}

impl AuditTrailShared {
    /// Returns whether the writer has finished within `limit`.
    fn flush(&self, limit: Duration) -> bool {
        let Some(queue) = self.queue.clone() else { return true };
        let (done, wait) = sync_channel(1);
        match queue.try_send(AuditWriterMessage::Flush(done)) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                let asking = std::thread::Builder::new().name("audit-flush".to_owned());
                // A writer that has ended receives no message.
                if asking.spawn(move || drop(queue.send(message))).is_err() {
                    return false;
                }
            }
            Err(TrySendError::Disconnected(_)) => return true,
        }
        // A writer that has ended has no pending lines.
        !matches!(wait.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
    }
}

/// The maximum time for writing the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Drop for AuditTrailShared {
    /// Writes the pending lines, unless the file hangs.
    fn drop(&mut self) {
        let is_flushed = self.flush(FLUSH_TIMEOUT);
        drop(self.queue.take());
        if let Some(writer) = self.writer.lock().take()
            && is_flushed
            && writer.join().is_err()
        {
            tracing::error!("the audit trail's writer ended early");
        }
    }
}
