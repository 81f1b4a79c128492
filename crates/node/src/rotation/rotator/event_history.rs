//! What people were told, so that they are told again only while they may have forgotten.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use lanyard_keyvault::VolumePod;
use lanyard_vocabulary::OutcomeCode;

use crate::reporter::{PodEvent, PodEventKind};

/// What a notice of the loop is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RotationEventTopic {
    /// The annotations of a class: namespace and name.
    Annotations(String, String),
    /// The proofs of a volume.
    Proofs(PathBuf),
    /// An object of a volume.
    Expiry(PathBuf, String),
}

/// What stands to be said about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RotationProblem {
    pub(super) pod: VolumePod,
    pub(super) code: OutcomeCode,
    pub(super) message: String,
}

/// The troubles that people know of, and when they were told.
#[derive(Debug, Default)]
pub(super) struct RotationEventHistory(BTreeMap<RotationEventTopic, (RotationProblem, Timestamp)>);

impl RotationEventHistory {
    /// What is new since the last time: a trouble that began or changed, one that lasts and was
    /// told long ago, and one that ended or became another one. A topic that is gone has not become good.
    pub(super) fn new_events(
        &mut self,
        now: Timestamp,
        troubles: BTreeMap<RotationEventTopic, RotationProblem>,
        is_gone: impl Fn(&RotationEventTopic) -> bool,
    ) -> Vec<PodEvent> {
        let mut before = std::mem::take(&mut self.0);
        let mut notices = Vec::new();
        for (topic, trouble) in troubles {
            let known = before.remove(&topic);
            let other = known.as_ref().filter(|(known, _)| known.code != trouble.code);
            notices.extend(other.map(|(known, _)| recovered_event(known)));
            let told = known
                .filter(|(known, _)| known.code == trouble.code)
                .filter(|(known, told)| known.message == trouble.message && is_recent(*told, now))
                .map(|(_, told)| told);
            if told.is_none() {
                notices.push(PodEvent {
                    pod: trouble.pod.clone(),
                    kind: PodEventKind::Failed(trouble.code),
                    message: trouble.message.clone(),
                });
            }
            self.0.insert(topic, (trouble, told.unwrap_or(now)));
        }
        for (topic, (trouble, _)) in before {
            if !is_gone(&topic) {
                notices.push(recovered_event(&trouble));
            }
        }
        notices
    }
}

fn recovered_event(trouble: &RotationProblem) -> PodEvent {
    PodEvent {
        pod: trouble.pod.clone(),
        kind: PodEventKind::Recovered(trouble.code),
        message: format!("no longer so: {}", trouble.message),
    }
}

fn is_recent(told: Timestamp, now: Timestamp) -> bool {
    now.duration_since(told).abs() < REPEAT_INTERVAL
}

/// Events live for an hour; one that is told again counts higher and lives on.
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
        let mut told = RotationEventHistory::default();
        let topic = || RotationEventTopic::Proofs("/a".into());
        let mut kinds = |second,
                         now: BTreeMap<RotationEventTopic, RotationProblem>,
                         gone: bool|
         -> Vec<PodEventKind> {
            let at = Timestamp::from_second(second).unwrap();
            told.new_events(at, now, |_| gone).into_iter().map(|notice| notice.kind).collect()
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
        let mut told = RotationEventHistory::default();
        let other = RotationProblem { code: OutcomeCode::ObjectExpired, ..problem("two") };
        let mut kinds = |second, trouble: RotationProblem| -> Vec<PodEventKind> {
            let at = Timestamp::from_second(second).unwrap();
            let troubles = [(RotationEventTopic::Proofs("/a".into()), trouble)].into();
            told.new_events(at, troubles, |_| false).into_iter().map(|notice| notice.kind).collect()
        };
        kinds(0, problem("one"));
        let ended = PodEventKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds(1, other), [ended, PodEventKind::Failed(OutcomeCode::ObjectExpired)]);
    }
}
