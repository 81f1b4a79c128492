//! Why nobody hears here of pods that start.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_kubernetes::ApiError;
use parking_lot::Mutex;

/// Why the Secrets of pods that start are not synchronized, while they are not: the pod statuses of
/// the node cannot be followed, because the API refuses it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SecretSyncHealth(Arc<Mutex<Option<PodStatusWatchFailure>>>);

#[derive(Debug)]
struct PodStatusWatchFailure {
    error: ApiError,
    since: Timestamp,
}

impl SecretSyncHealth {
    /// What is amiss, since when, and what to do next; nothing while all is well.
    pub fn warning(&self) -> Option<String> {
        let refused = self.0.lock();
        let PodStatusWatchFailure { error, since } = refused.as_ref()?;
        Some(format!("since {since} pods that start get none: {error}; {}", error.hint()))
    }

    /// Whether something is amiss.
    pub fn is_failing(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The statuses could not be followed at `now`, and so many times in a row they were refused.
    pub(super) fn record_failure(&self, error: ApiError, refusals: u32, now: Timestamp) {
        // A server that begins may refuse for a moment what it serves.
        if refusals < REFUSALS_BEFORE_REPORT {
            return;
        }
        let mut refused = self.0.lock();
        let since = refused.as_ref().map_or(now, |it| it.since);
        if refused.replace(PodStatusWatchFailure { error, since }).is_none() {
            tracing::warn!("{CONSEQUENCE}");
        }
    }

    /// All statuses are known again, and followed from here on.
    pub(super) fn record_recovery(&self) {
        if self.0.lock().take().is_some() {
            tracing::info!("the Secrets of pods that start are synchronized again");
        }
    }
}

const CONSEQUENCE: &str =
    "the Kubernetes API refuses the pod statuses of this node: pods that start get no Secrets";
/// After how many refusals in a row it is told: half a minute, as the pauses grow.
const REFUSALS_BEFORE_REPORT: u32 = 8;
