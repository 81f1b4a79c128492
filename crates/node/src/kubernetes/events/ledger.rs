//! Which notices become events. Pure.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::kubernetes::digest::digest_of;
use crate::reporter::{Notice, NoticeKind};

/// What was told about which pod, and when.
#[derive(Debug, Default)]
pub(super) struct EventLedger {
    told: HashMap<(String, NoticeKind), Told>,
    budgets: HashMap<String, Budget>,
}

#[derive(Debug)]
struct Told {
    repeated: Repeated,
    /// When the API was last told, and what.
    sent: Duration,
    message: [u8; 32],
    /// What was said last, where that is something else.
    waiting: Option<Notice>,
}

/// How often something was said, and from when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// The new events that a pod may still have.
#[derive(Debug)]
struct Budget {
    left: u32,
    filled: Duration,
}

/// What becomes of a notice.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// A new event.
    Create(Repeated),
    /// The event that is there counts higher.
    Repeat(Repeated),
    /// It is counted, and told later: by the next one, or where it says something new by
    /// [`EventLedger::take_due`].
    Wait,
    /// The pod has had too many.
    Drop,
}

impl EventLedger {
    /// What becomes of a notice that comes at `now`.
    pub(super) fn decide(&mut self, notice: &Notice, now: Duration, stamp: Timestamp) -> Decision {
        self.forget(now);
        let uid = &notice.pod.uid;
        // What was mended and breaks again is news.
        if let NoticeKind::Recovered(code) = notice.kind {
            self.told.remove(&(uid.clone(), NoticeKind::Failed(code)));
        }
        if let NoticeKind::Failed(code) = notice.kind {
            self.told.remove(&(uid.clone(), NoticeKind::Recovered(code)));
        }
        if let Some(told) = self.told.get_mut(&(uid.clone(), notice.kind)) {
            told.repeated.count = told.repeated.count.saturating_add(1);
            told.repeated.last = stamp;
            if now.saturating_sub(told.sent) < REPEAT_AFTER {
                // What is said last is told last, also where that is what the API says already.
                let is_news = told.message != digest_of(&[&notice.message]);
                told.waiting = is_news.then(|| notice.clone());
                return Decision::Wait;
            }
            told.send(notice, now);
            return Decision::Repeat(told.repeated);
        }
        let new = || Budget { left: BURST, filled: now };
        if !self.budgets.entry(uid.clone()).or_insert_with(new).take(now) {
            return Decision::Drop;
        }
        let repeated = Repeated { count: 1, first: stamp, last: stamp };
        let message = digest_of(&[&notice.message]);
        let told = Told { repeated, sent: now, message, waiting: None };
        self.told.insert((uid.clone(), notice.kind), told);
        Decision::Create(repeated)
    }

    /// When the next notice is due that says something new and had to wait.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let waiting = self.told.values().filter(|told| told.waiting.is_some());
        waiting.map(|told| told.sent.saturating_add(REPEAT_AFTER)).min()
    }

    /// A notice that has waited long enough, to be told in the place of the last one.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<(Notice, Repeated)> {
        let is_due = |told: &&mut Told| {
            told.waiting.is_some() && now.saturating_sub(told.sent) >= REPEAT_AFTER
        };
        let told = self.told.values_mut().find(is_due)?;
        let notice = told.waiting.take()?;
        told.send(&notice, now);
        Some((notice, told.repeated))
    }

    /// Events live for an hour, so what is older is told anew; full budgets are as good as none.
    fn forget(&mut self, now: Duration) {
        if self.told.len() + self.budgets.len() < FORGET_FROM {
            self.told.retain(|_, told| now.saturating_sub(told.sent) < EVENT_LIFETIME);
            return;
        }
        self.told.retain(|_, told| {
            told.waiting.is_some() || now.saturating_sub(told.sent) < REPEAT_AFTER
        });
        self.budgets.retain(|_, budget| {
            budget.fill(now);
            budget.left < BURST
        });
    }
}

impl Told {
    fn send(&mut self, notice: &Notice, now: Duration) {
        self.sent = now;
        self.message = digest_of(&[&notice.message]);
        // It is older than this one.
        self.waiting = None;
    }
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled).as_secs() / ONE_MORE_EVERY.as_secs();
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        if whole > 0 {
            self.left = self.left.saturating_add(whole).min(BURST);
            self.filled = self.filled.saturating_add(ONE_MORE_EVERY.saturating_mul(whole));
        }
    }
}

/// How many new events a pod may have at once.
const BURST: u32 = 12;
/// How often one more is allowed.
const ONE_MORE_EVERY: Duration = Duration::from_mins(2);
/// How often the count of an event is brought up to date.
const REPEAT_AFTER: Duration = Duration::from_mins(5);
/// The API server's `--event-ttl`, unless it is told otherwise.
const EVENT_LIFETIME: Duration = Duration::from_hours(1);
/// How much is remembered without asking whether it is worth it.
const FORGET_FROM: usize = 4096;

#[cfg(test)]
mod tests {
    use lanyard_keyvault::Pod;
    use lanyard_vocabulary::OutcomeCode;

    use super::*;

    const FAILED: NoticeKind = NoticeKind::Failed(OutcomeCode::VaultThrottled);
    const RECOVERED: NoticeKind = NoticeKind::Recovered(OutcomeCode::VaultThrottled);
    const MINUTE: Duration = Duration::from_mins(1);

    fn notice(uid: &str, kind: NoticeKind) -> Notice {
        let pod = Pod {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: uid.to_owned(),
            service_account: String::new(),
        };
        Notice { pod, kind, message: String::new() }
    }

    fn at(after: Duration) -> Timestamp {
        Timestamp::UNIX_EPOCH + after
    }

    fn decide(ledger: &mut EventLedger, kind: NoticeKind, now: Duration) -> Decision {
        ledger.decide(&notice("u", kind), now, at(now))
    }

    #[test]
    fn what_is_said_again_is_counted_and_told_after_a_while() {
        let mut ledger = EventLedger::default();
        assert!(matches!(decide(&mut ledger, FAILED, MINUTE), Decision::Create(_)));
        for minute in 2..=5 {
            assert_eq!(decide(&mut ledger, FAILED, minute * MINUTE), Decision::Wait);
        }
        let repeated = Repeated { count: 6, first: at(MINUTE), last: at(6 * MINUTE) };
        assert_eq!(decide(&mut ledger, FAILED, 6 * MINUTE), Decision::Repeat(repeated));
        assert_eq!(decide(&mut ledger, FAILED, 7 * MINUTE), Decision::Wait);
    }

    #[test]
    fn another_message_about_the_same_is_told_later_and_not_lost() {
        let mut ledger = EventLedger::default();
        let says = |message: &str| Notice { message: message.to_owned(), ..notice("u", FAILED) };
        let mut decide = |message, now| ledger.decide(&says(message), now, at(now));
        assert!(matches!(decide("a", MINUTE), Decision::Create(_)));
        assert_eq!(decide("b", 2 * MINUTE), Decision::Wait);
        assert_eq!(decide("b", 3 * MINUTE), Decision::Wait);
        assert_eq!(ledger.next_due(), Some(6 * MINUTE));
        assert_eq!(ledger.take_due(5 * MINUTE), None);
        let repeated = Repeated { count: 3, first: at(MINUTE), last: at(3 * MINUTE) };
        assert_eq!(ledger.take_due(6 * MINUTE), Some((says("b"), repeated)));
        assert_eq!((ledger.next_due(), ledger.take_due(20 * MINUTE)), (None, None));
    }

    #[test]
    fn an_older_message_that_waits_does_not_replace_a_newer_one() {
        let says = |message: &str| Notice { message: message.to_owned(), ..notice("u", FAILED) };
        for (last, at_minute) in [("a", 3), ("c", 6)] {
            let mut ledger = EventLedger::default();
            for (message, minute) in [("a", 1), ("b", 2), (last, at_minute)] {
                ledger.decide(&says(message), minute * MINUTE, at(minute * MINUTE));
            }
            assert_eq!((ledger.next_due(), ledger.take_due(20 * MINUTE)), (None, None), "{last}");
        }
    }

    #[test]
    fn what_waits_is_not_told_once_it_is_mended() {
        let mut ledger = EventLedger::default();
        decide(&mut ledger, FAILED, MINUTE);
        let other = Notice { message: "b".to_owned(), ..notice("u", FAILED) };
        ledger.decide(&other, MINUTE, at(MINUTE));
        decide(&mut ledger, RECOVERED, 2 * MINUTE);
        assert_eq!((ledger.next_due(), ledger.take_due(20 * MINUTE)), (None, None));
    }

    #[test]
    fn what_was_mended_and_breaks_again_is_a_new_event() {
        let mut ledger = EventLedger::default();
        for kind in [FAILED, RECOVERED, FAILED, RECOVERED] {
            let decision = decide(&mut ledger, kind, MINUTE);
            assert!(matches!(decision, Decision::Create(_)), "{kind:?}: {decision:?}");
        }
    }

    #[test]
    fn an_event_that_the_api_forgot_is_made_anew() {
        let mut ledger = EventLedger::default();
        decide(&mut ledger, FAILED, MINUTE);
        let later = decide(&mut ledger, FAILED, 62 * MINUTE);
        assert!(matches!(later, Decision::Create(Repeated { count: 1, .. })), "{later:?}");
    }

    #[test]
    fn each_pod_has_a_budget_that_fills_again() {
        let mut ledger = EventLedger::default();
        let mut created = 0;
        let mut flap = |ledger: &mut EventLedger, now: Duration| {
            for kind in [FAILED, RECOVERED] {
                if matches!(decide(ledger, kind, now), Decision::Create(_)) {
                    created += 1;
                }
            }
            created
        };
        for _ in 0..100 {
            flap(&mut ledger, MINUTE);
        }
        assert_eq!(flap(&mut ledger, MINUTE), 12);
        assert_eq!(flap(&mut ledger, 5 * MINUTE), 14);
        let other = ledger.decide(&notice("other", FAILED), MINUTE, at(MINUTE));
        assert!(matches!(other, Decision::Create(_)));
    }

    #[test]
    fn many_pods_are_not_remembered_for_ever() {
        let mut ledger = EventLedger::default();
        for pod in 0..10_000_u32 {
            let now = Duration::from_secs(pod.into());
            let pod = notice(&pod.to_string(), FAILED);
            assert!(matches!(ledger.decide(&pod, now, at(now)), Decision::Create(_)));
        }
        let kept = ledger.told.len() + ledger.budgets.len();
        assert!(kept <= FORGET_FROM + 2, "{kept}");
    }
}
