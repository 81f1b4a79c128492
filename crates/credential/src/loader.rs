//! Decides what to do with each version of a credential file: pure code without I/O.
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
//! The rules apply from the second load on. The first load has no generation to keep, so its failure is final.

mod error;
mod health;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;

use jiff::Timestamp;

pub use error::LoadError;
pub use health::{HealthWarning, LoadCounts, LoadFailure, LoaderHealth};

pub(crate) use health::{FileFollowerState, validity_warnings};

use crate::generation::{ContentHash, CredentialGeneration, ParsedCredential};

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

/// A version of the file, as far as it was read.
#[derive(Debug)]
pub(crate) enum FileVersion {
    /// The hash of the bytes is one of [`LoaderState::known_hashes`].
    Known(ContentHash),
    /// The bytes are a credential.
    Usable(Box<ParsedCredential>),
    /// The bytes cannot be parsed, now or later.
    Unusable { hash: ContentHash, error: LoadError },
    /// The file cannot be read at present.
    Unreadable(LoadError),
}

/// The decision about a version of the file.
#[derive(Debug)]
pub(crate) enum LoadDecision {
    /// Use the version: it is this generation.
    Publish(Arc<CredentialGeneration>),
    /// Keep the current generation.
    Keep(KeepReason),
    /// Do nothing.
    Ignore(IgnoreReason),
}

/// The reason why a version is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IgnoreReason {
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

/// The generations of a file, and the versions that are not used. It exists from the first generation on.
#[derive(Debug, Clone)]
pub(crate) struct LoaderState {
    current: Arc<CredentialGeneration>,
    /// The generation before, until it expires: the fallback if the new one is rejected.
    previous: Option<Arc<CredentialGeneration>>,
    /// The version that was rejected last, since the current generation was loaded.
    rejected: Option<RejectedVersion>,
    /// The version that was unusable last, since the current generation was loaded.
    unusable: Option<UnusableVersion>,
    last_error: Option<LoadFailure>,
    /// What the last rotation changed besides the certificate.
    identity_changes: Vec<HealthWarning>,
    counts: LoadCounts,
}

#[derive(Debug, Clone)]
struct RejectedVersion {
    hash: ContentHash,
    not_before: Timestamp,
}

#[derive(Debug, Clone)]
struct UnusableVersion {
    hash: ContentHash,
    failure: LoadFailure,
}

impl LoaderState {
    /// The state after the first load.
    pub(crate) fn first(credential: ParsedCredential, now: Timestamp) -> Self {
        Self {
            current: Arc::new(CredentialGeneration::new(1, credential, now)),
            previous: None,
            rejected: None,
            unusable: None,
            last_error: None,
            identity_changes: Vec::new(),
            counts: LoadCounts { published: 1, ..LoadCounts::default() },
        }
    }

    /// The generation in use.
    pub(crate) fn current(&self) -> &Arc<CredentialGeneration> {
        &self.current
    }

    /// The previous generation, until it expires.
    pub(crate) fn previous(&self) -> Option<&Arc<CredentialGeneration>> {
        self.previous.as_ref()
    }

    /// The hashes of the versions that need not be parsed again.
    pub(crate) fn known_hashes(&self) -> Vec<ContentHash> {
        let rejected = self.rejected.as_ref().map(|version| version.hash);
        let unusable = self.unusable.as_ref().map(|version| version.hash);
        [Some(self.current.content_hash()), rejected, unusable].into_iter().flatten().collect()
    }

    /// Decides about a version that was read at `now`.
    pub(crate) fn decide(
        &mut self,
        version: FileVersion,
        equal_timestamps: EqualTimestampPolicy,
        now: Timestamp,
    ) -> LoadDecision {
        self.previous.take_if(|previous| previous.expires_at() <= now);
        match version {
            FileVersion::Known(hash) => self.ignore(hash),
            FileVersion::Usable(credential) => {
                let (offered, held) =
                    (credential.timestamps().not_before, self.current.not_before());
                let accepts_equal = equal_timestamps == EqualTimestampPolicy::Accept;
                if offered > held || (offered == held && accepts_equal) {
                    self.publish(*credential, now)
                } else {
                    self.reject(&credential)
                }
            }
            FileVersion::Unusable { hash, error } => {
                let failure = LoadFailure::of(&error, now);
                self.unusable = Some(UnusableVersion { hash, failure: failure.clone() });
                self.fail(failure, error)
            }
            FileVersion::Unreadable(error) => self.fail(LoadFailure::of(&error, now), error),
        }
    }

    fn ignore(&mut self, hash: ContentHash) -> LoadDecision {
        self.counts.unchanged += 1;
        self.last_error = None;
        LoadDecision::Ignore(if hash == self.current.content_hash() {
            (self.rejected, self.unusable) = (None, None);
            IgnoreReason::SameContent
        } else if let Some(unusable) = self.unusable.as_ref().filter(|it| it.hash == hash) {
            self.last_error = Some(unusable.failure.clone());
            IgnoreReason::UnusableBefore
        } else {
            IgnoreReason::RejectedBefore
        })
    }

    /// Makes the credential the current generation.
    fn publish(&mut self, credential: ParsedCredential, now: Timestamp) -> LoadDecision {
        let number = self.current.number() + 1;
        let generation = Arc::new(CredentialGeneration::new(number, credential, now));
        let replaced = mem::replace(&mut self.current, Arc::clone(&generation));
        self.identity_changes = identity_changes(&replaced, &generation);
        self.previous = Some(replaced);
        (self.rejected, self.unusable, self.last_error) = (None, None, None);
        self.counts.published += 1;
        LoadDecision::Publish(generation)
    }

    fn reject(&mut self, credential: &ParsedCredential) -> LoadDecision {
        let (offered, current) = (credential.timestamps().not_before, self.current.not_before());
        self.rejected =
            Some(RejectedVersion { hash: credential.content_hash(), not_before: offered });
        self.last_error = None;
        LoadDecision::Keep(if offered == current {
            self.counts.refused_equal += 1;
            KeepReason::EqualTimestamp
        } else {
            self.counts.refused_older += 1;
            KeepReason::Older { offered, current }
        })
    }

    fn fail(&mut self, failure: LoadFailure, error: LoadError) -> LoadDecision {
        self.counts.failed += 1;
        self.last_error = Some(failure);
        LoadDecision::Keep(KeepReason::Failed(error))
    }
}

/// The changes of a rotation besides the certificate.
fn identity_changes(
    before: &CredentialGeneration,
    after: &CredentialGeneration,
) -> Vec<HealthWarning> {
    let mut changes = Vec::new();
    if before.client_id() != after.client_id() {
        let (from, to) = (before.client_id().to_string(), after.client_id().to_string());
        changes.push(HealthWarning::ClientChanged { from, to });
    }
    if before.tenant_id() != after.tenant_id() {
        let (from, to) = (before.tenant_id().to_string(), after.tenant_id().to_string());
        changes.push(HealthWarning::TenantChanged { from, to });
    }
    if before.authority() != after.authority() {
        let (from, to) = (before.authority().to_string(), after.authority().to_string());
        changes.push(HealthWarning::AuthorityChanged { from, to });
    }
    changes
}
