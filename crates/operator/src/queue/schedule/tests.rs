use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn start_next_key(
    schedule: &mut ReconcileSchedule<&'static str>,
    now: Duration,
) -> Option<&'static str> {
    schedule.start_next(now).map(|(key, _)| key)
}

#[test]
fn longest_due_key_runs_first_and_never_twice() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"b", ReconcileTrigger::SpecChanged, SECOND);
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, 2 * SECOND);
    schedule.trigger(&"b", ReconcileTrigger::RelatedChanged, 3 * SECOND);
    assert_eq!(schedule.due_count(3 * SECOND), 2);
    assert_eq!(start_next_key(&mut schedule, 3 * SECOND), Some("b"));
    assert_eq!(start_next_key(&mut schedule, 3 * SECOND), Some("a"));
    assert_eq!(start_next_key(&mut schedule, 3 * SECOND), None);
    assert_eq!(schedule.next_due(), None);
}

#[test]
fn change_during_reconcile_requeues_after_it() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, SECOND);
    let (key, reconcile_id) = schedule.start_next(SECOND).unwrap();
    schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, 2 * SECOND);
    assert_eq!(start_next_key(&mut schedule, 2 * SECOND), None);
    schedule.finish(&key, reconcile_id, Requeue::After(100 * SECOND), 3 * SECOND, 0.0);
    assert_eq!(start_next_key(&mut schedule, 3 * SECOND), Some("a"));
}

#[test]
fn failures_back_off_to_ten_seconds_and_success_resets() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let (key, reconcile_id) = schedule.start_next(now).unwrap();
        schedule.finish(&key, reconcile_id, Requeue::RetrySoon, now, 0.0);
        let due = schedule.next_due().unwrap();
        pauses.push(due.saturating_sub(now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    let (key, reconcile_id) = schedule.start_next(now).unwrap();
    schedule.finish(&key, reconcile_id, Requeue::After(SECOND), now, 0.0);
    now += SECOND;
    let (key, reconcile_id) = schedule.start_next(now).unwrap();
    assert_eq!(schedule.finish(&key, reconcile_id, Requeue::RetrySoon, now, 0.0), 1);
}

#[test]
fn only_spec_change_overrides_failure_backoff() {
    for requeue in [
        Requeue::RetrySoon,
        Requeue::RetrySlowly,
        Requeue::OnChange,
        Requeue::RetryAfter(60 * SECOND),
    ] {
        let mut schedule = ReconcileSchedule::default();
        schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
        let (key, reconcile_id) = schedule.start_next(Duration::ZERO).unwrap();
        schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, Duration::ZERO);
        schedule.finish(&key, reconcile_id, requeue, Duration::ZERO, 0.0);
        for _ in 0..100 {
            schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, Duration::from_millis(1));
        }
        assert_eq!(start_next_key(&mut schedule, Duration::from_millis(999)), None, "{requeue:?}");
        schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::from_millis(999));
        assert_eq!(
            start_next_key(&mut schedule, Duration::from_millis(999)),
            Some("a"),
            "{requeue:?}"
        );
    }
}

#[test]
fn related_change_after_failure_waits_five_seconds() {
    for requeue in [Requeue::RetrySlowly, Requeue::OnChange] {
        for during in [false, true] {
            let mut schedule = ReconcileSchedule::default();
            schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
            let (key, reconcile_id) = schedule.start_next(Duration::ZERO).unwrap();
            if during {
                schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, Duration::ZERO);
            }
            assert_eq!(schedule.finish(&key, reconcile_id, requeue, SECOND, 0.0), 1);
            schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, 2 * SECOND);
            assert_eq!(start_next_key(&mut schedule, 5 * SECOND), None, "{requeue:?}");
            let (key, reconcile_id) = schedule.start_next(6 * SECOND).unwrap();
            // Not a success: its own back-off grows on.
            assert_eq!(schedule.finish(&key, reconcile_id, requeue, 6 * SECOND, 0.0), 2);
            schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, 20 * SECOND);
            assert_eq!(start_next_key(&mut schedule, 20 * SECOND), Some("a"), "{requeue:?}");
        }
    }
}

#[test]
fn related_change_does_not_shorten_retry_after() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
    let (key, reconcile_id) = schedule.start_next(Duration::ZERO).unwrap();
    schedule.finish(&key, reconcile_id, Requeue::RetryAfter(60 * SECOND), Duration::ZERO, 0.0);
    schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, 30 * SECOND);
    assert_eq!(start_next_key(&mut schedule, 59 * SECOND), None);
    assert_eq!(start_next_key(&mut schedule, 60 * SECOND), Some("a"));
}

#[test]
fn related_changes_are_limited_to_two_reconciles_a_second() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
    let mut reconciles = 0;
    for milli in 0..60_000 {
        let now = Duration::from_millis(milli);
        if let Some((key, reconcile_id)) = schedule.start_next(now) {
            reconciles += 1;
            schedule.finish(&key, reconcile_id, Requeue::After(Duration::from_mins(5)), now, 0.0);
        }
        schedule.trigger(&"a", ReconcileTrigger::RelatedChanged, now);
    }
    assert!((135..=141).contains(&reconciles), "{reconciles} reconciles in a minute");
    let now = Duration::from_millis(59_999);
    assert_eq!(start_next_key(&mut schedule, now), None);
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, now);
    assert_eq!(start_next_key(&mut schedule, now), Some("a"));
}

#[test]
fn on_change_requeue_waits_at_least_45_minutes() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, Duration::ZERO);
    let (key, reconcile_id) = schedule.start_next(Duration::ZERO).unwrap();
    schedule.finish(&key, reconcile_id, Requeue::OnChange, Duration::ZERO, 1.0);
    assert!(schedule.next_due().unwrap() >= Duration::from_mins(45));
}

#[test]
fn retry_after_is_never_shortened() {
    for chance in [0.0, 0.5, 1.0] {
        assert!(requeue_delay(Requeue::RetryAfter(60 * SECOND), 9, chance) >= 60 * SECOND);
    }
}

#[test]
fn failing_key_does_not_starve_others() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"bad", ReconcileTrigger::SpecChanged, Duration::ZERO);
    let good: Vec<String> = (0..99).map(|number| format!("good-{number}")).collect();
    let good: Vec<&'static str> = good.into_iter().map(|name| &*name.leak()).collect();
    for name in &good {
        schedule.trigger(name, ReconcileTrigger::SpecChanged, Duration::ZERO);
    }
    let (mut now, mut bad, mut others) = (Duration::ZERO, 0, 0);
    while now < 60 * SECOND {
        while let Some((key, reconcile_id)) = schedule.start_next(now) {
            schedule.trigger(&key, ReconcileTrigger::RelatedChanged, now);
            let requeue = if key == "bad" { Requeue::RetrySoon } else { Requeue::After(SECOND) };
            if key == "bad" {
                bad += 1;
            } else {
                others += 1;
            }
            // Another client changes the failing one all the time.
            schedule.finish(&key, reconcile_id, requeue, now + SECOND / 100, 0.0);
            schedule.trigger(&"bad", ReconcileTrigger::RelatedChanged, now);
        }
        now += SECOND / 10;
    }
    // At most once in five seconds, after the first few.
    assert!(bad <= 15, "{bad}");
    assert!(others >= 99 * 50, "{others}");
}

#[test]
fn finishing_removed_key_does_not_requeue_it() {
    let mut schedule = ReconcileSchedule::default();
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, SECOND);
    let (key, reconcile_id) = schedule.start_next(SECOND).unwrap();
    schedule.remove(&"a");
    schedule.trigger(&"a", ReconcileTrigger::SpecChanged, SECOND);
    let (second_key, second) = schedule.start_next(SECOND).unwrap();
    // The end of the first reconciliation must not end the second.
    schedule.finish(&key, reconcile_id, Requeue::Now, SECOND, 0.0);
    assert_eq!(start_next_key(&mut schedule, SECOND), None);
    schedule.finish(&second_key, second, Requeue::Now, SECOND, 0.0);
    assert_eq!(start_next_key(&mut schedule, SECOND), Some("a"));
}

#[derive(Debug, Clone)]
enum ScheduleAction {
    Wake(u8, bool),
    Begin,
    End(u8),
    Remove(u8),
    AdvanceClock(u16),
}

fn schedule_action() -> impl Strategy<Value = ScheduleAction> {
    prop_oneof![
        (0..4_u8, any::<bool>())
            .prop_map(|(key, is_spec_change)| ScheduleAction::Wake(key, is_spec_change)),
        Just(ScheduleAction::Begin),
        (0..6_u8).prop_map(ScheduleAction::End),
        (0..4_u8).prop_map(ScheduleAction::Remove),
        (0..5_000_u16).prop_map(ScheduleAction::AdvanceClock),
    ]
}

proptest! {
    #[test]
    fn no_key_runs_twice_and_every_spec_change_runs(
        actions in prop::collection::vec(schedule_action(), 1..200),
    ) {
        let endings = [
            Requeue::Now, Requeue::After(SECOND), Requeue::RetrySoon, Requeue::RetrySlowly,
            Requeue::OnChange, Requeue::RetryAfter(SECOND),
        ];
        let mut schedule = ReconcileSchedule::default();
        let mut now = Duration::ZERO;
        let mut running: Vec<(u8, ReconcileId)> = Vec::new();
        let mut pending_spec_changes = BTreeSet::new();
        for action in actions {
            match action {
                ScheduleAction::Wake(key, is_spec_change) => {
                    let trigger = if is_spec_change {
                        ReconcileTrigger::SpecChanged
                    } else {
                        ReconcileTrigger::RelatedChanged
                    };
                    schedule.trigger(&key, trigger, now);
                    if is_spec_change {
                        pending_spec_changes.insert(key);
                    }
                }
                ScheduleAction::Begin => {
                    if let Some((key, reconcile_id)) = schedule.start_next(now) {
                        pending_spec_changes.remove(&key);
                        running.push((key, reconcile_id));
                    }
                }
                ScheduleAction::End(which) => {
                    if !running.is_empty() {
                        let (key, reconcile_id) = running.remove(usize::from(which) % running.len());
                        schedule.finish(&key, reconcile_id, endings[usize::from(which) % 6], now, 0.5);
                    }
                }
                ScheduleAction::Remove(key) => {
                    schedule.remove(&key);
                    pending_spec_changes.remove(&key);
                    running.retain(|(other, _)| *other != key);
                }
                ScheduleAction::AdvanceClock(millis) => now += Duration::from_millis(millis.into()),
            }
            let mut keys: Vec<_> = running.iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), running.len());
        }
        for (key, reconcile_id) in running {
            schedule.finish(&key, reconcile_id, Requeue::OnChange, now, 0.5);
        }
        while let Some((key, _)) = schedule.start_next(now) {
            pending_spec_changes.remove(&key);
        }
        prop_assert!(pending_spec_changes.is_empty(), "{:?}", pending_spec_changes);
    }
}

#[test]
fn requeue_by_overrides_backoff_but_not_retry_after() {
    let minutes = Duration::from_mins;
    let cases = [(Requeue::RetrySlowly, minutes(1)), (Requeue::RetryAfter(minutes(5)), minutes(5))];
    for (requeue, expected) in cases {
        let mut schedule = ReconcileSchedule::default();
        schedule.trigger(&1, ReconcileTrigger::SpecChanged, Duration::ZERO);
        let mut now = Duration::ZERO;
        // It failed often enough to wait for ten minutes.
        for _ in 0..8 {
            let (_, reconcile_id) = schedule.start_next(now).unwrap();
            schedule.finish(&1, reconcile_id, requeue, now, 0.0);
            schedule.requeue_by(&1, now + minutes(1));
            let due = schedule.next_due().unwrap();
            assert!(due <= now + expected, "{requeue:?}");
            now = due;
        }
        assert!(now >= expected * 4, "{requeue:?}: never immediately");
        let (_, reconcile_id) = schedule.start_next(now).unwrap();
        schedule.requeue_by(&1, now);
        schedule.finish(&1, reconcile_id, Requeue::After(minutes(5)), now, 0.0);
        schedule.requeue_by(&1, now + minutes(10));
        assert_eq!(schedule.next_due(), Some(now + minutes(5)), "it is already due sooner");
    }
}
