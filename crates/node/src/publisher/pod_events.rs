//! Emits pod events and pod status for failures and recoveries, each once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_keyvault::VolumePod;
use lanyard_vocabulary::{OutcomeCode, OutcomeCodeDetails, format_error_chain};
use lanyard_volume::VolumeStep;
use parking_lot::Mutex;

use super::PublishEngine;
use super::failure::PublishFailure;
use super::volume_lock::VolumeLockGuard;
use crate::marker::VolumeLastError;
use crate::publish_request::PublishRequest;
use crate::reporter::{PodEvent, PodEventKind};

/// The last failures of volumes that are not mounted, by target. The kubelet never unpublishes a
/// volume whose first publish failed for good, so entries expire after [`FAILURE_RETENTION`].
#[derive(Debug, Default)]
pub(super) struct PublishFailureHistory(Mutex<HashMap<PathBuf, RecordedPublishFailure>>);

#[derive(Debug)]
struct RecordedPublishFailure {
    code: OutcomeCode,
    last_seen: Duration,
}

impl PublishFailureHistory {
    /// Records a failure. Returns whether its code differs from the last one.
    fn record_if_new(&self, target: &Path, code: OutcomeCode, now: Duration) -> bool {
        let mut all = self.0.lock();
        all.retain(|_, failed| now.saturating_sub(failed.last_seen) < FAILURE_RETENTION);
        all.insert(target.to_owned(), RecordedPublishFailure { code, last_seen: now })
            .is_none_or(|before| before.code != code)
    }

    fn forget(&self, target: &Path) -> Option<OutcomeCode> {
        self.0.lock().remove(target).map(|failed| failed.code)
    }
}

impl PublishEngine {
    /// Emits an event for a failed mount, unless the last failure had the same code. The caller
    /// logs it.
    pub(super) fn emit_failure_event(&self, request: &PublishRequest, failure: &PublishFailure) {
        if failure.is_aborted_by_unpublish() {
            return;
        }
        if self.failure_history.record_if_new(
            &request.target,
            failure.code,
            self.parts.clock.monotonic(),
        ) {
            let kind = PodEventKind::Failed(failure.code);
            self.emit_event(&request.pod, kind, failure.status_message());
        }
    }

    /// Reports a newly mounted volume: its status, and the recovery from the last failure if there
    /// was one.
    pub(super) async fn report_first_publish(&self, guard: &mut VolumeLockGuard) {
        let Some(mounted) = guard.volume_mut() else { return };
        let pod = mounted.marker.pod.clone();
        let error = mounted.marker.last_error.clone();
        if let Some(was) = self.failure_history.forget(mounted.target.path()) {
            let message = format!("{was} is resolved: the volume is mounted");
            self.emit_event(&pod, PodEventKind::Recovered(was), message);
        }
        if let Some(error) = error {
            self.emit_event(&pod, PodEventKind::Failed(error.code), last_error_message(&error));
        }
        self.report_status(guard).await;
    }

    /// Writes the state of the volume into the pod status.
    pub(super) async fn report_status(&self, guard: &mut VolumeLockGuard) {
        let Some(mounted) = guard.volume_mut() else { return };
        self.context.fail_point.reach_step(VolumeStep::Report);
        let report = mounted.to_report();
        let pod = mounted.marker.pod.clone();
        let timeout = self.settings.report_timeout;
        let reported = tokio::select! {
            reported = self.parts.reporter.report_status(&report) => {
                reported.map_err(|error| format_error_chain(&error))
            }
            () = self.parts.clock.sleep(timeout) => {
                Err(format!("the status write did not finish within {} s", timeout.as_secs()))
            }
        };
        mounted.report_pending = reported.is_err();
        let had_failed = std::mem::replace(&mut mounted.report_failed, reported.is_err());
        let code = OutcomeCode::StatusNotWritten;
        match reported {
            Err(problem) if !had_failed => {
                let message = format!("{code}: {problem}; hint: {}", code.hint());
                self.emit_event(&pod, PodEventKind::Failed(code), message);
            }
            Ok(()) if had_failed => {
                self.emit_event(&pod, PodEventKind::Recovered(code), format!("{code} is resolved"));
            }
            _ => {}
        }
    }

    pub(super) fn forget_failure(&self, target: &Path) {
        self.failure_history.forget(target);
    }

    pub(super) fn emit_event(&self, pod: &VolumePod, kind: PodEventKind, message: String) {
        self.parts.reporter.emit_event(PodEvent { pod: pod.clone(), kind, message });
    }
}

/// The message of an error that has no [`PublishFailure`]: its meaning, since when and why it
/// persists, and what to do next.
pub(super) fn last_error_message(error: &VolumeLastError) -> String {
    let VolumeLastError { code, since, cause, message } = error;
    let OutcomeCodeDetails { name, meaning, hint, .. } = code.text();
    let cause = cause.map(|cause| format!("{cause}: ")).unwrap_or_default();
    format!("{name}: {meaning} Since {since}: {cause}{message}; hint: {hint}")
}

/// Longer than the kubelet's longest back-off, which is two minutes.
const FAILURE_RETENTION: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failure_is_reported_once_and_forgotten_after_retention() {
        let failures = PublishFailureHistory::default();
        let (one, other) = (Path::new("/a"), Path::new("/b"));
        let at = Duration::from_secs;
        assert!(failures.record_if_new(one, OutcomeCode::VaultThrottled, at(0)));
        assert!(!failures.record_if_new(one, OutcomeCode::VaultThrottled, at(122)));
        assert!(failures.record_if_new(one, OutcomeCode::ObjectNotFound, at(130)));
        assert!(failures.record_if_new(other, OutcomeCode::ObjectNotFound, at(900)));
        assert_eq!(failures.0.lock().len(), 1);
        assert_eq!(failures.forget(other), Some(OutcomeCode::ObjectNotFound));
        assert_eq!(failures.forget(other), None);
    }
}
