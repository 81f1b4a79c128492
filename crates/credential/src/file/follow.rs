//! The task that follows one file: it does what the loader says, when the schedule says so.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::{ArcSwap, ArcSwapOption};
use lanyard_clock::SharedClock;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

use super::schedule::{Due, Intervals, Schedule};
use super::{FileOptions, Reload, Shared, read};
use crate::generation::Candidate;
use crate::loader::{Action, Content, Event, IgnoreReason, KeepReason, LoadError, Loader};
use crate::probe::Probe;
use crate::watch::FolderWatch;

type Reply = oneshot::Sender<Reload>;

/// The state of the task.
pub(super) struct Follower {
    shared: Arc<Shared>,
    loader: Loader,
    schedule: Schedule,
    folder: Option<FolderWatch>,
    changed: Arc<Notify>,
    requests: mpsc::Receiver<Reply>,
    probe: Option<Probe>,
    /// Something changed at the last look. Two writes within one tick of the file system's clock
    /// look like one, so the next look reads once more.
    unsettled: bool,
}

/// What woke the task.
enum Wake {
    Handles(Option<Reply>),
    FileEvent,
    Time,
}

impl Follower {
    /// Loads the file for the first time; the watch is armed before, so that no change is lost.
    pub(super) async fn open(
        path: PathBuf,
        options: FileOptions,
        clock: SharedClock,
        requests: mpsc::Receiver<Reply>,
    ) -> Result<Self, LoadError> {
        let changed = Arc::new(Notify::new());
        let watcher_alive = Arc::new(AtomicBool::new(false));
        let mut folder = options
            .events
            .then(|| FolderWatch::new(&path, Arc::clone(&changed), Arc::clone(&watcher_alive)));
        let probe = look(path.clone()).await;
        if let Some(folder) = &mut folder {
            folder.arm(probe.as_ref().and_then(|probe| probe.folder.clone()));
        }
        let mut loader = Loader::new(options.equal_stamps);
        let source = Source { path: &path, options: &options, clock: &clock };
        let current = match source.drive(&mut loader, Event::ReloadRequested).await {
            Action::Publish(generation) => generation,
            Action::Fail(error) | Action::Keep(KeepReason::Failed(error)) => return Err(error),
            _ => return Err(LoadError::Stopped { path }),
        };
        if let Some(observer) = &options.observer {
            observer.published(&current);
        }
        let schedule = Schedule::starting_at(clock.monotonic(), intervals(&options));
        let shared = Arc::new(Shared {
            number: watch::Sender::new(current.number()),
            current: ArcSwap::new(current),
            previous: ArcSwapOption::empty(),
            report: ArcSwap::from_pointee(loader.report().clone()),
            path,
            options,
            clock,
            watcher_alive,
        });
        Ok(Self { shared, loader, schedule, folder, changed, requests, probe, unsettled: true })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Follows the file until the last handle is gone.
    pub(super) async fn run(mut self) {
        loop {
            match self.wait().await {
                Wake::Handles(None) => return,
                Wake::Handles(Some(reply)) => self.answer(reply).await,
                Wake::FileEvent => self.schedule.note_event(self.shared.clock.monotonic()),
                Wake::Time => match self.schedule.due(self.shared.clock.monotonic()) {
                    Some(Due::Settled) => {
                        self.load(Event::FileChanged).await;
                    }
                    Some(Due::Backstop) => {
                        self.load(Event::BackstopTick).await;
                    }
                    Some(Due::Poll) => self.poll().await,
                    None => {}
                },
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let now = self.shared.clock.monotonic();
        let rest = self.schedule.next().saturating_sub(now);
        tokio::select! {
            biased;
            request = self.requests.recv() => Wake::Handles(request),
            () = self.changed.notified() => Wake::FileEvent,
            () = self.shared.clock.sleep(rest) => Wake::Time,
        }
    }

    /// One read for everybody who has asked until now.
    async fn answer(&mut self, first: Reply) {
        let mut replies = vec![first];
        while let Ok(reply) = self.requests.try_recv() {
            replies.push(reply);
        }
        let outcome = self.load(Event::ReloadRequested).await;
        for reply in replies {
            if reply.send(outcome).is_err() {
                tracing::trace!("a caller no longer waits for its reload");
            }
        }
    }

    /// A glance: re-arms the watch, and reads if anything looks different.
    async fn poll(&mut self) {
        self.schedule.note_poll(self.shared.clock.monotonic());
        let probe = look(self.shared.path.clone()).await;
        if let Some(folder) = &mut self.folder {
            folder.arm(probe.as_ref().and_then(|probe| probe.folder.clone()));
        }
        let differs = probe != self.probe;
        self.probe = probe;
        if differs || self.unsettled {
            self.load(Event::FileChanged).await;
            self.unsettled = differs;
        }
    }

    /// Reads the file and does what the loader says.
    async fn load(&mut self, cause: Event) -> Reload {
        self.schedule.note_read(self.shared.clock.monotonic());
        self.unsettled = true;
        let shared = Arc::clone(&self.shared);
        let source = Source { path: &shared.path, options: &shared.options, clock: &shared.clock };
        let action = source.drive(&mut self.loader, cause).await;
        self.take(action)
    }

    fn take(&mut self, action: Action) -> Reload {
        self.tell_observer(&action);
        // Before the new generation shows, so that whoever sees it also finds its fallback.
        self.shared.previous.store(self.loader.previous().cloned());
        self.shared.report.store(Arc::new(self.loader.report().clone()));
        let path = self.shared.path.display();
        match action {
            Action::Publish(generation) => {
                let number = generation.number();
                let not_before = generation.not_before();
                tracing::info!(%path, number, %not_before, "credential taken into use");
                self.shared.current.store(generation);
                self.shared.number.send_replace(number);
                Reload::Changed(number)
            }
            Action::Keep(KeepReason::Older { offered, held }) => {
                tracing::warn!(%path, %offered, %held, "older credential refused");
                Reload::Unchanged
            }
            Action::Keep(KeepReason::EqualStamp) => {
                tracing::warn!(%path, "credential with the same not_before refused");
                Reload::Unchanged
            }
            Action::Keep(KeepReason::Failed(error)) | Action::Fail(error) => {
                let hint = error.hint();
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%path, error, hint, "credential cannot be used, the old one stays");
                Reload::Failed
            }
            Action::Ignore(IgnoreReason::UnusableBefore) => {
                tracing::debug!(%path, "credential is still the one that cannot be used");
                Reload::Failed
            }
            Action::Ignore(reason) => {
                tracing::debug!(%path, ?reason, "credential unchanged");
                Reload::Unchanged
            }
            Action::Read | Action::Parse(_) => Reload::Failed,
        }
    }

    fn tell_observer(&self, action: &Action) {
        let Some(observer) = &self.shared.options.observer else { return };
        match action {
            Action::Publish(generation) => observer.published(generation),
            Action::Keep(reason) => observer.kept(reason),
            _ => {}
        }
    }
}

/// Where the bytes come from and how they are understood.
struct Source<'a> {
    path: &'a PathBuf,
    options: &'a FileOptions,
    clock: &'a SharedClock,
}

impl Source<'_> {
    /// Does what the loader asks for, until it asks for nothing more.
    async fn drive(&self, loader: &mut Loader, cause: Event) -> Action {
        let mut event = cause;
        loop {
            event = match loader.on(event, self.clock.now()) {
                Action::Read => Event::Read(self.read().await),
                Action::Parse(content) => Event::Parsed(self.parse(content).await),
                settled => return settled,
            };
        }
    }

    async fn read(&self) -> Result<Content, LoadError> {
        let (path, limit) = (self.path.clone(), self.options.size_limit);
        let read = spawn_blocking(move || read::read(&path, limit)).await;
        read.unwrap_or_else(|_| Err(LoadError::Stopped { path: self.path.clone() }))
    }

    /// Parses away from the runtime: opening an archive may take long, and a panic in there must
    /// not end the task.
    async fn parse(&self, content: Content) -> Result<Box<Candidate>, LoadError> {
        let options = self.options.candidate.clone();
        let path = self.path.clone();
        let parsed = spawn_blocking(move || Candidate::parse(content.bytes(), &options)).await;
        match parsed {
            Ok(Ok(candidate)) => Ok(Box::new(candidate)),
            Ok(Err(source)) => Err(LoadError::Content { path, source }),
            Err(_) => Err(LoadError::Stopped { path }),
        }
    }
}

async fn look(path: PathBuf) -> Option<Probe> {
    spawn_blocking(move || Probe::of(&path)).await.ok()
}

fn intervals(options: &FileOptions) -> Intervals {
    Intervals {
        poll: options.poll,
        quiet: options.quiet,
        patience: options.patience,
        backstop: options.backstop,
    }
}
