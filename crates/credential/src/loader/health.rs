//! The state of a loader, for readiness probes, metrics and operators.

use std::error::Error;
use std::fmt;

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use serde::Serialize;

use super::{LoadError, LoaderState};
use crate::bundle::{BundleWarning, CertificateValidity};
use crate::document::CredentialTimestamps;

/// A snapshot of a loader's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoaderHealth {
    /// The number of the generation in use.
    pub generation: u64,
    /// When the generation was loaded.
    pub loaded_at: Timestamp,
    /// The last failure, unless a success followed it.
    pub last_error: Option<LoadFailure>,
    /// Counters of load results.
    pub counts: LoadCounts,
    /// Whether the background task is running; otherwise no change is detected.
    pub following: bool,
    /// Whether file events are watched; otherwise only polling detects changes.
    pub watcher_alive: bool,
    /// Seconds until the document's `not_after`; negative once it has passed.
    pub seconds_to_not_after: Option<i64>,
    /// Seconds until `renew_after`; negative once it has passed.
    pub seconds_to_renew_after: Option<i64>,
    /// Seconds until `cannot_renew_after`; negative once it has passed.
    pub seconds_to_cannot_renew_after: Option<i64>,
    /// Seconds until the leaf certificate expires; negative once it has.
    pub seconds_to_certificate_expiry: i64,
    /// Conditions that an operator should check.
    pub warnings: Vec<HealthWarning>,
}

/// A failed load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoadFailure {
    /// When the load failed.
    pub at: Timestamp,
    /// The error with its causes.
    pub message: String,
    /// Advises how to fix the error.
    pub hint: String,
}

/// Counters of load results since the file was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LoadCounts {
    /// Published generations, the first included.
    pub published: u64,
    /// Reads without a new version.
    pub unchanged: u64,
    /// Failed loads.
    pub failed: u64,
    /// Versions rejected because their `not_before` was older.
    pub refused_older: u64,
    /// Versions rejected because their `not_before` was equal, under [`Reject`](super::EqualTimestampPolicy::Reject).
    pub refused_equal: u64,
}

/// A condition that does not prevent operation and that an operator should check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum HealthWarning {
    /// The last rotation changed the client id.
    ClientChanged {
        /// The previous client id.
        from: String,
        /// The new client id.
        to: String,
    },
    /// The last rotation changed the tenant.
    TenantChanged {
        /// The previous tenant.
        from: String,
        /// The new tenant.
        to: String,
    },
    /// The last rotation changed the token service.
    AuthorityChanged {
        /// The previous URL.
        from: String,
        /// The new URL.
        to: String,
    },
    /// The file contains a version that was rejected for its `not_before`.
    FileRefused {
        /// The `not_before` of the file.
        offered: Timestamp,
        /// The `not_before` of the generation in use.
        held: Timestamp,
    },
    /// The certificate becomes valid after the document's `not_before`.
    CertificateStartsLater {
        /// The document's `not_before`.
        stamp: Timestamp,
        /// The certificate's `notBefore`.
        certificate: Timestamp,
    },
    /// The certificate expires before the document's `not_after`.
    CertificateEndsEarlier {
        /// The document's `not_after`.
        stamp: Timestamp,
        /// The certificate's `notAfter`.
        certificate: Timestamp,
    },
    /// The credential is not valid yet.
    NotYetValid {
        /// When the validity starts.
        from: Timestamp,
    },
    /// The credential or its certificate has expired.
    Expired {
        /// When it expired.
        since: Timestamp,
    },
    /// The credential is past its `renew_after`.
    RenewalDue {
        /// The document's `renew_after`.
        since: Timestamp,
    },
    /// The credential is past its `cannot_renew_after`.
    RenewalImpossible {
        /// The document's `cannot_renew_after`.
        since: Timestamp,
    },
    /// The bundle has an irregularity.
    Bundle {
        /// The irregularity.
        warning: BundleWarning,
    },
}

impl fmt::Display for HealthWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientChanged { from, to } => {
                write!(formatter, "the client id changed from {from} to {to}")
            }
            Self::TenantChanged { from, to } => {
                write!(formatter, "the tenant changed from {from} to {to}")
            }
            Self::AuthorityChanged { from, to } => {
                write!(formatter, "the token service changed from {from} to {to}")
            }
            Self::FileRefused { offered, held } => {
                write!(formatter, "the file's not_before {offered} does not replace {held}")
            }
            Self::CertificateStartsLater { stamp, certificate } => write!(
                formatter,
                "not_before is {stamp}, but the certificate is valid from {certificate} only"
            ),
            Self::CertificateEndsEarlier { stamp, certificate } => write!(
                formatter,
                "not_after is {stamp}, but the certificate expires at {certificate}"
            ),
            Self::NotYetValid { from } => write!(formatter, "the credential is valid from {from}"),
            Self::Expired { since } => write!(formatter, "the credential expired at {since}"),
            Self::RenewalDue { since } => write!(formatter, "renewal is due since {since}"),
            Self::RenewalImpossible { since } => {
                write!(formatter, "renewal is impossible since {since}")
            }
            Self::Bundle { warning } => write!(formatter, "client_secret: {warning}"),
        }
    }
}

impl LoadFailure {
    pub(super) fn of(error: &LoadError, at: Timestamp) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            message.push_str(": ");
            message.push_str(&source.to_string());
            cause = source.source();
        }
        Self { at, message, hint: error.hint().unwrap_or_default().into_owned() }
    }
}

/// The state of the background task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileFollowerState {
    pub(crate) following: bool,
    pub(crate) watcher_alive: bool,
}

impl LoaderState {
    /// The health at `now`.
    pub(crate) fn health(&self, follower: FileFollowerState, now: Timestamp) -> LoaderHealth {
        let current = &self.current;
        let stamps = current.timestamps();
        let until = |stamp: Timestamp| stamp.as_second().saturating_sub(now.as_second());
        let mut warnings = self.identity_changes.clone();
        warnings.extend(self.rejected.as_ref().map(|rejected| HealthWarning::FileRefused {
            offered: rejected.not_before,
            held: current.not_before(),
        }));
        warnings.extend(validity_warnings(stamps, Some(current.certificate_validity()), now));
        let unusual = current.bundle().warnings().iter();
        warnings.extend(unusual.map(|warning| HealthWarning::Bundle { warning: *warning }));
        LoaderHealth {
            generation: current.number(),
            loaded_at: current.loaded_at(),
            last_error: self.last_error.clone(),
            counts: self.counts,
            following: follower.following,
            watcher_alive: follower.watcher_alive,
            seconds_to_not_after: stamps.not_after.map(until),
            seconds_to_renew_after: stamps.renew_after.map(until),
            seconds_to_cannot_renew_after: stamps.cannot_renew_after.map(until),
            seconds_to_certificate_expiry: until(current.certificate_validity().not_after),
            warnings,
        }
    }
}

/// The warnings of the timestamps and of the certificate's dates, if known, at `now`.
pub(crate) fn validity_warnings(
    stamps: &CredentialTimestamps,
    certificate: Option<CertificateValidity>,
    now: Timestamp,
) -> Vec<HealthWarning> {
    let mut warnings = Vec::new();
    let (mut from, mut until) = (stamps.not_before, stamps.not_after);
    if let Some(CertificateValidity { not_before, not_after }) = certificate {
        if not_before > from {
            let (stamp, certificate) = (from, not_before);
            warnings.push(HealthWarning::CertificateStartsLater { stamp, certificate });
        }
        if let Some(stamp) = until.filter(|stamp| *stamp > not_after) {
            let certificate = not_after;
            warnings.push(HealthWarning::CertificateEndsEarlier { stamp, certificate });
        }
        from = from.max(not_before);
        until = Some(until.map_or(not_after, |stamp| stamp.min(not_after)));
    }
    if now < from {
        warnings.push(HealthWarning::NotYetValid { from });
    }
    let passed = |stamp: Option<Timestamp>| stamp.filter(|stamp| *stamp <= now);
    if let Some(since) = passed(until) {
        warnings.push(HealthWarning::Expired { since });
    }
    if let Some(since) = passed(stamps.cannot_renew_after) {
        warnings.push(HealthWarning::RenewalImpossible { since });
    } else if let Some(since) = passed(stamps.renew_after) {
        warnings.push(HealthWarning::RenewalDue { since });
    }
    warnings
}
