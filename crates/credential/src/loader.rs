//! What to do with each version of a credential file: a state machine without IO.

use jiff::Timestamp;
use serde::Serialize;

/// The state of a loader, for readiness probes, metrics and people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LoaderHealth {
    /// The generation in use.
    pub generation: u64,
    /// When it was loaded.
    pub loaded_at: Timestamp,
    /// The last failure, if no success came after it.
    pub last_error: Option<LoadFailure>,
    /// How often each thing happened.
    pub counts: LoadCounts,
    /// Whether file events are being watched; if not, polling alone finds changes.
    pub watcher_alive: bool,
    /// Seconds until `not_after`; negative once it has passed.
    pub seconds_to_not_after: Option<i64>,
    /// Seconds until `renew_after`; negative once it has passed.
    pub seconds_to_renew_after: Option<i64>,
    /// Seconds until `cannot_renew_after`; negative once it has passed.
    pub seconds_to_cannot_renew_after: Option<i64>,
    /// Seconds until the leaf certificate expires; negative once it has.
    pub seconds_to_certificate_expiry: i64,
    /// What deserves a look.
    pub warnings: Vec<String>,
}

/// A failed attempt to load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LoadFailure {
    /// When.
    pub at: Timestamp,
    /// The error with its causes.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// How often each thing happened since the file was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LoadCounts {
    /// Generations taken into use.
    pub published: u64,
    /// Reads that found nothing new.
    pub unchanged: u64,
    /// Reads that failed.
    pub failed: u64,
    /// Versions refused because their `not_before` was older.
    pub refused_older: u64,
}
