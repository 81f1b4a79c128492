//! What people were told, so that they are told again only while they may have forgotten.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use lanyard_keyvault::Pod;
use lanyard_vocabulary::OutcomeCode;

use crate::reporter::{Notice, NoticeKind};

/// What a notice of the loop is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// The annotations of a class: namespace and name.
    Annotations(String, String),
    /// The proofs of a volume.
    Proofs(PathBuf),
    /// An object of a volume.
    Expiry(PathBuf, String),
}

/// What stands to be said about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) pod: Pod,
    pub(super) code: OutcomeCode,
    pub(super) message: String,
}

/// The troubles that people know of, and when they were told.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Topic, (Trouble, Timestamp)>);

impl Told {
    /// What is new since the last time: a trouble that began or changed, one that lasts and was
    /// told long ago, and one that ended or became another one. A topic that is gone has not become good.
    pub(super) fn notices(
        &mut self,
        now: Timestamp,
        troubles: BTreeMap<Topic, Trouble>,
        is_gone: impl Fn(&Topic) -> bool,
    ) -> Vec<Notice> {
        let mut before = std::mem::take(&mut self.0);
        let mut notices = Vec::new();
        for (topic, trouble) in troubles {
            let known = before.remove(&topic);
            let other = known.as_ref().filter(|(known, _)| known.code != trouble.code);
            notices.extend(other.map(|(known, _)| ended(known)));
            let told = known
                .filter(|(known, _)| known.code == trouble.code)
                .filter(|(known, told)| known.message == trouble.message && is_lately(*told, now))
                .map(|(_, told)| told);
            if told.is_none() {
                notices.push(Notice {
                    pod: trouble.pod.clone(),
                    kind: NoticeKind::Failed(trouble.code),
                    message: trouble.message.clone(),
                });
            }
            self.0.insert(topic, (trouble, told.unwrap_or(now)));
        }
        for (topic, (trouble, _)) in before {
            if !is_gone(&topic) {
                notices.push(ended(&trouble));
            }
        }
        notices
    }
}

fn ended(trouble: &Trouble) -> Notice {
    Notice {
        pod: trouble.pod.clone(),
        kind: NoticeKind::Recovered(trouble.code),
        message: format!("no longer so: {}", trouble.message),
    }
}

fn is_lately(told: Timestamp, now: Timestamp) -> bool {
    now.duration_since(told).abs() < TELL_AGAIN
}

/// Events live for an hour; one that is told again counts higher and lives on.
const TELL_AGAIN: SignedDuration = SignedDuration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(message: &str) -> Trouble {
        let pod = Pod {
            namespace: "clusters".to_owned(),
            name: "cpo".to_owned(),
            uid: "1".to_owned(),
            service_account: String::new(),
        };
        Trouble { pod, code: OutcomeCode::TokenNotFound, message: message.to_owned() }
    }

    #[test]
    fn a_trouble_is_told_when_it_begins_changes_lasts_and_ends_and_not_in_between() {
        let mut told = Told::default();
        let topic = || Topic::Proofs("/a".into());
        let mut kinds = |second, now: BTreeMap<Topic, Trouble>, gone: bool| -> Vec<NoticeKind> {
            let at = Timestamp::from_second(second).unwrap();
            told.notices(at, now, |_| gone).into_iter().map(|notice| notice.kind).collect()
        };
        let failed = NoticeKind::Failed(OutcomeCode::TokenNotFound);
        let recovered = NoticeKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds(0, [(topic(), trouble("one"))].into(), false), [failed]);
        assert_eq!(kinds(1, [(topic(), trouble("one"))].into(), false), []);
        assert_eq!(kinds(2, [(topic(), trouble("two"))].into(), false), [failed]);
        assert_eq!(kinds(601, [(topic(), trouble("two"))].into(), false), []);
        assert_eq!(kinds(602, [(topic(), trouble("two"))].into(), false), [failed], "it lasts");
        assert_eq!(kinds(603, [(topic(), trouble("two"))].into(), false), []);
        assert_eq!(kinds(604, [].into(), false), [recovered]);
        assert_eq!(kinds(605, [(topic(), trouble("two"))].into(), false), [failed]);
        assert_eq!(kinds(606, [].into(), true), [], "a volume that is gone has not recovered");
    }

    #[test]
    fn a_trouble_that_becomes_another_one_has_an_end() {
        let mut told = Told::default();
        let other = Trouble { code: OutcomeCode::ObjectExpired, ..trouble("two") };
        let mut kinds = |second, trouble: Trouble| -> Vec<NoticeKind> {
            let at = Timestamp::from_second(second).unwrap();
            let troubles = [(Topic::Proofs("/a".into()), trouble)].into();
            told.notices(at, troubles, |_| false).into_iter().map(|notice| notice.kind).collect()
        };
        kinds(0, trouble("one"));
        let ended = NoticeKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds(1, other), [ended, NoticeKind::Failed(OutcomeCode::ObjectExpired)]);
    }
}
