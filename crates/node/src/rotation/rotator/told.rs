//! What people were told, so that they are told once.

use std::collections::BTreeMap;
use std::path::PathBuf;

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

/// The troubles that people know of.
#[derive(Debug, Default)]
pub(super) struct Told(BTreeMap<Topic, Trouble>);

impl Told {
    /// What is new since the last time: a trouble that began or changed, and one that ended. A
    /// topic that is gone has not become good.
    pub(super) fn notices(
        &mut self,
        now: BTreeMap<Topic, Trouble>,
        is_gone: impl Fn(&Topic) -> bool,
    ) -> Vec<Notice> {
        let before = std::mem::take(&mut self.0);
        let mut notices = Vec::new();
        for (topic, trouble) in &now {
            if before.get(topic).is_none_or(|it| it.message != trouble.message) {
                notices.push(Notice {
                    pod: trouble.pod.clone(),
                    kind: NoticeKind::Failed(trouble.code),
                    message: trouble.message.clone(),
                });
            }
        }
        for (topic, trouble) in before {
            if !now.contains_key(&topic) && !is_gone(&topic) {
                notices.push(Notice {
                    pod: trouble.pod,
                    kind: NoticeKind::Recovered(trouble.code),
                    message: format!("no longer so: {}", trouble.message),
                });
            }
        }
        self.0 = now;
        notices
    }
}

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
    fn a_trouble_is_told_when_it_begins_changes_and_ends_and_not_in_between() {
        let mut told = Told::default();
        let topic = || Topic::Proofs("/a".into());
        let mut kinds = |now: BTreeMap<Topic, Trouble>, gone: bool| -> Vec<NoticeKind> {
            told.notices(now, |_| gone).into_iter().map(|notice| notice.kind).collect()
        };
        let failed = NoticeKind::Failed(OutcomeCode::TokenNotFound);
        let recovered = NoticeKind::Recovered(OutcomeCode::TokenNotFound);
        assert_eq!(kinds([(topic(), trouble("one"))].into(), false), [failed]);
        assert_eq!(kinds([(topic(), trouble("one"))].into(), false), []);
        assert_eq!(kinds([(topic(), trouble("two"))].into(), false), [failed]);
        assert_eq!(kinds([].into(), false), [recovered]);
        assert_eq!(kinds([(topic(), trouble("two"))].into(), false), [failed]);
        assert_eq!(kinds([].into(), true), [], "a volume that is gone has not recovered");
    }
}
