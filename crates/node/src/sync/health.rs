//! Health of the pod status watch, on which the Secret synchronization depends.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use lanyard_kubernetes::ApiError;
use parking_lot::Mutex;

/// The failure of the pod status watch, if there is one: the API rejects the watch, so the Secrets of
/// starting pods are not synchronized. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct SecretSyncHealth(Arc<Mutex<Option<PodStatusWatchFailure>>>);

#[derive(Debug)]
struct PodStatusWatchFailure {
    error: ApiError,
    since: Timestamp,
}

impl SecretSyncHealth {
    /// Returns the failure, its start and what to do next, or `None` while the watch works.
    pub fn warning(&self) -> Option<String> {
        let refused = self.0.lock();
        let PodStatusWatchFailure { error, since } = refused.as_ref()?;
        let hint = error.hint().unwrap_or_default();
        Some(format!("starting pods have received none since {since}: {error}; {hint}"))
    }

    /// Returns whether the watch is failing.
    pub fn is_failing(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Records that the API rejected the watch at `now`, for the `refusals`th time in a row.
    pub(super) fn record_failure(&self, error: ApiError, refusals: u32, now: Timestamp) {
        // A starting API server may reject requests for a moment.
        if refusals < REFUSALS_BEFORE_REPORT {
            return;
        }
        let mut refused = self.0.lock();
        let since = refused.as_ref().map_or(now, |it| it.since);
        if refused.replace(PodStatusWatchFailure { error, since }).is_none() {
            tracing::warn!("{CONSEQUENCE}");
        }
    }

    /// Records that a list succeeded and the watch continues from it.
    pub(super) fn record_recovery(&self) {
        if self.0.lock().take().is_some() {
            tracing::info!("the Secrets of starting pods are synchronized again");
        }
    }
}

const CONSEQUENCE: &str = "the Kubernetes API rejects the watch of the pod statuses of this node: starting pods get no Secrets";
/// The number of rejections in a row before the failure is reported: half a minute with the growing back-off.
const REFUSALS_BEFORE_REPORT: u32 = 8;
