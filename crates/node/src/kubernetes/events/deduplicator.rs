//! Decides which pod events are sent, counted, deferred or dropped. Pure.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::kubernetes::digest::sha256_of_texts;
use crate::reporter::{PodEvent, PodEventKind};

/// The recently sent events of each pod.
#[derive(Debug, Default)]
pub(super) struct PodEventDeduplicator {
    sent_events: HashMap<(String, PodEventKind), SentPodEvent>,
    budgets: HashMap<String, PodEventBudget>,
}

/// An event that was sent, and what occurred since.
#[derive(Debug)]
struct SentPodEvent {
    occurrences: EventOccurrences,
    /// When the event was last sent.
    sent_at: Duration,
    /// The SHA-256 of the message that was sent.
    message_digest: [u8; 32],
    /// The latest message, if it differs from the sent one.
    deferred: Option<PodEvent>,
}

/// The number of occurrences of an event, and its first and last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventOccurrences {
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// The number of new events that a pod may still emit.
#[derive(Debug)]
struct PodEventBudget {
    remaining: u32,
    refilled_at: Duration,
}

/// The decision about one event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodEventDecision {
    /// Creates a new event.
    Create(EventOccurrences),
    /// Increases the count of the existing event.
    UpdateCount(EventOccurrences),
    /// Counts the event and sends it later: with its next occurrence, or, if the message is new, through
    /// [`PodEventDeduplicator::take_due_event`].
    Defer,
    /// Drops the event: the pod has used up its budget.
    Drop,
}

impl PodEventDeduplicator {
    /// Decides whether an event is created, counted in an existing event now or later, or dropped because the pod
    /// has used up its budget of new events. `now` is the monotonic time, `stamp` the time in the event.
    pub(super) fn decide(
        &mut self,
        event: &PodEvent,
        now: Duration,
        stamp: Timestamp,
    ) -> PodEventDecision {
        self.evict_expired(now);
        let uid = &event.pod.uid;
        // A failure after a recovery is a new event.
        if let PodEventKind::Recovered(code) = event.kind {
            self.sent_events.remove(&(uid.clone(), PodEventKind::Failed(code)));
        }
        if let PodEventKind::Failed(code) = event.kind {
            self.sent_events.remove(&(uid.clone(), PodEventKind::Recovered(code)));
        }
        if let Some(sent) = self.sent_events.get_mut(&(uid.clone(), event.kind)) {
            sent.occurrences.count = sent.occurrences.count.saturating_add(1);
            sent.occurrences.last = stamp;
            if now.saturating_sub(sent.sent_at) < COUNT_UPDATE_INTERVAL {
                // The latest message wins: if it equals the sent one, an older deferred message is discarded.
                let is_new_message = sent.message_digest != sha256_of_texts(&[&event.message]);
                sent.deferred = is_new_message.then(|| event.clone());
                return PodEventDecision::Defer;
            }
            sent.mark_sent(event, now);
            return PodEventDecision::UpdateCount(sent.occurrences);
        }
        let new = || PodEventBudget { remaining: BURST, refilled_at: now };
        if !self.budgets.entry(uid.clone()).or_insert_with(new).try_take(now) {
            return PodEventDecision::Drop;
        }
        let occurrences = EventOccurrences { count: 1, first: stamp, last: stamp };
        let message_digest = sha256_of_texts(&[&event.message]);
        let sent = SentPodEvent { occurrences, sent_at: now, message_digest, deferred: None };
        self.sent_events.insert((uid.clone(), event.kind), sent);
        PodEventDecision::Create(occurrences)
    }

    /// Returns when the next deferred message is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let waiting = self.sent_events.values().filter(|sent| sent.deferred.is_some());
        waiting.map(|sent| sent.sent_at.saturating_add(COUNT_UPDATE_INTERVAL)).min()
    }

    /// Returns a deferred event that is due, to replace the message of the last one.
    pub(super) fn take_due_event(&mut self, now: Duration) -> Option<(PodEvent, EventOccurrences)> {
        let is_due = |sent: &&mut SentPodEvent| {
            sent.deferred.is_some() && now.saturating_sub(sent.sent_at) >= COUNT_UPDATE_INTERVAL
        };
        let sent = self.sent_events.values_mut().find(is_due)?;
        let event = sent.deferred.take()?;
        sent.mark_sent(&event, now);
        Some((event, sent.occurrences))
    }

    /// Evicts expired entries. The API server keeps events for one hour, so older ones are created again; a
    /// full budget needs no entry.
    fn evict_expired(&mut self, now: Duration) {
        if self.sent_events.len() + self.budgets.len() < EVICTION_THRESHOLD {
            self.sent_events.retain(|_, sent| now.saturating_sub(sent.sent_at) < EVENT_LIFETIME);
            return;
        }
        self.sent_events.retain(|_, sent| {
            sent.deferred.is_some() || now.saturating_sub(sent.sent_at) < COUNT_UPDATE_INTERVAL
        });
        self.budgets.retain(|_, budget| {
            budget.refill(now);
            budget.remaining < BURST
        });
    }
}

impl SentPodEvent {
    /// Records that the event was sent at `now` with its current message.
    fn mark_sent(&mut self, event: &PodEvent, now: Duration) {
        self.sent_at = now;
        self.message_digest = sha256_of_texts(&[&event.message]);
        // The deferred message is older than this one.
        self.deferred = None;
    }
}

impl PodEventBudget {
    /// Takes one event from the budget. Returns whether there was one.
    fn try_take(&mut self, now: Duration) -> bool {
        self.refill(now);
        match self.remaining.checked_sub(1) {
            Some(left) => {
                self.remaining = left;
                true
            }
            None => false,
        }
    }

    /// Adds the events for the time since the last refill.
    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.refilled_at).as_secs() / REFILL_INTERVAL.as_secs();
        let whole = u32::try_from(passed).unwrap_or(u32::MAX);
        if whole > 0 {
            self.remaining = self.remaining.saturating_add(whole).min(BURST);
            self.refilled_at =
                self.refilled_at.saturating_add(REFILL_INTERVAL.saturating_mul(whole));
        }
    }
}

/// The number of new events that a pod may emit at once.
const BURST: u32 = 12;
/// How often the budget grows by one event.
const REFILL_INTERVAL: Duration = Duration::from_mins(2);
/// How often the count of an event is updated.
const COUNT_UPDATE_INTERVAL: Duration = Duration::from_mins(5);
/// The default of the API server's `--event-ttl`.
const EVENT_LIFETIME: Duration = Duration::from_hours(1);
/// The number of entries above which entries are evicted early.
const EVICTION_THRESHOLD: usize = 4096;

#[cfg(test)]
mod tests {
    use lanyard_keyvault::VolumePod;
    use lanyard_vocabulary::OutcomeCode;

    use super::*;

    const FAILED: PodEventKind = PodEventKind::Failed(OutcomeCode::VaultThrottled);
    const RECOVERED: PodEventKind = PodEventKind::Recovered(OutcomeCode::VaultThrottled);
    const MINUTE: Duration = Duration::from_mins(1);

    fn pod_event(uid: &str, kind: PodEventKind) -> PodEvent {
        let pod = VolumePod {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: uid.to_owned(),
            service_account: String::new(),
        };
        PodEvent { pod, kind, message: String::new() }
    }

    fn at(after: Duration) -> Timestamp {
        Timestamp::UNIX_EPOCH + after
    }

    fn decide(
        ledger: &mut PodEventDeduplicator,
        kind: PodEventKind,
        now: Duration,
    ) -> PodEventDecision {
        ledger.decide(&pod_event("u", kind), now, at(now))
    }

    #[test]
    fn repeated_event_is_counted_and_sent_later() {
        let mut ledger = PodEventDeduplicator::default();
        assert!(matches!(decide(&mut ledger, FAILED, MINUTE), PodEventDecision::Create(_)));
        for minute in 2..=5 {
            assert_eq!(decide(&mut ledger, FAILED, minute * MINUTE), PodEventDecision::Defer);
        }
        let repeated = EventOccurrences { count: 6, first: at(MINUTE), last: at(6 * MINUTE) };
        assert_eq!(
            decide(&mut ledger, FAILED, 6 * MINUTE),
            PodEventDecision::UpdateCount(repeated)
        );
        assert_eq!(decide(&mut ledger, FAILED, 7 * MINUTE), PodEventDecision::Defer);
    }

    #[test]
    fn changed_message_is_deferred_and_not_lost() {
        let mut ledger = PodEventDeduplicator::default();
        let says =
            |message: &str| PodEvent { message: message.to_owned(), ..pod_event("u", FAILED) };
        let mut decide = |message, now| ledger.decide(&says(message), now, at(now));
        assert!(matches!(decide("a", MINUTE), PodEventDecision::Create(_)));
        assert_eq!(decide("b", 2 * MINUTE), PodEventDecision::Defer);
        assert_eq!(decide("b", 3 * MINUTE), PodEventDecision::Defer);
        assert_eq!(ledger.next_due(), Some(6 * MINUTE));
        assert_eq!(ledger.take_due_event(5 * MINUTE), None);
        let repeated = EventOccurrences { count: 3, first: at(MINUTE), last: at(3 * MINUTE) };
        assert_eq!(ledger.take_due_event(6 * MINUTE), Some((says("b"), repeated)));
        assert_eq!((ledger.next_due(), ledger.take_due_event(20 * MINUTE)), (None, None));
    }

    #[test]
    fn older_deferred_message_does_not_replace_a_newer_one() {
        let says =
            |message: &str| PodEvent { message: message.to_owned(), ..pod_event("u", FAILED) };
        for (last, at_minute) in [("a", 3), ("c", 6)] {
            let mut ledger = PodEventDeduplicator::default();
            for (message, minute) in [("a", 1), ("b", 2), (last, at_minute)] {
                ledger.decide(&says(message), minute * MINUTE, at(minute * MINUTE));
            }
            assert_eq!(
                (ledger.next_due(), ledger.take_due_event(20 * MINUTE)),
                (None, None),
                "{last}"
            );
        }
    }

    #[test]
    fn recovery_discards_the_deferred_failure() {
        let mut ledger = PodEventDeduplicator::default();
        decide(&mut ledger, FAILED, MINUTE);
        let other = PodEvent { message: "b".to_owned(), ..pod_event("u", FAILED) };
        ledger.decide(&other, MINUTE, at(MINUTE));
        decide(&mut ledger, RECOVERED, 2 * MINUTE);
        assert_eq!((ledger.next_due(), ledger.take_due_event(20 * MINUTE)), (None, None));
    }

    #[test]
    fn failure_after_recovery_is_a_new_event() {
        let mut ledger = PodEventDeduplicator::default();
        for kind in [FAILED, RECOVERED, FAILED, RECOVERED] {
            let decision = decide(&mut ledger, kind, MINUTE);
            assert!(matches!(decision, PodEventDecision::Create(_)), "{kind:?}: {decision:?}");
        }
    }

    #[test]
    fn expired_event_is_created_again() {
        let mut ledger = PodEventDeduplicator::default();
        decide(&mut ledger, FAILED, MINUTE);
        let later = decide(&mut ledger, FAILED, 62 * MINUTE);
        assert!(
            matches!(later, PodEventDecision::Create(EventOccurrences { count: 1, .. })),
            "{later:?}"
        );
    }

    #[test]
    fn each_pod_has_an_event_budget_that_refills() {
        let mut ledger = PodEventDeduplicator::default();
        let mut created = 0;
        let mut flap = |ledger: &mut PodEventDeduplicator, now: Duration| {
            for kind in [FAILED, RECOVERED] {
                if matches!(decide(ledger, kind, now), PodEventDecision::Create(_)) {
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
        let other = ledger.decide(&pod_event("other", FAILED), MINUTE, at(MINUTE));
        assert!(matches!(other, PodEventDecision::Create(_)));
    }

    #[test]
    fn deduplicator_memory_is_bounded() {
        let mut ledger = PodEventDeduplicator::default();
        for pod in 0..10_000_u32 {
            let now = Duration::from_secs(pod.into());
            let pod = pod_event(&pod.to_string(), FAILED);
            assert!(matches!(ledger.decide(&pod, now, at(now)), PodEventDecision::Create(_)));
        }
        let retained = ledger.sent_events.len() + ledger.budgets.len();
        assert!(retained <= EVICTION_THRESHOLD + 2, "{retained}");
    }
}
