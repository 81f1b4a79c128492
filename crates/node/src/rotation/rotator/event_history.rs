//! Deduplicates rotation events: repeats an event only while its cause persists and the last one is
//! old.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use lanyard_keyvault::VolumePod;
use lanyard_vocabulary::OutcomeCode;

use crate::reporter::{PodEvent, PodEventKind};

/// The subject of a rotation event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RotationEventTopic {
    /// The annotations of a class, by namespace and name.
    Annotations(String, String),
    /// The pod tokens of a volume.
    Proofs(PathBuf),
    /// An object of a volume.
    Expiry(PathBuf, String),
}

/// A current problem of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RotationProblem {
    pub(super) pod: VolumePod,
    pub(super) code: OutcomeCode,
    pub(super) message: String,
}

/// The reported problems, with the time of the last event.
#[derive(Debug, Default)]
pub(super) struct RotationEventHistory(BTreeMap<RotationEventTopic, (RotationProblem, Timestamp)>);

impl RotationEventHistory {
    /// The events since the last call: for problems that are new or changed, that persist and were
    /// reported long ago, and that ended or were replaced. A topic that is gone does not count as
    /// recovered.
    pub(super) fn new_events(
        &mut self,
        now: Timestamp,
        problems: BTreeMap<RotationEventTopic, RotationProblem>,
        is_gone: impl Fn(&RotationEventTopic) -> bool,
    ) -> Vec<PodEvent> {
        let mut before = std::mem::take(&mut self.0);
        let mut events = Vec::new();
        for (topic, problem) in problems {
            let known = before.remove(&topic);
            let other = known.as_ref().filter(|(known, _)| known.code != problem.code);
            events.extend(other.map(|(known, _)| recovered_event(known)));
            let reported_at = known
                .filter(|(known, _)| known.code == problem.code)
                .filter(|(known, reported_at)| {
                    known.message == problem.message && is_recent(*reported_at, now)
                })
                .map(|(_, reported_at)| reported_at);
            if reported_at.is_none() {
                events.push(PodEvent {
                    pod: problem.pod.clone(),
                    kind: PodEventKind::Failed(problem.code),
                    message: problem.message.clone(),
                });
            }
            self.0.insert(topic, (problem, reported_at.unwrap_or(now)));
        }
        for (topic, (problem, _)) in before {
            if !is_gone(&topic) {
                events.push(recovered_event(&problem));
            }
        }
        events
    }
}

fn recovered_event(problem: &RotationProblem) -> PodEvent {
    PodEvent {
        pod: problem.pod.clone(),
        kind: PodEventKind::Recovered(problem.code),
        message: format!("resolved: {}", problem.message),
    }
}

fn is_recent(reported_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(reported_at).abs() < REPEAT_INTERVAL
}

/// Kubernetes keeps events for an hour. A repeated event increments its count and renews its
/// lifetime.
const REPEAT_INTERVAL: SignedDuration = SignedDuration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(message: &str) -> RotationProblem {
        let pod = VolumePod {
            namespace: "clusters".to_owned(),
            name: "cpo".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        };
        RotationProblem { pod, code: OutcomeCode::TokenNotFound, message: message.to_owned() }
    }

    #[test]
    fn events_are_emitted_when_a_problem_begins_changes_persists_or_ends() {
        let mut history = RotationEventHistory::default();
        let topic = || RotationEventTopic::Proofs("/a".into());
        let mut kinds = |second,
                         now: BTreeMap<RotationEventTopic, RotationProblem>,
                         gone: bool|
         -> Vec<PodEventKind> {
            let at = Timestamp::from_second(second).unwrap();
            history.new_events(at, now, |_| gone).into_iter().map(|notice| notice.kind).collect()
        };
        let failed = PodEventKind::Failed(OutcomeCode::TokenNotFound);
        let recovered = PodEventKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds(0, [(topic(), problem("one"))].into(), false), [failed]);
        assert_eq!(kinds(1, [(topic(), problem("one"))].into(), false), []);
        assert_eq!(kinds(2, [(topic(), problem("two"))].into(), false), [failed]);
        assert_eq!(kinds(601, [(topic(), problem("two"))].into(), false), []);
        assert_eq!(kinds(602, [(topic(), problem("two"))].into(), false), [failed], "it lasts");
        assert_eq!(kinds(603, [(topic(), problem("two"))].into(), false), []);
        assert_eq!(kinds(604, [].into(), false), [recovered]);
        assert_eq!(kinds(605, [(topic(), problem("two"))].into(), false), [failed]);
        assert_eq!(kinds(606, [].into(), true), [], "a volume that is gone has not recovered");
    }

    #[test]
    fn problem_replaced_by_another_is_reported_as_recovered() {
        let mut history = RotationEventHistory::default();
        let other = RotationProblem { code: OutcomeCode::ObjectExpired, ..problem("two") };
        let mut kinds = |second, problem: RotationProblem| -> Vec<PodEventKind> {
            let at = Timestamp::from_second(second).unwrap();
            let problems = [(RotationEventTopic::Proofs("/a".into()), problem)].into();
            history
                .new_events(at, problems, |_| false)
                .into_iter()
                .map(|notice| notice.kind)
                .collect()
        };
        kinds(0, problem("one"));
        let ended = PodEventKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds(1, other), [ended, PodEventKind::Failed(OutcomeCode::ObjectExpired)]);
    }
}
