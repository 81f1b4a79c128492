//! The background task that follows one file: it reloads the file at the times of the schedule.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lanyard_clock::SharedClock;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::read::VersionReader;
use super::schedule::{DueAction, FollowIntervals, ReadSchedule};
use super::{CredentialFileOptions, ReloadOutcome, SharedFileState};
use crate::file_snapshot::FileSnapshot;
use crate::folder_watch::FolderWatch;
use crate::loader::{LoadError, LoaderState};
use crate::metrics::MetricsHook;

type ReloadReply = oneshot::Sender<ReloadOutcome>;

/// The state of the background task.
pub(super) struct CredentialFileFollower {
    shared: Arc<SharedFileState>,
    reader: VersionReader,
    schedule: ReadSchedule,
    folder: Option<FolderWatch>,
    changed: Arc<Notify>,
    requests: mpsc::Receiver<ReloadReply>,
    snapshot: Option<FileSnapshot>,
    /// The last poll found a change. Two writes within one tick of the file system's clock have equal
    /// timestamps, so the next poll reads the file once more.
    needs_recheck: bool,
}

/// The reasons why the task wakes up.
enum FollowerWakeup {
    ReloadRequest(Option<ReloadReply>),
    FileEvent,
    TimerFired,
}

impl CredentialFileFollower {
    /// Loads the file for the first time. The watch is armed first, so that no change is lost.
    pub(super) async fn open(
        path: PathBuf,
        options: CredentialFileOptions,
        clock: SharedClock,
        metrics: Arc<dyn MetricsHook>,
        requests: mpsc::Receiver<ReloadReply>,
    ) -> Result<Self, LoadError> {
        let changed = Arc::new(Notify::new());
        let watcher_alive = Arc::default();
        let mut folder = options
            .events
            .then(|| FolderWatch::new(&path, Arc::clone(&changed), Arc::clone(&watcher_alive)));
        let snapshot = take_snapshot(&path, folder.as_mut()).await;
        let intervals = FollowIntervals {
            poll_interval: options.poll_interval,
            debounce: options.debounce,
            max_debounce: options.max_debounce,
            resync_interval: options.resync_interval,
        };
        let CredentialFileOptions { parsing, size_limit, equal_timestamps, observer, .. } = options;
        let reader = VersionReader { path: path.clone(), size_limit, parsing };
        let state = LoaderState::first(reader.first_version().await?, clock.now());
        let schedule = ReadSchedule::starting_at(clock.monotonic(), intervals);
        let shared = SharedFileState {
            path,
            equal_timestamps,
            observer,
            metrics,
            clock,
            state: watch::Sender::new(state),
            watcher_alive,
        };
        shared.report_published(&shared.current());
        Ok(Self {
            shared: Arc::new(shared),
            reader,
            schedule,
            folder,
            changed,
            requests,
            snapshot,
            needs_recheck: true,
        })
    }

    pub(super) fn shared(&self) -> Arc<SharedFileState> {
        Arc::clone(&self.shared)
    }

    /// Follows the file until the last handle is dropped.
    pub(super) async fn run(mut self) {
        loop {
            match self.wait().await {
                FollowerWakeup::ReloadRequest(None) => return,
                FollowerWakeup::ReloadRequest(Some(reply)) => self.answer_reloads(reply).await,
                FollowerWakeup::FileEvent => {
                    self.schedule.record_event(self.shared.clock.monotonic());
                }
                FollowerWakeup::TimerFired => {
                    match self.schedule.due(self.shared.clock.monotonic()) {
                        Some(DueAction::Read) => {
                            self.reload().await;
                        }
                        Some(DueAction::Poll) => self.poll().await,
                        None => {}
                    }
                }
            }
        }
    }

    async fn wait(&mut self) -> FollowerWakeup {
        let now = self.shared.clock.monotonic();
        let rest = self.schedule.next_due_at().saturating_sub(now);
        tokio::select! {
            biased;
            request = self.requests.recv() => FollowerWakeup::ReloadRequest(request),
            () = self.changed.notified() => FollowerWakeup::FileEvent,
            () = self.shared.clock.sleep(rest) => FollowerWakeup::TimerFired,
        }
    }

    /// Answers all queued reload requests with one read.
    async fn answer_reloads(&mut self, first: ReloadReply) {
        let mut replies = vec![first];
        while let Ok(reply) = self.requests.try_recv() {
            replies.push(reply);
        }
        let outcome = self.reload().await;
        for reply in replies {
            if reply.send(outcome).is_err() {
                tracing::trace!("a caller no longer waits for its reload");
            }
        }
    }

    /// Polls the file: re-arms the watch, and reads the file if its snapshot differs.
    async fn poll(&mut self) {
        self.schedule.record_poll(self.shared.clock.monotonic());
        let snapshot = take_snapshot(&self.shared.path, self.folder.as_mut()).await;
        let differs = snapshot != self.snapshot;
        self.snapshot = snapshot;
        if differs || self.needs_recheck {
            self.reload().await;
            self.needs_recheck = differs;
        }
    }

    /// Reads the file, decides about its version and publishes the result.
    async fn reload(&mut self) -> ReloadOutcome {
        self.schedule.record_read(self.shared.clock.monotonic());
        self.needs_recheck = true;
        let mut state = self.shared.state.borrow().clone();
        let version = self.reader.next_version(state.known_hashes()).await;
        let now = self.shared.clock.now();
        let decision = state.decide(version, self.shared.equal_timestamps, now);
        self.shared.publish(state, decision)
    }
}

/// Takes a snapshot of the file, and arms the watch on its folder.
async fn take_snapshot(path: &Path, watch: Option<&mut FolderWatch>) -> Option<FileSnapshot> {
    let path = path.to_path_buf();
    let snapshot = spawn_blocking(move || FileSnapshot::of(&path)).await.ok();
    if let Some(watch) = watch {
        watch.ensure_watched(snapshot.as_ref().and_then(|snapshot| snapshot.folder.clone()));
    }
    snapshot
}
