//! The writer thread of the audit trail.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::audit::MAX_PENDING_LINES;
use crate::audit::chain::HashChain;
use crate::audit::event::AuditEvent;
use crate::audit::output::LineOutput;
use crate::audit::recent_events::RecentAuditEvents;

/// The retry interval for pending lines when no other event arrives.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum AuditWriterMessage {
    /// An event to write.
    Event {
        /// The time of the event.
        time: Timestamp,
        event: Box<AuditEvent>,
        /// The number of earlier events that were dropped because the queue was full.
        lost_before: u64,
    },
    /// Writes everything so far, and acknowledges it.
    Flush(SyncSender<()>),
}

/// Writes events as lines of a hash chain. Lines that cannot be written stay pending.
#[derive(Debug)]
pub(super) struct AuditWriter {
    output: Box<dyn LineOutput>,
    chain: HashChain,
    pending_lines: VecDeque<String>,
    lost_events: u64,
    is_failing: bool,
    /// Lost events are removed from it.
    recent: Arc<Mutex<RecentAuditEvents>>,
}

impl AuditWriter {
    pub(super) fn new(
        output: Box<dyn LineOutput>,
        chain: HashChain,
        recent: Arc<Mutex<RecentAuditEvents>>,
    ) -> Self {
        Self {
            output,
            chain,
            pending_lines: VecDeque::new(),
            lost_events: 0,
            is_failing: false,
            recent,
        }
    }

    /// Writes until every sender is dropped.
    pub(super) fn run(&mut self, messages: &Receiver<AuditWriterMessage>) {
        loop {
            let message = if self.pending_lines.is_empty() {
                messages.recv().map_err(|_gone| RecvTimeoutError::Disconnected)
            } else {
                messages.recv_timeout(RETRY_INTERVAL)
            };
            match message {
                Ok(AuditWriterMessage::Event { time, event, lost_before }) => {
                    self.enqueue(time, *event, lost_before);
                    self.write_pending();
                }
                Ok(AuditWriterMessage::Flush(done)) => {
                    self.write_pending();
                    // The requester may have given up.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.write_pending(),
                Err(RecvTimeoutError::Disconnected) => return self.write_pending(),
            }
        }
    }

    /// Adds the event as a pending line, if there is room. The chain is extended only by lines that will be
    /// written, so that lost events appear as a count and not as a broken chain.
    pub(super) fn enqueue(&mut self, time: Timestamp, event: AuditEvent, lost_before: u64) {
        self.lost_events += lost_before;
        if self.pending_lines.len() >= MAX_PENDING_LINES {
            self.lost_events += 1;
            self.recent.lock().remove(&event);
            return;
        }
        if self.lost_events > 0 {
            let count = std::mem::take(&mut self.lost_events);
            self.push_line(time, AuditEvent::Lost { count });
        }
        self.push_line(time, event);
    }

    fn push_line(&mut self, time: Timestamp, event: AuditEvent) {
        match self.chain.next_line(time, event) {
            Ok(line) => self.pending_lines.push_back(line),
            Err(error) => tracing::error!(%error, "an audit event cannot be written as JSON"),
        }
    }

    /// Writes the pending lines, oldest first, until one fails.
    pub(super) fn write_pending(&mut self) {
        while let Some(line) = self.pending_lines.front() {
            match self.output.write_line(line) {
                Ok(()) => {
                    self.pending_lines.pop_front();
                    if std::mem::take(&mut self.is_failing) {
                        tracing::warn!("the audit trail can be written again");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::error!(%error, "the audit trail cannot be written; lines wait");
                    }
                    return;
                }
            }
        }
    }
}
