//! Telling people, once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_keyvault::Pod;
use lanyard_vocabulary::{OutcomeCode, OutcomeText, causes};
use parking_lot::Mutex;

use super::Engine;
use super::failure::PublishFailure;
use super::lane::Turn;
use crate::marker::Trouble;
use crate::order::MountOrder;
use crate::reporter::{Notice, NoticeKind};
use crate::step::Step;

/// The failures of volumes that are not mounted, by target. The kubelet never unpublishes a volume
/// whose first publish failed for good, so what it does not ask for any more is forgotten in time.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<PathBuf, Failed>>);

#[derive(Debug)]
struct Failed {
    code: OutcomeCode,
    last: Duration,
}

impl Failures {
    /// Whether this failure is another than the last one.
    fn is_new(&self, target: &Path, code: OutcomeCode, now: Duration) -> bool {
        let mut all = self.0.lock();
        all.retain(|_, failed| now.saturating_sub(failed.last) < MEMORY);
        all.insert(target.to_owned(), Failed { code, last: now })
            .is_none_or(|before| before.code != code)
    }

    fn forget(&self, target: &Path) -> Option<OutcomeCode> {
        self.0.lock().remove(target).map(|failed| failed.code)
    }
}

impl Engine {
    /// A volume could not be mounted. Who calls logs it.
    pub(super) fn tell_failure(&self, order: &MountOrder, failure: &PublishFailure) {
        if failure.is_departure() {
            return;
        }
        if self.failures.is_new(&order.target, failure.code, self.parts.clock.monotonic()) {
            let kind = NoticeKind::Failed(failure.code);
            self.tell(&order.pod, kind, failure.status_message());
        }
    }

    /// A volume is mounted: says what it holds, and that what kept it from that is over.
    pub(super) async fn report_first(&self, turn: &mut Turn) {
        let Some(mounted) = turn.mounted() else { return };
        let pod = mounted.marker.pod.clone();
        let trouble = mounted.marker.trouble.clone();
        if let Some(was) = self.failures.forget(mounted.place.path()) {
            let message = format!("{was} is over: the volume is mounted");
            self.tell(&pod, NoticeKind::Recovered(was), message);
        }
        if let Some(trouble) = trouble {
            self.tell(&pod, NoticeKind::Failed(trouble.code), told(&trouble));
        }
        self.report(turn).await;
    }

    /// Makes the pod status say what the volume holds.
    pub(super) async fn report(&self, turn: &mut Turn) {
        let Some(mounted) = turn.mounted() else { return };
        self.desk.fuse.reach(Step::Report);
        let report = mounted.report();
        let pod = mounted.marker.pod.clone();
        let deadline = self.settings.report_deadline;
        let reported = tokio::select! {
            reported = self.parts.reporter.report(&report) => {
                reported.map_err(|error| causes(&error))
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
                self.tell(&pod, NoticeKind::Failed(code), message);
            }
            Ok(()) if had_failed => {
                self.tell(&pod, NoticeKind::Recovered(code), format!("{code} is over"));
            }
            _ => {}
        }
    }

    pub(super) fn forget_failure(&self, target: &Path) {
        self.failures.forget(target);
    }

    pub(super) fn tell(&self, pod: &Pod, kind: NoticeKind, message: String) {
        self.parts.reporter.tell(Notice { pod: pod.clone(), kind, message });
    }
}

/// What people read of trouble for which there is no failure: what it means, since when it is so and
/// why, and what to do next.
pub(super) fn told(trouble: &Trouble) -> String {
    let Trouble { code, since, cause, message } = trouble;
    let OutcomeText { name, meaning, hint, .. } = code.text();
    let cause = cause.map(|cause| format!("{cause}: ")).unwrap_or_default();
    format!("{name}: {meaning} Since {since}: {cause}{message}; hint: {hint}")
}

/// Longer than the kubelet's longest back-off, which is two minutes.
const MEMORY: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_new_once_and_forgotten_when_nobody_asks_any_more() {
        let failures = Failures::default();
        let (one, other) = (Path::new("/a"), Path::new("/b"));
        let at = Duration::from_secs;
        assert!(failures.is_new(one, OutcomeCode::VaultThrottled, at(0)));
        assert!(!failures.is_new(one, OutcomeCode::VaultThrottled, at(122)));
        assert!(failures.is_new(one, OutcomeCode::ObjectNotFound, at(130)));
        assert!(failures.is_new(other, OutcomeCode::ObjectNotFound, at(900)));
        assert_eq!(failures.0.lock().len(), 1);
        assert_eq!(failures.forget(other), Some(OutcomeCode::ObjectNotFound));
        assert_eq!(failures.forget(other), None);
    }
}
