//! Telling people, once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_keyvault::VolumePod;
use lanyard_vocabulary::{OutcomeCode, OutcomeCodeDetails, format_error_chain};
use parking_lot::Mutex;

use super::PublishEngine;
use super::failure::PublishFailure;
use super::volume_lock::VolumeLockGuard;
use crate::marker::VolumeLastError;
use crate::publish_request::PublishRequest;
use crate::reporter::{PodEvent, PodEventKind};
use crate::volume_step::VolumeStep;

/// The failures of volumes that are not mounted, by target. The kubelet never unpublishes a volume
/// whose first publish failed for good, so what it does not ask for any more is forgotten in time.
#[derive(Debug, Default)]
pub(super) struct PublishFailureHistory(Mutex<HashMap<PathBuf, RecordedPublishFailure>>);

#[derive(Debug)]
struct RecordedPublishFailure {
    code: OutcomeCode,
    last_seen: Duration,
}

impl PublishFailureHistory {
    /// Whether this failure is another than the last one.
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
    /// A volume could not be mounted. Who calls logs it.
    pub(super) fn emit_failure_event(&self, order: &PublishRequest, failure: &PublishFailure) {
        if failure.is_aborted_by_unpublish() {
            return;
        }
        if self.failure_history.record_if_new(
            &order.target,
            failure.code,
            self.parts.clock.monotonic(),
        ) {
            let kind = PodEventKind::Failed(failure.code);
            self.emit_event(&order.pod, kind, failure.status_message());
        }
    }

    /// A volume is mounted: says what it holds, and that what kept it from that is over.
    pub(super) async fn report_first_publish(&self, turn: &mut VolumeLockGuard) {
        let Some(mounted) = turn.volume_mut() else { return };
        let pod = mounted.marker.pod.clone();
        let trouble = mounted.marker.last_error.clone();
        if let Some(was) = self.failure_history.forget(mounted.target.path()) {
            let message = format!("{was} is over: the volume is mounted");
            self.emit_event(&pod, PodEventKind::Recovered(was), message);
        }
        if let Some(trouble) = trouble {
            self.emit_event(&pod, PodEventKind::Failed(trouble.code), last_error_message(&trouble));
        }
        self.report_status(turn).await;
    }

    /// Makes the pod status say what the volume holds.
    pub(super) async fn report_status(&self, turn: &mut VolumeLockGuard) {
        let Some(mounted) = turn.volume_mut() else { return };
        self.context.fail_point.reach_step(VolumeStep::Report);
        let report = mounted.to_report();
        let pod = mounted.marker.pod.clone();
        let deadline = self.settings.report_timeout;
        let reported = tokio::select! {
            reported = self.parts.reporter.report_status(&report) => {
                reported.map_err(|error| format_error_chain(&error))
            }
            () = self.parts.clock.sleep(deadline) => {
                Err(format!("the status was not written in {} s", deadline.as_secs()))
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
                self.emit_event(&pod, PodEventKind::Recovered(code), format!("{code} is over"));
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

/// What people read of trouble for which there is no failure: what it means, since when it is so and
/// why, and what to do next.
pub(super) fn last_error_message(trouble: &VolumeLastError) -> String {
    let VolumeLastError { code, since, cause, message } = trouble;
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
