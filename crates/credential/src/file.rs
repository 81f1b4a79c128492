//! A credential file that is followed as it rotates.
//!
//! Three lines of defence find a change: events of the folder (at once, after a short quiet time),
//! a glance at links and times once a second, and a full read every six hours. None is trusted
//! alone, and the decision always rests on the content ([`crate::loader`]).

mod follower;
mod read;
mod schedule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use lanyard_clock::SharedClock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::generation::{CandidateOptions, CredentialGeneration};
use crate::loader::{
    EqualTimestampPolicy, FileFollowerState, KeepReason, LoaderHealth, LoaderReport,
};
use follower::CredentialFileFollower;

pub use crate::loader::LoadError;

/// A handle to a credential file; clones share it, and dropping the last one ends its task.
#[derive(Debug, Clone)]
pub struct CredentialFile {
    shared: Arc<SharedFileState>,
    requests: mpsc::Sender<oneshot::Sender<ReloadOutcome>>,
}

/// How a file is followed.
#[derive(Debug)]
#[non_exhaustive]
pub struct CredentialFileOptions {
    /// How its content is understood.
    pub candidate: CandidateOptions,
    /// Whether a version with the same `not_before` and other content is taken.
    pub equal_timestamps: EqualTimestampPolicy,
    /// How long until the file is read again though nothing seems to have changed; 6 hours, as in
    /// the reference system.
    pub resync_interval: Duration,
    /// How often links and times are looked at, so that a lost event costs no more than this;
    /// 1 second.
    pub poll_interval: Duration,
    /// How long file events must have been quiet before the file is read; 100 milliseconds.
    pub debounce: Duration,
    /// How long events are waited out at most; 250 milliseconds.
    pub max_debounce: Duration,
    /// Whether file events are used at all; polling alone also works.
    pub events: bool,
    /// The largest file that is read, in bytes; 1 MiB.
    pub size_limit: u64,
    /// Who hears of what the file brings.
    pub observer: Option<Arc<dyn LoadObserver>>,
}

impl Default for CredentialFileOptions {
    fn default() -> Self {
        Self {
            candidate: CandidateOptions::default(),
            equal_timestamps: EqualTimestampPolicy::default(),
            resync_interval: Duration::from_hours(6),
            poll_interval: Duration::from_secs(1),
            debounce: Duration::from_millis(100),
            max_debounce: Duration::from_millis(250),
            events: true,
            size_limit: 1024 * 1024,
            observer: None,
        }
    }
}

/// Hears of what a file brings, for metrics. Called from the task that follows the file, so it must
/// not block; every method does nothing unless implemented.
pub trait LoadObserver: fmt::Debug + Send + Sync + 'static {
    /// A generation was taken into use, the first one included.
    fn generation_published(&self, generation: &CredentialGeneration) {
        let _ = generation;
    }

    /// The file holds something else, and the old generation stays. A version is refused once,
    /// however often it is read; a file that cannot be read is reported each time.
    fn generation_kept(&self, reason: &KeepReason) {
        let _ = reason;
    }
}

/// What a call of [`CredentialFile::reload`] brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// A new generation is in use; this is its number.
    Changed(u64),
    /// The file says nothing new, or something that was refused.
    Unchanged,
    /// The file could not be used; the old generation stays. The health says why.
    Failed,
}

/// What handles and the follower share.
#[derive(Debug)]
struct SharedFileState {
    path: PathBuf,
    options: CredentialFileOptions,
    clock: SharedClock,
    current: ArcSwap<CredentialGeneration>,
    previous: ArcSwapOption<CredentialGeneration>,
    report: ArcSwap<LoaderReport>,
    number: watch::Sender<u64>,
    watcher_alive: Arc<AtomicBool>,
}

impl CredentialFile {
    /// Loads the file once and then follows it in a task of its own.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if the first load fails: nothing is followed then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn open(
        path: impl AsRef<Path> + Send,
        options: CredentialFileOptions,
        clock: SharedClock,
    ) -> Result<Self, LoadError> {
        let path = path.as_ref().to_path_buf();
        let (requests, inbox) = mpsc::channel(RELOAD_QUEUE_SIZE);
        let follower = CredentialFileFollower::open(path, options, clock, inbox).await?;
        let shared = follower.shared();
        tokio::spawn(follower.run());
        Ok(Self { shared, requests })
    }

    /// The file that is followed.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The generation in use. Never blocks.
    pub fn current(&self) -> Arc<CredentialGeneration> {
        self.shared.current.load_full()
    }

    /// The generation before, until it expires.
    ///
    /// It may be of another identity; ask [`CredentialGeneration::is_same_identity`] before falling back.
    pub fn previous(&self) -> Option<Arc<CredentialGeneration>> {
        let now = self.shared.clock.now();
        self.shared.previous.load_full().filter(|generation| generation.expires_at() > now)
    }

    /// Reads the file at once. The read begins after the call; calls that wait together share it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the answer, not the read.
    pub async fn reload(&self) -> ReloadOutcome {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(reply).await.is_err() {
            return ReloadOutcome::Failed;
        }
        answer.await.unwrap_or(ReloadOutcome::Failed)
    }

    /// The number of the generation in use, as it changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.number.subscribe()
    }

    /// The state of the loader now.
    pub fn health(&self) -> LoaderHealth {
        let follower = FileFollowerState {
            following: !self.requests.is_closed(),
            watcher_alive: self.shared.watcher_alive.load(Ordering::Relaxed),
        };
        let now = self.shared.clock.now();
        self.shared.report.load().health(&self.shared.current.load(), follower, now)
    }
}

/// How many reloads may wait before callers wait to ask.
const RELOAD_QUEUE_SIZE: usize = 64;
