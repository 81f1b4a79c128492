//! What to do with each version of a credential file: a state machine without IO.
//!
//! The rules, in the order in which they are asked:
//!
//! 1. The same bytes as the version in use, or as the version that was refused or could not be used
//!    last, are ignored; the health goes on saying what is wrong.
//! 2. Bytes that cannot be used keep the old version, and are remembered. A file that cannot be
//!    read is tried again whenever something may have changed.
//! 3. An older `not_before` is refused, counted and reported.
//! 4. A newer `not_before` is taken; so is an equal one, because a rotation may carry equal stamps
//!    and a repaired file keeps its own ([`EqualStamps::Refuse`] is the rule of msi-dataplane).
//!
//! Before anything is in use, every failure is final: the first load fails fast.

mod error;
mod health;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;

pub use error::LoadError;
pub use health::{HealthWarning, LoadCounts, LoadFailure, LoaderHealth};

pub(crate) use health::{FollowerState, Report, validity_warnings};

use crate::generation::{Candidate, ContentHash, Generation};
use crate::secret::SecretBytes;

/// Whether a version with the `not_before` of the version in use, and other content, is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EqualStamps {
    /// It is taken.
    #[default]
    Take,
    /// It is refused, as msi-dataplane does.
    Refuse,
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The file may have changed.
    FileChanged,
    /// The file has not been read for a long time.
    BackstopTick,
    /// Somebody wants the newest version now.
    ReloadRequested,
    /// The answer to [`Action::Read`].
    Read(Result<Content, LoadError>),
    /// The answer to [`Action::Parse`].
    Parsed(Result<Box<Candidate>, LoadError>),
}

/// What to do about it. Every event has exactly one action.
#[derive(Debug)]
#[non_exhaustive]
pub enum Action {
    /// Read the file and answer with [`Event::Read`].
    Read,
    /// Parse the content and answer with [`Event::Parsed`].
    Parse(Content),
    /// Take this generation into use.
    Publish(Arc<Generation>),
    /// Nothing changes, and nothing is wrong.
    Ignore(IgnoreReason),
    /// The file holds something else, and the old generation stays all the same.
    Keep(KeepReason),
    /// There is no old generation to keep: give up.
    Fail(LoadError),
}

/// Why a version makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoreReason {
    /// Its bytes are those of the version in use.
    SameContent,
    /// Its bytes are those of the version that was refused last.
    RefusedBefore,
    /// Its bytes are those of the version that could not be used last: still not.
    UnusableBefore,
}

/// Why the old generation stays.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeepReason {
    /// The file cannot be read or used.
    Failed(LoadError),
    /// Its `not_before` is older than that of the generation in use.
    Older {
        /// The stamp of the file.
        offered: Timestamp,
        /// The stamp of the generation in use.
        held: Timestamp,
    },
    /// Its `not_before` is that of the generation in use, and [`EqualStamps::Refuse`] holds.
    EqualStamp,
}

impl KeepReason {
    /// A fixed word for metrics: `older`, `equal` or `unusable`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Failed(_) => "unusable",
            Self::Older { .. } => "older",
            Self::EqualStamp => "equal",
        }
    }
}

/// The bytes of one version of the file.
#[derive(Debug)]
pub struct Content {
    bytes: SecretBytes,
    hash: ContentHash,
}

impl Content {
    /// Takes the bytes and hashes them.
    pub fn new(bytes: impl Into<SecretBytes>) -> Self {
        let bytes = bytes.into();
        let hash = ContentHash::of(bytes.expose());
        Self { bytes, hash }
    }

    /// The hash of the bytes.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.expose()
    }
}

/// The state machine of one file.
#[derive(Debug, Default)]
pub struct Loader {
    equal_stamps: EqualStamps,
    current: Option<Arc<Generation>>,
    previous: Option<Arc<Generation>>,
    refused: Option<ContentHash>,
    /// What [`Event::Parsed`] will be about.
    parsing: Option<ContentHash>,
    unusable: Option<(ContentHash, LoadFailure)>,
    report: Report,
}

impl Loader {
    /// A machine that has seen nothing.
    pub fn new(equal_stamps: EqualStamps) -> Self {
        Self { equal_stamps, ..Self::default() }
    }

    /// The generation in use, once there is one.
    pub fn current(&self) -> Option<&Arc<Generation>> {
        self.current.as_ref()
    }

    /// The generation before, until it expires: a fallback if the new one turns out broken.
    pub fn previous(&self) -> Option<&Arc<Generation>> {
        self.previous.as_ref()
    }

    /// Answers one event. `now` is the time at which it happened.
    pub fn on(&mut self, event: Event, now: Timestamp) -> Action {
        if self.previous.as_ref().is_some_and(|previous| previous.expires_at() <= now) {
            self.previous = None;
        }
        match event {
            Event::FileChanged | Event::BackstopTick | Event::ReloadRequested => Action::Read,
            Event::Read(Ok(content)) => self.on_content(content),
            Event::Read(Err(error)) => self.on_failure(error, now),
            Event::Parsed(Ok(candidate)) => self.on_candidate(*candidate, now),
            Event::Parsed(Err(error)) => {
                // With nothing to keep, every failure is final, the same one again included.
                let remembered = self.current.is_some() && is_final(&error);
                let hash = self.parsing.take().filter(|_| remembered);
                self.unusable = hash.map(|hash| (hash, LoadFailure::of(&error, now)));
                self.on_failure(error, now)
            }
        }
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    fn on_content(&mut self, content: Content) -> Action {
        let in_use = self.current.as_ref().map(|generation| generation.content_hash());
        if in_use == Some(content.hash) {
            (self.refused, self.unusable) = (None, None);
            self.report.refusal = None;
            return self.ignore(IgnoreReason::SameContent);
        }
        if self.refused == Some(content.hash) {
            return self.ignore(IgnoreReason::RefusedBefore);
        }
        if let Some((_, failure)) = self.unusable.as_ref().filter(|(hash, _)| *hash == content.hash)
        {
            let failure = failure.clone();
            let action = self.ignore(IgnoreReason::UnusableBefore);
            self.report.last_error = Some(failure);
            return action;
        }
        self.parsing = Some(content.hash);
        Action::Parse(content)
    }

    fn ignore(&mut self, reason: IgnoreReason) -> Action {
        self.report.last_error = None;
        self.report.counts.unchanged += 1;
        Action::Ignore(reason)
    }

    fn on_candidate(&mut self, candidate: Candidate, now: Timestamp) -> Action {
        self.report.last_error = None;
        let offered = candidate.stamps().not_before;
        let Some(current) = &self.current else { return self.publish(candidate, now) };
        let held = current.not_before();
        if offered > held || (offered == held && self.equal_stamps == EqualStamps::Take) {
            return self.publish(candidate, now);
        }
        self.refused = Some(candidate.content_hash());
        let warning = HealthWarning::FileRefused { offered, held };
        self.report.refusal = Some(warning);
        if offered == held {
            self.report.counts.refused_equal += 1;
            return Action::Keep(KeepReason::EqualStamp);
        }
        self.report.counts.refused_older += 1;
        Action::Keep(KeepReason::Older { offered, held })
    }

    fn publish(&mut self, candidate: Candidate, now: Timestamp) -> Action {
        let number = self.current.as_ref().map_or(1, |current| current.number() + 1);
        let generation = Arc::new(Generation::new(number, candidate, now));
        self.previous = self.current.replace(Arc::clone(&generation));
        (self.refused, self.unusable) = (None, None);
        self.report.refusal = None;
        self.report.counts.published += 1;
        self.report.changes = match &self.previous {
            Some(previous) => health::identity_changes(previous, &generation),
            None => Vec::new(),
        };
        Action::Publish(generation)
    }

    fn on_failure(&mut self, error: LoadError, now: Timestamp) -> Action {
        self.report.counts.failed += 1;
        self.report.last_error = Some(LoadFailure::of(&error, now));
        if self.current.is_none() {
            return Action::Fail(error);
        }
        Action::Keep(KeepReason::Failed(error))
    }
}

/// Whether the same bytes would fail again: the content is at fault, and not the reading.
fn is_final(error: &LoadError) -> bool {
    matches!(error, LoadError::Content { .. })
}
