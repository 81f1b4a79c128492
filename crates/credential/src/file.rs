//! A credential file that is followed as it rotates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use lanyard_clock::SharedClock;
use tokio::sync::watch;

use crate::generation::{Candidate, CandidateError, CandidateOptions, Generation};
use crate::loader::{LoadCounts, LoaderHealth};

/// A handle to a credential file; clones share it, and dropping the last one ends its task.
#[derive(Debug, Clone)]
pub struct CredentialFile {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    options: FileOptions,
    clock: SharedClock,
    current: ArcSwap<Generation>,
    previous: ArcSwapOption<Generation>,
    number: watch::Sender<u64>,
}

/// How a file is followed.
#[derive(Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// How its content is understood.
    pub candidate: CandidateOptions,
    /// How long until the file is read again though nothing seems to have changed; 6 hours, as in
    /// the reference system.
    pub backstop: Duration,
    /// The largest file that is read, in bytes.
    pub size_limit: u64,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            candidate: CandidateOptions::default(),
            backstop: Duration::from_secs(6 * 60 * 60),
            size_limit: 1024 * 1024,
        }
    }
}

/// What a call of [`CredentialFile::reload`] brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// A new generation is in use; this is its number.
    Changed(u64),
    /// The file says nothing new, or something that was refused.
    Unchanged,
    /// The file could not be used; the old generation stays. The health says why.
    Failed,
}

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The content cannot be used.
    #[error("cannot use {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CandidateError,
    },
}

impl CredentialFile {
    /// Loads the file once and then follows it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if the first load fails: nothing is followed then.
    pub async fn open(
        path: impl AsRef<Path> + Send,
        options: FileOptions,
        clock: SharedClock,
    ) -> Result<Self, LoadError> {
        let path = path.as_ref().to_path_buf();
        let bytes = match tokio::fs::read(&path).await {
            Ok(bytes) => bytes,
            Err(source) => return Err(LoadError::Read { path, source }),
        };
        let candidate = match Candidate::parse(&bytes, &options.candidate) {
            Ok(candidate) => candidate,
            Err(source) => return Err(LoadError::Content { path, source }),
        };
        let current = Generation::new(1, candidate, clock.now());
        let shared = Shared {
            path,
            options,
            clock,
            current: ArcSwap::from_pointee(current),
            previous: ArcSwapOption::empty(),
            number: watch::channel(1).0,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The generation in use. Never blocks.
    pub fn current(&self) -> Arc<Generation> {
        self.shared.current.load_full()
    }

    /// The generation before, until it expires.
    pub fn previous(&self) -> Option<Arc<Generation>> {
        let now = self.shared.clock.now();
        self.shared.previous.load_full().filter(|generation| generation.expires_at() > now)
    }

    /// Reads the file at once. Calls that meet share one read.
    pub async fn reload(&self) -> Reload {
        let Ok(bytes) = tokio::fs::read(&self.shared.path).await else { return Reload::Failed };
        let Ok(candidate) = Candidate::parse(&bytes, &self.shared.options.candidate) else {
            return Reload::Failed;
        };
        let current = self.current();
        if candidate.content_hash() == current.content_hash() {
            return Reload::Unchanged;
        }
        let number = current.number() + 1;
        let generation = Generation::new(number, candidate, self.shared.clock.now());
        self.shared.previous.store(Some(current));
        self.shared.current.store(Arc::new(generation));
        self.shared.number.send_replace(number);
        Reload::Changed(number)
    }

    /// The number of the generation in use, as it changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.number.subscribe()
    }

    /// The state of the loader.
    pub fn health(&self) -> LoaderHealth {
        let current = self.current();
        let now = self.shared.clock.now();
        let stamps = current.stamps();
        let until = |stamp: jiff::Timestamp| stamp.as_second() - now.as_second();
        LoaderHealth {
            generation: current.number(),
            loaded_at: current.loaded_at(),
            last_error: None,
            counts: LoadCounts::default(),
            watcher_alive: false,
            seconds_to_not_after: stamps.not_after.map(until),
            seconds_to_renew_after: stamps.renew_after.map(until),
            seconds_to_cannot_renew_after: stamps.cannot_renew_after.map(until),
            seconds_to_certificate_expiry: until(current.certificate_validity().not_after),
            warnings: Vec::new(),
        }
    }
}
