//! A credential file that is reloaded when it rotates.
//!
//! Three mechanisms detect a change: file events of the folder (immediate, debounced), a poll of links and
//! timestamps once a second, and a full read every six hours. The follower trusts none of them alone, and the
//! decision always depends on the content ([`crate::loader`]).

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

use lanyard_clock::{ErrorHint as _, SharedClock};
use tokio::sync::{mpsc, oneshot, watch};

use crate::generation::{CredentialGeneration, ParseCredentialOptions};
use crate::loader::{
    EqualTimestampPolicy, FileFollowerState, IgnoreReason, KeepReason, LoadDecision, LoadError,
    LoaderHealth, LoaderState,
};
use crate::metrics::{MetricsHook, NoMetrics};
use follower::CredentialFileFollower;

/// A handle to a credential file. Clones share one background task, which ends when the last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct CredentialFile {
    shared: Arc<SharedFileState>,
    requests: mpsc::Sender<oneshot::Sender<ReloadOutcome>>,
}

/// Options for following a credential file.
#[derive(Debug)]
#[non_exhaustive]
pub struct CredentialFileOptions {
    /// Options for parsing the file.
    pub parsing: ParseCredentialOptions,
    /// Whether to accept a version with the same `not_before` and different content.
    pub equal_timestamps: EqualTimestampPolicy,
    /// The interval of unconditional reads; 6 hours, as in the reference system.
    pub resync_interval: Duration,
    /// The interval at which links and timestamps are polled, which bounds the delay after a lost event; 1
    /// second.
    pub poll_interval: Duration,
    /// How long file events must pause before the file is read; 100 milliseconds.
    pub debounce: Duration,
    /// The maximum time to wait for events to pause; 250 milliseconds.
    pub max_debounce: Duration,
    /// Whether to use file events; polling works without them.
    pub events: bool,
    /// The maximum size of the file, in bytes; 1 MiB.
    pub size_limit: u64,
    /// Receives each load result.
    pub observer: Option<Arc<dyn LoadObserver>>,
}

impl Default for CredentialFileOptions {
    fn default() -> Self {
        Self {
            parsing: ParseCredentialOptions::default(),
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

/// Receives load results, for metrics. The follower's task calls it, so it must not block. The default
/// methods do nothing.
pub trait LoadObserver: fmt::Debug + Send + Sync + 'static {
    /// The follower published a generation, the first one included.
    fn generation_published(&self, generation: &CredentialGeneration) {
        let _ = generation;
    }

    /// The file has different content, and the follower keeps the current generation. A rejected version is
    /// reported once, even if it is read again; an unreadable file is reported for each read.
    fn generation_kept(&self, reason: &KeepReason) {
        let _ = reason;
    }
}

/// The result of [`CredentialFile::reload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// A new generation with this number is in use.
    Changed(u64),
    /// The file is unchanged, or contains a version that was rejected.
    Unchanged,
    /// The file could not be used, and the current generation stays. [`CredentialFile::health`] has the
    /// error.
    Failed,
}

/// State that the handles and the follower share.
#[derive(Debug)]
struct SharedFileState {
    path: PathBuf,
    equal_timestamps: EqualTimestampPolicy,
    observer: Option<Arc<dyn LoadObserver>>,
    metrics: Arc<dyn MetricsHook>,
    clock: SharedClock,
    /// Receivers are notified of new generations only.
    state: watch::Sender<LoaderState>,
    watcher_alive: Arc<AtomicBool>,
}

impl SharedFileState {
    fn current(&self) -> Arc<CredentialGeneration> {
        Arc::clone(self.state.borrow().current())
    }

    /// Publishes the state after a decision, and reports the decision. The observer of a new generation can
    /// already use it, and is called before the receivers wake.
    fn publish(&self, state: LoaderState, decision: LoadDecision) -> ReloadOutcome {
        self.state.send_if_modified(|shared| {
            *shared = state;
            false
        });
        let path = self.path.display();
        match decision {
            LoadDecision::Publish(generation) => {
                let (number, not_before) = (generation.number(), generation.not_before());
                tracing::info!(%path, number, %not_before, "credential loaded");
                self.report_published(&generation);
                self.state.send_modify(|_| ());
                ReloadOutcome::Changed(number)
            }
            LoadDecision::Keep(reason) => self.report_kept(&reason),
            LoadDecision::Ignore(IgnoreReason::UnusableBefore) => {
                tracing::debug!(%path, "credential is still the unusable one");
                ReloadOutcome::Failed
            }
            LoadDecision::Ignore(reason) => {
                tracing::debug!(%path, ?reason, "credential unchanged");
                ReloadOutcome::Unchanged
            }
        }
    }

    fn report_published(&self, generation: &CredentialGeneration) {
        self.metrics.generation_loaded(generation.number());
        if let Some(observer) = &self.observer {
            observer.generation_published(generation);
        }
    }

    fn report_kept(&self, reason: &KeepReason) -> ReloadOutcome {
        self.metrics.generation_refused(reason.metric_label());
        if let Some(observer) = &self.observer {
            observer.generation_kept(reason);
        }
        let path = self.path.display();
        match reason {
            KeepReason::Older { offered, current: held } => {
                tracing::warn!(%path, %offered, %held, "older credential refused");
                ReloadOutcome::Unchanged
            }
            KeepReason::EqualTimestamp => {
                tracing::warn!(%path, "rejected a credential with the same not_before");
                ReloadOutcome::Unchanged
            }
            KeepReason::Failed(error) => {
                let hint = error.hint();
                let error: &dyn std::error::Error = error;
                tracing::warn!(%path, error, hint = hint.as_deref(), "credential cannot be used, keeping the current one");
                ReloadOutcome::Failed
            }
        }
    }
}

impl CredentialFile {
    /// Loads the file once and then follows it in a background task.
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if the first load fails; no task is started then.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn open(
        path: impl AsRef<Path> + Send,
        options: CredentialFileOptions,
        clock: SharedClock,
    ) -> Result<Self, LoadError> {
        Self::open_with_metrics(path.as_ref(), options, clock, Arc::new(NoMetrics)).await
    }

    /// Like [`Self::open`], and reports the results of loads to `metrics`, too.
    pub(crate) async fn open_with_metrics(
        path: &Path,
        options: CredentialFileOptions,
        clock: SharedClock,
        metrics: Arc<dyn MetricsHook>,
    ) -> Result<Self, LoadError> {
        let (requests, inbox) = mpsc::channel(RELOAD_QUEUE_SIZE);
        let path = path.to_path_buf();
        let follower = CredentialFileFollower::open(path, options, clock, metrics, inbox).await?;
        let shared = follower.shared();
        tokio::spawn(follower.run());
        Ok(Self { shared, requests })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The generation in use. Never waits for a read of the file.
    pub fn current(&self) -> Arc<CredentialGeneration> {
        self.shared.current()
    }

    /// The previous generation, until it expires.
    ///
    /// It may belong to another identity: check [`CredentialGeneration::is_same_identity`] before using it as
    /// a fallback.
    pub fn previous(&self) -> Option<Arc<CredentialGeneration>> {
        let now = self.shared.clock.now();
        let state = self.shared.state.borrow();
        state.previous().filter(|generation| generation.expires_at() > now).cloned()
    }

    /// Reads the file immediately. The read starts after the call; concurrent calls share one read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future discards the result and does not cancel the read.
    pub async fn reload(&self) -> ReloadOutcome {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(reply).await.is_err() {
            return ReloadOutcome::Failed;
        }
        answer.await.unwrap_or(ReloadOutcome::Failed)
    }

    /// Subscribes to new generations.
    pub(crate) fn subscribe(&self) -> watch::Receiver<LoaderState> {
        self.shared.state.subscribe()
    }

    /// The current state of the loader.
    pub fn health(&self) -> LoaderHealth {
        let follower = FileFollowerState {
            following: !self.requests.is_closed(),
            watcher_alive: self.shared.watcher_alive.load(Ordering::Relaxed),
        };
        let now = self.shared.clock.now();
        self.shared.state.borrow().health(follower, now)
    }
}

/// The capacity of the queue of reload requests; further callers wait.
const RELOAD_QUEUE_SIZE: usize = 64;
