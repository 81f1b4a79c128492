//! Decides what to do with each version of a credential file: a state machine without I/O.
//!
//! The rules, in order:
//!
//! 1. Bytes that equal the version in use, or the version that was rejected or unusable last, are ignored;
//!    the health keeps reporting the problem.
//! 2. Unusable bytes keep the current generation, and their hash is remembered. An unreadable file is read
//!    again whenever it may have changed.
//! 3. A version with an older `not_before` is rejected, counted and reported.
//! 4. A version with a newer `not_before` is accepted. An equal one is accepted, too, because a rotation may
//!    keep the timestamp, and a repaired file keeps its own ([`EqualTimestampPolicy::Reject`] is the rule of
//!    msi-dataplane).
//!
//! Before the first generation is published, every failure is final: the first load fails fast.

mod error;
mod health;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;

pub use error::LoadError;
pub use health::{HealthWarning, LoadCounts, LoadFailure, LoaderHealth};

pub(crate) use health::{FileFollowerState, LoaderReport, validity_warnings};

use crate::generation::{ContentHash, CredentialGeneration, ParsedCredential};
use crate::secret::SecretBytes;

/// Whether to accept a version with the current `not_before` and different content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EqualTimestampPolicy {
    /// Accept the version.
    #[default]
    Accept,
    /// Reject the version, as msi-dataplane does.
    Reject,
}

/// An event of the state machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoaderEvent {
    /// The file may have changed.
    FileChanged,
    /// The interval of unconditional reads has passed.
    ResyncDue,
    /// A caller requested a reload.
    ReloadRequested,
    /// The result of [`LoaderAction::Read`].
    Read(Result<CredentialFileContent, LoadError>),
    /// The result of [`LoaderAction::Parse`].
    Parsed(Result<Box<ParsedCredential>, LoadError>),
}

/// The action that follows an event. Every event has exactly one action.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoaderAction {
    /// Read the file and pass the result as [`LoaderEvent::Read`].
    Read,
    /// Parse the content and pass the result as [`LoaderEvent::Parsed`].
    Parse(CredentialFileContent),
    /// Publish this generation.
    Publish(Arc<CredentialGeneration>),
    /// Do nothing: the file is unchanged.
    Ignore(IgnoreReason),
    /// The file has different content: keep the current generation.
    Keep(KeepReason),
    /// There is no generation to keep: fail the load.
    Fail(LoadError),
}

/// The reason why a version is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoreReason {
    /// The bytes equal the version in use.
    SameContent,
    /// The bytes equal the version that was rejected last.
    RejectedBefore,
    /// The bytes equal the version that was unusable last.
    UnusableBefore,
}

/// The reason why the current generation is kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeepReason {
    /// The file cannot be read or parsed.
    Failed(LoadError),
    /// The `not_before` of the file is older than that of the generation in use.
    Older {
        /// The `not_before` of the file.
        offered: Timestamp,
        /// The `not_before` of the generation in use.
        current: Timestamp,
    },
    /// The `not_before` equals that of the generation in use, and [`EqualTimestampPolicy::Reject`] applies.
    EqualTimestamp,
}

impl KeepReason {
    /// The label value for metrics: `older`, `equal` or `unusable`.
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
    /// Hashes the bytes.
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
    /// The hash of the content that [`LoaderEvent::Parsed`] refers to.
    parsing_hash: Option<ContentHash>,
    unusable_content: Option<(ContentHash, LoadFailure)>,
    report: LoaderReport,
}

impl CredentialLoader {
    /// Creates the state machine of a file that has not been read yet.
    pub fn new(equal_timestamps: EqualTimestampPolicy) -> Self {
        Self { equal_timestamps, ..Self::default() }
    }

    /// The generation in use, after the first successful load.
    pub fn current(&self) -> Option<&Arc<CredentialGeneration>> {
        self.current.as_ref()
    }

    /// The previous generation, until it expires: the fallback if the new one is rejected.
    pub fn previous(&self) -> Option<&Arc<CredentialGeneration>> {
        self.previous.as_ref()
    }

    /// Handles an event that happened at `now`.
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
            LoaderEvent::Parsed(Ok(offered_credential)) => self.on_parsed(*offered_credential, now),
            LoaderEvent::Parsed(Err(error)) => {
                // Without a generation to keep, every failure is final, even a repeated one.
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

    /// Publishes the parsed credential if it is newer than the current one, and rejects it otherwise.
    fn on_parsed(&mut self, offered_credential: ParsedCredential, now: Timestamp) -> LoaderAction {
        self.report.last_error = None;
        let offered = offered_credential.timestamps().not_before;
        let Some(current) = &self.current else { return self.publish(offered_credential, now) };
        let held = current.not_before();
        if offered > held
            || (offered == held && self.equal_timestamps == EqualTimestampPolicy::Accept)
        {
            return self.publish(offered_credential, now);
        }
        self.rejected_hash = Some(offered_credential.content_hash());
        let warning = HealthWarning::FileRefused { offered, held };
        self.report.rejection = Some(warning);
        if offered == held {
            self.report.counts.refused_equal += 1;
            return LoaderAction::Keep(KeepReason::EqualTimestamp);
        }
        self.report.counts.refused_older += 1;
        LoaderAction::Keep(KeepReason::Older { offered, current: held })
    }

    /// Makes the credential the current generation.
    fn publish(&mut self, credential: ParsedCredential, now: Timestamp) -> LoaderAction {
        let number = self.current.as_ref().map_or(1, |current| current.number() + 1);
        let generation = Arc::new(CredentialGeneration::new(number, credential, now));
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

/// Whether the same bytes would fail again, because the content is invalid.
fn is_content_error(error: &LoadError) -> bool {
    matches!(error, LoadError::Content { .. })
}
