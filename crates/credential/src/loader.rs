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
//!    and a repaired file keeps its own ([`EqualTimestampPolicy::Reject`] is the rule of msi-dataplane).
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

pub(crate) use health::{FileFollowerState, LoaderReport, validity_warnings};

use crate::generation::{ContentHash, CredentialCandidate, CredentialGeneration};
use crate::secret::SecretBytes;

/// Whether a version with the `not_before` of the version in use, and other content, is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EqualTimestampPolicy {
    /// It is taken.
    #[default]
    Accept,
    /// It is refused, as msi-dataplane does.
    Reject,
}

/// What happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoaderEvent {
    /// The file may have changed.
    FileChanged,
    /// The file has not been read for a long time.
    ResyncDue,
    /// Somebody wants the newest version now.
    ReloadRequested,
    /// The answer to [`LoaderAction::NeedsRead`].
    Read(Result<CredentialFileContent, LoadError>),
    /// The answer to [`LoaderAction::Parse`].
    Parsed(Result<Box<CredentialCandidate>, LoadError>),
}

/// What to do about it. Every event has exactly one action.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoaderAction {
    /// Read the file and answer with [`LoaderEvent::NeedsRead`].
    Read,
    /// Parse the content and answer with [`LoaderEvent::Parsed`].
    Parse(CredentialFileContent),
    /// Take this generation into use.
    Publish(Arc<CredentialGeneration>),
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
    RejectedBefore,
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
        current: Timestamp,
    },
    /// Its `not_before` is that of the generation in use, and [`EqualTimestampPolicy::Reject`] holds.
    EqualTimestamp,
}

impl KeepReason {
    /// A fixed word for metrics: `older`, `equal` or `unusable`.
    pub fn metric_label(&self) -> &'static str {
        match self {
            Self::Failed(_) => "unusable",
            Self::Older { .. } => "older",
            Self::EqualTimestamp => "equal",
        }
    }
}

/// The bytes of one version of the file.
#[derive(Debug)]
pub struct CredentialFileContent {
    bytes: SecretBytes,
    hash: ContentHash,
}

impl CredentialFileContent {
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
pub struct CredentialLoader {
    equal_timestamps: EqualTimestampPolicy,
    current: Option<Arc<CredentialGeneration>>,
    previous: Option<Arc<CredentialGeneration>>,
    rejected_hash: Option<ContentHash>,
    /// What [`LoaderEvent::Parsed`] will be about.
    parsing_hash: Option<ContentHash>,
    unusable_content: Option<(ContentHash, LoadFailure)>,
    report: LoaderReport,
}

impl CredentialLoader {
    /// A machine that has seen nothing.
    pub fn new(equal_timestamps: EqualTimestampPolicy) -> Self {
        Self { equal_timestamps, ..Self::default() }
    }

    /// The generation in use, once there is one.
    pub fn current(&self) -> Option<&Arc<CredentialGeneration>> {
        self.current.as_ref()
    }

    /// The generation before, until it expires: a fallback if the new one turns out broken.
    pub fn previous(&self) -> Option<&Arc<CredentialGeneration>> {
        self.previous.as_ref()
    }

    /// Answers one event. `now` is the time at which it happened.
    pub fn handle(&mut self, event: LoaderEvent, now: Timestamp) -> LoaderAction {
        if self.previous.as_ref().is_some_and(|previous| previous.expires_at() <= now) {
            self.previous = None;
        }
        match event {
            LoaderEvent::FileChanged | LoaderEvent::ResyncDue | LoaderEvent::ReloadRequested => {
                LoaderAction::Read
            }
            LoaderEvent::Read(Ok(content)) => self.on_content(content),
            LoaderEvent::Read(Err(error)) => self.on_failure(error, now),
            LoaderEvent::Parsed(Ok(candidate)) => self.on_candidate(*candidate, now),
            LoaderEvent::Parsed(Err(error)) => {
                // With nothing to keep, every failure is final, the same one again included.
                let remembered = self.current.is_some() && is_content_error(&error);
                let hash = self.parsing_hash.take().filter(|_| remembered);
                self.unusable_content = hash.map(|hash| (hash, LoadFailure::of(&error, now)));
                self.on_failure(error, now)
            }
        }
    }

    pub(crate) fn report(&self) -> &LoaderReport {
        &self.report
    }

    fn on_content(&mut self, content: CredentialFileContent) -> LoaderAction {
        let in_use = self.current.as_ref().map(|generation| generation.content_hash());
        if in_use == Some(content.hash) {
            (self.rejected_hash, self.unusable_content) = (None, None);
            self.report.rejection = None;
            return self.ignore(IgnoreReason::SameContent);
        }
        if self.rejected_hash == Some(content.hash) {
            return self.ignore(IgnoreReason::RejectedBefore);
        }
        if let Some((_, failure)) =
            self.unusable_content.as_ref().filter(|(hash, _)| *hash == content.hash)
        {
            let failure = failure.clone();
            let action = self.ignore(IgnoreReason::UnusableBefore);
            self.report.last_error = Some(failure);
            return action;
        }
        self.parsing_hash = Some(content.hash);
        LoaderAction::Parse(content)
    }

    fn ignore(&mut self, reason: IgnoreReason) -> LoaderAction {
        self.report.last_error = None;
        self.report.counts.unchanged += 1;
        LoaderAction::Ignore(reason)
    }

    fn on_candidate(&mut self, candidate: CredentialCandidate, now: Timestamp) -> LoaderAction {
        self.report.last_error = None;
        let offered = candidate.timestamps().not_before;
        let Some(current) = &self.current else { return self.publish(candidate, now) };
        let held = current.not_before();
        if offered > held
            || (offered == held && self.equal_timestamps == EqualTimestampPolicy::Accept)
        {
            return self.publish(candidate, now);
        }
        self.rejected_hash = Some(candidate.content_hash());
        let warning = HealthWarning::FileRefused { offered, held };
        self.report.rejection = Some(warning);
        if offered == held {
            self.report.counts.refused_equal += 1;
            return LoaderAction::Keep(KeepReason::EqualTimestamp);
        }
        self.report.counts.refused_older += 1;
        LoaderAction::Keep(KeepReason::Older { offered, current: held })
    }

    fn publish(&mut self, candidate: CredentialCandidate, now: Timestamp) -> LoaderAction {
        let number = self.current.as_ref().map_or(1, |current| current.number() + 1);
        let generation = Arc::new(CredentialGeneration::new(number, candidate, now));
        self.previous = self.current.replace(Arc::clone(&generation));
        (self.rejected_hash, self.unusable_content) = (None, None);
        self.report.rejection = None;
        self.report.counts.published += 1;
        self.report.identity_changes = match &self.previous {
            Some(previous) => health::identity_changes(previous, &generation),
            None => Vec::new(),
        };
        LoaderAction::Publish(generation)
    }

    fn on_failure(&mut self, error: LoadError, now: Timestamp) -> LoaderAction {
        self.report.counts.failed += 1;
        self.report.last_error = Some(LoadFailure::of(&error, now));
        if self.current.is_none() {
            return LoaderAction::Fail(error);
        }
        LoaderAction::Keep(KeepReason::Failed(error))
    }
}

/// Whether the same bytes would fail again: the content is at fault, and not the reading.
fn is_content_error(error: &LoadError) -> bool {
    matches!(error, LoadError::Content { .. })
}
