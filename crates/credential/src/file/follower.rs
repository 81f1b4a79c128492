//! The background task that follows one file: it performs the loader's actions at the times of the schedule.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::{ArcSwap, ArcSwapOption};
use lanyard_clock::{ErrorHint as _, SharedClock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::schedule::{DueAction, FollowIntervals, ReadSchedule};
use super::{CredentialFileOptions, ReloadOutcome, SharedFileState, read};
use crate::file_snapshot::FileSnapshot;
use crate::folder_watch::FolderWatch;
use crate::generation::ParsedCredential;
use crate::loader::{
    CredentialFileContent, CredentialLoader, IgnoreReason, KeepReason, LoadError, LoaderAction,
    LoaderEvent,
};

type ReloadReply = oneshot::Sender<ReloadOutcome>;

/// The state of the background task.
pub(super) struct CredentialFileFollower {
    shared: Arc<SharedFileState>,
    loader: CredentialLoader,
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
        requests: mpsc::Receiver<ReloadReply>,
    ) -> Result<Self, LoadError> {
        let changed = Arc::new(Notify::new());
        let watcher_alive = Arc::new(AtomicBool::new(false));
        let mut folder = options
            .events
            .then(|| FolderWatch::new(&path, Arc::clone(&changed), Arc::clone(&watcher_alive)));
        let probe = take_snapshot(path.clone()).await;
        if let Some(folder) = &mut folder {
            folder.ensure_watched(probe.as_ref().and_then(|probe| probe.folder.clone()));
        }
        let mut loader = CredentialLoader::new(options.equal_timestamps);
        let source = CredentialFileSource { path: &path, options: &options, clock: &clock };
        let current = match source.run_loader(&mut loader, LoaderEvent::ReloadRequested).await {
            LoaderAction::Publish(generation) => generation,
            LoaderAction::Fail(error) | LoaderAction::Keep(KeepReason::Failed(error)) => {
                return Err(error);
            }
            _ => return Err(LoadError::Stopped { path }),
        };
        if let Some(observer) = &options.observer {
            observer.generation_published(&current);
        }
        let schedule = ReadSchedule::starting_at(clock.monotonic(), intervals(&options));
        let shared = Arc::new(SharedFileState {
            number: watch::Sender::new(current.number()),
            current: ArcSwap::new(current),
            previous: ArcSwapOption::empty(),
            report: ArcSwap::from_pointee(loader.report().clone()),
            path,
            options,
            clock,
            watcher_alive,
        });
        Ok(Self {
            shared,
            loader,
            schedule,
            folder,
            changed,
            requests,
            snapshot: probe,
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
                        Some(DueAction::EventsSettled) => {
                            self.load(LoaderEvent::FileChanged).await;
                        }
                        Some(DueAction::Resync) => {
                            self.load(LoaderEvent::ResyncDue).await;
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
        let outcome = self.load(LoaderEvent::ReloadRequested).await;
        for reply in replies {
            if reply.send(outcome).is_err() {
                tracing::trace!("a caller no longer waits for its reload");
            }
        }
    }

    /// Polls the file: re-arms the watch, and reads the file if its snapshot differs.
    async fn poll(&mut self) {
        self.schedule.record_poll(self.shared.clock.monotonic());
        let probe = take_snapshot(self.shared.path.clone()).await;
        if let Some(folder) = &mut self.folder {
            folder.ensure_watched(probe.as_ref().and_then(|probe| probe.folder.clone()));
        }
        let differs = probe != self.snapshot;
        self.snapshot = probe;
        if differs || self.needs_recheck {
            self.load(LoaderEvent::FileChanged).await;
            self.needs_recheck = differs;
        }
    }

    /// Reads the file and performs the loader's actions.
    async fn load(&mut self, cause: LoaderEvent) -> ReloadOutcome {
        self.schedule.record_read(self.shared.clock.monotonic());
        self.needs_recheck = true;
        let shared = Arc::clone(&self.shared);
        let source = CredentialFileSource {
            path: &shared.path,
            options: &shared.options,
            clock: &shared.clock,
        };
        let action = source.run_loader(&mut self.loader, cause).await;
        self.apply_action(action)
    }

    fn apply_action(&mut self, action: LoaderAction) -> ReloadOutcome {
        self.notify_observer(&action);
        // Store the fallback first, so that a reader of the new generation also finds its fallback.
        self.shared.previous.store(self.loader.previous().cloned());
        self.shared.report.store(Arc::new(self.loader.report().clone()));
        let path = self.shared.path.display();
        match action {
            LoaderAction::Publish(generation) => {
                let number = generation.number();
                let not_before = generation.not_before();
                tracing::info!(%path, number, %not_before, "credential loaded");
                self.shared.current.store(generation);
                self.shared.number.send_replace(number);
                ReloadOutcome::Changed(number)
            }
            LoaderAction::Keep(KeepReason::Older { offered, current: held }) => {
                tracing::warn!(%path, %offered, %held, "older credential refused");
                ReloadOutcome::Unchanged
            }
            LoaderAction::Keep(KeepReason::EqualTimestamp) => {
                tracing::warn!(%path, "rejected a credential with the same not_before");
                ReloadOutcome::Unchanged
            }
            LoaderAction::Keep(KeepReason::Failed(error)) | LoaderAction::Fail(error) => {
                let hint = error.hint();
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%path, error, hint = hint.as_deref(), "credential cannot be used, keeping the current one");
                ReloadOutcome::Failed
            }
            LoaderAction::Ignore(IgnoreReason::UnusableBefore) => {
                tracing::debug!(%path, "credential is still the unusable one");
                ReloadOutcome::Failed
            }
            LoaderAction::Ignore(reason) => {
                tracing::debug!(%path, ?reason, "credential unchanged");
                ReloadOutcome::Unchanged
            }
            LoaderAction::Read | LoaderAction::Parse(_) => ReloadOutcome::Failed,
        }
    }

    fn notify_observer(&self, action: &LoaderAction) {
        let Some(observer) = &self.shared.options.observer else { return };
        match action {
            LoaderAction::Publish(generation) => observer.generation_published(generation),
            LoaderAction::Keep(reason) => observer.generation_kept(reason),
            _ => {}
        }
    }
}

/// The path of the file and the options for parsing it.
struct CredentialFileSource<'a> {
    path: &'a PathBuf,
    options: &'a CredentialFileOptions,
    clock: &'a SharedClock,
}

impl CredentialFileSource<'_> {
    /// Performs the loader's actions until it is done.
    async fn run_loader(&self, loader: &mut CredentialLoader, cause: LoaderEvent) -> LoaderAction {
        let mut event = cause;
        loop {
            event = match loader.handle(event, self.clock.now()) {
                LoaderAction::Read => LoaderEvent::Read(self.read().await),
                LoaderAction::Parse(content) => LoaderEvent::Parsed(self.parse(content).await),
                settled => return settled,
            };
        }
    }

    async fn read(&self) -> Result<CredentialFileContent, LoadError> {
        let (path, limit) = (self.path.clone(), self.options.size_limit);
        let read = spawn_blocking(move || read::read(&path, limit)).await;
        read.unwrap_or_else(|_| Err(LoadError::Stopped { path: self.path.clone() }))
    }

    /// Parses on a blocking thread: opening an archive may take long, and a panic in the parser must not end
    /// the task.
    async fn parse(
        &self,
        content: CredentialFileContent,
    ) -> Result<Box<ParsedCredential>, LoadError> {
        let options = self.options.parsing.clone();
        let path = self.path.clone();
        let parsed =
            spawn_blocking(move || ParsedCredential::parse(content.bytes(), &options)).await;
        match parsed {
            Ok(Ok(credential)) => Ok(Box::new(credential)),
            Ok(Err(source)) => Err(LoadError::Content { path, source }),
            Err(_) => Err(LoadError::Stopped { path }),
        }
    }
}

async fn take_snapshot(path: PathBuf) -> Option<FileSnapshot> {
    spawn_blocking(move || FileSnapshot::of(&path)).await.ok()
}

fn intervals(options: &CredentialFileOptions) -> FollowIntervals {
    FollowIntervals {
        poll_interval: options.poll_interval,
        debounce: options.debounce,
        max_debounce: options.max_debounce,
        resync_interval: options.resync_interval,
    }
}
