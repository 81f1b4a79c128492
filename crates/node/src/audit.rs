//! Who read which version of what, when, and which rule allowed it. Never a value.
//!
//! The trail is a file (or standard output) of JSON lines. Each line holds the SHA-256 of the line
//! before it and of itself, so that a line that was changed, removed or put in is found
//! ([`verify_chain`]). Whoever can rewrite the whole file can rewrite the chain too: ship the lines,
//! or at least the newest hash, to another place.
//!
//! - A pod's republish that finds the same version again adds nothing: one line for each pod,
//!   object, version and decision. What is remembered for this is bounded, and what is lost is not
//!   remembered, so a line may come twice, never too few times.
//! - A file that was renamed by a rotation is left, and a new one is begun; the chain goes on in it.
//! - A line that cannot be written waits for the next one, up to [`MAX_PENDING_LINES`]; what is lost
//!   beyond that is counted in the trail. Reads do not wait for the trail and do not fail with it.

mod chain;
mod event;
mod output;
mod recent_events;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lanyard_clock::SharedClock;
use parking_lot::Mutex;

pub use chain::{ChainBreak, ChainSummary, is_trail_line, verify_chain};
pub use event::{AuditEvent, AuditRecord, AuditVerdict, ObjectRead, ReadRequester};

use output::LineOutput;
use recent_events::RecentAuditEvents;
use writer::{AuditWriter, AuditWriterMessage};

/// How many lines wait for a file that cannot be written.
pub const MAX_PENDING_LINES: usize = 4096;

/// Where the trail goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditSink {
    /// A file, made with mode 0600, only ever appended to.
    File(PathBuf),
    /// Standard output, for a cluster that collects it.
    Stdout,
}

/// The trail could not be begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file could not be opened or read.
    #[error("the audit trail {} could not be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is no thread for the writer.
    #[error("the audit trail's writer could not be started")]
    Thread(#[source] std::io::Error),
}

impl AuditError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } => "give a file in a directory that exists and that this may write",
            Self::Thread(_) => "look at the limits of processes and threads on the node",
        }
    }
}

/// The trail, as those see it who add to it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AuditTrail(Option<Arc<AuditTrailShared>>);

#[derive(Debug)]
struct AuditTrailShared {
    clock: SharedClock,
    /// What is written, or will be.
    recent: Arc<Mutex<RecentAuditEvents>>,
    queue: Option<SyncSender<AuditWriterMessage>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// How many events found the queue full since the last one that did not.
    dropped_events: Mutex<u64>,
}

impl AuditTrail {
    /// A trail without lines, which only knows what is new: for whoever says it in another place.
    pub fn without_output(clock: SharedClock) -> Self {
        Self(Some(Arc::new(AuditTrailShared {
            clock,
            recent: Arc::default(),
            queue: None,
            writer: Mutex::default(),
            dropped_events: Mutex::new(0),
        })))
    }

    /// A trail that goes nowhere, to which everything is new.
    pub const fn disabled() -> Self {
        Self(None)
    }

    /// Begins a trail, or goes on with the one that the file holds.
    ///
    /// # Errors
    /// If the file cannot be opened: whoever asks for a trail does not want to run without it.
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

    /// Adds an event, unless the same one was added a while ago. Never waits. Whether it is new.
    pub fn record(&self, event: AuditEvent) -> bool {
        let Some(shared) = &self.0 else { return true };
        if event.is_never_deduplicated() || shared.recent.lock().insert(&event) {
            shared.send(event);
            return true;
        }
        false
    }

    /// Waits until everything that was recorded so far is written, or has failed to be, and for two
    /// seconds at most: a disk that hangs keeps no process from its end. Blocks the thread.
    pub fn flush(&self) {
        if let Some(shared) = &self.0
            && !shared.flush(FLUSH_TIMEOUT)
        {
            tracing::error!("the audit trail is not written in time; its last lines may be lost");
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
                    // It is new again when it comes again.
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
    /// Whether the writer has done what it could within `limit`.
    fn flush(&self, limit: Duration) -> bool {
        let Some(queue) = self.queue.clone() else { return true };
        let (done, wait) = sync_channel(1);
        match queue.try_send(AuditWriterMessage::Flush(done)) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                let asking = std::thread::Builder::new().name("audit-flush".to_owned());
                // A writer that has ended by then takes nothing.
                if asking.spawn(move || drop(queue.send(message))).is_err() {
                    return false;
                }
            }
            Err(TrySendError::Disconnected(_)) => return true,
        }
        // A writer that ended has nothing more to write.
        !matches!(wait.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
    }
}

/// How long the last lines are waited for.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Drop for AuditTrailShared {
    /// Writes what is left, unless the file hangs.
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
