//! The thread that writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::audit::WAITING_LINES;
use crate::audit::chain::Chain;
use crate::audit::event::AuditEvent;
use crate::audit::output::LineOutput;
use crate::audit::recent::Recent;

/// How long lines that could not be written wait when no other comes.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What the writer is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Something happened.
    Event {
        /// When.
        time: Timestamp,
        /// What.
        event: Box<AuditEvent>,
        /// How many events before it found no room.
        lost_before: u64,
    },
    /// Everything so far is to be written; say when it is.
    Flush(SyncSender<()>),
}

/// Writes events as lines of a chain. Lines that cannot be written wait.
#[derive(Debug)]
pub(super) struct Writer {
    output: Box<dyn LineOutput>,
    chain: Chain,
    waiting: VecDeque<String>,
    lost: u64,
    is_failing: bool,
    /// What is lost is not remembered there.
    recent: Arc<Mutex<Recent>>,
}

impl Writer {
    pub(super) fn new(
        output: Box<dyn LineOutput>,
        chain: Chain,
        recent: Arc<Mutex<Recent>>,
    ) -> Self {
        Self { output, chain, waiting: VecDeque::new(), lost: 0, is_failing: false, recent }
    }

    /// Writes until nobody is left who could add something.
    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            let message = if self.waiting.is_empty() {
                messages.recv().map_err(|_gone| RecvTimeoutError::Disconnected)
            } else {
                messages.recv_timeout(TRY_AGAIN)
            };
            match message {
                Ok(Message::Event { time, event, lost_before }) => {
                    self.take(time, *event, lost_before);
                    self.write();
                }
                Ok(Message::Flush(done)) => {
                    self.write();
                    // Whoever asked may have gone away.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.write(),
                Err(RecvTimeoutError::Disconnected) => return self.write(),
            }
        }
    }

    /// Makes the event a line, if there is room. The chain is extended only by lines that will be
    /// written, so that a gap shows as a count and not as a break.
    pub(super) fn take(&mut self, time: Timestamp, event: AuditEvent, lost_before: u64) {
        self.lost += lost_before;
        if self.waiting.len() >= WAITING_LINES {
            self.lost += 1;
            self.recent.lock().remove(&event);
            return;
        }
        if self.lost > 0 {
            let count = std::mem::take(&mut self.lost);
            self.push(time, AuditEvent::Lost { count });
        }
        self.push(time, event);
    }

    fn push(&mut self, time: Timestamp, event: AuditEvent) {
        match self.chain.line(time, event) {
            Ok(line) => self.waiting.push_back(line),
            Err(error) => tracing::error!(%error, "an audit event cannot be written as JSON"),
        }
    }

    /// Writes the lines that wait, oldest first, until one cannot be written.
    pub(super) fn write(&mut self) {
        while let Some(line) = self.waiting.front() {
            match self.output.write_line(line) {
                Ok(()) => {
                    self.waiting.pop_front();
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
