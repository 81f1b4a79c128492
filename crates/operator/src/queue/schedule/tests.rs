use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn begin(schedule: &mut Schedule<&'static str>, now: Duration) -> Option<&'static str> {
    schedule.begin(now).map(|(key, _)| key)
}

#[test]
fn who_is_due_for_longest_comes_first_and_nobody_twice() {
    let mut schedule = Schedule::default();
    schedule.wake(&"b", Wake::Wish, SECOND);
    schedule.wake(&"a", Wake::Wish, 2 * SECOND);
    schedule.wake(&"b", Wake::Surroundings, 3 * SECOND);
    assert_eq!(schedule.waiting(3 * SECOND), 2);
    assert_eq!(begin(&mut schedule, 3 * SECOND), Some("b"));
    assert_eq!(begin(&mut schedule, 3 * SECOND), Some("a"));
    assert_eq!(begin(&mut schedule, 3 * SECOND), None);
    assert_eq!(schedule.next_due(), None);
}

#[test]
fn what_changes_during_a_look_is_looked_at_after_it() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, SECOND);
    let (key, turn) = schedule.begin(SECOND).unwrap();
    schedule.wake(&"a", Wake::Surroundings, 2 * SECOND);
    assert_eq!(begin(&mut schedule, 2 * SECOND), None);
    schedule.end(&key, turn, Again::In(100 * SECOND), 3 * SECOND, 0.0);
    assert_eq!(begin(&mut schedule, 3 * SECOND), Some("a"));
}

#[test]
fn failures_back_off_to_ten_seconds_and_a_success_forgets_them() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let (key, turn) = schedule.begin(now).unwrap();
        schedule.end(&key, turn, Again::Soon, now, 0.0);
        let due = schedule.next_due().unwrap();
        pauses.push(due.saturating_sub(now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
    let (key, turn) = schedule.begin(now).unwrap();
    schedule.end(&key, turn, Again::In(SECOND), now, 0.0);
    now += SECOND;
    let (key, turn) = schedule.begin(now).unwrap();
    assert_eq!(schedule.end(&key, turn, Again::Soon, now, 0.0), 1);
}

#[test]
fn a_storm_of_changes_around_a_failing_one_does_not_hasten_it_and_a_new_wish_does() {
    for again in [Again::Soon, Again::Slowly, Again::OnChange, Again::AfterAsked(60 * SECOND)] {
        let mut schedule = Schedule::default();
        schedule.wake(&"a", Wake::Wish, Duration::ZERO);
        let (key, turn) = schedule.begin(Duration::ZERO).unwrap();
        schedule.wake(&"a", Wake::Surroundings, Duration::ZERO);
        schedule.end(&key, turn, again, Duration::ZERO, 0.0);
        for _ in 0..100 {
            schedule.wake(&"a", Wake::Surroundings, Duration::from_millis(1));
        }
        assert_eq!(begin(&mut schedule, Duration::from_millis(999)), None, "{again:?}");
        schedule.wake(&"a", Wake::Wish, Duration::from_millis(999));
        assert_eq!(begin(&mut schedule, Duration::from_millis(999)), Some("a"), "{again:?}");
    }
}

#[test]
fn what_changes_around_a_failing_one_is_looked_at_some_seconds_after_the_failure() {
    for again in [Again::Slowly, Again::OnChange] {
        for during in [false, true] {
            let mut schedule = Schedule::default();
            schedule.wake(&"a", Wake::Wish, Duration::ZERO);
            let (key, turn) = schedule.begin(Duration::ZERO).unwrap();
            if during {
                schedule.wake(&"a", Wake::Surroundings, Duration::ZERO);
            }
            assert_eq!(schedule.end(&key, turn, again, SECOND, 0.0), 1);
            schedule.wake(&"a", Wake::Surroundings, 2 * SECOND);
            assert_eq!(begin(&mut schedule, 5 * SECOND), None, "{again:?}");
            let (key, turn) = schedule.begin(6 * SECOND).unwrap();
            // It is no success: what it waits for by itself grows on.
            assert_eq!(schedule.end(&key, turn, again, 6 * SECOND, 0.0), 2);
            schedule.wake(&"a", Wake::Surroundings, 20 * SECOND);
            assert_eq!(begin(&mut schedule, 20 * SECOND), Some("a"), "{again:?}");
        }
    }
}

#[test]
fn nothing_around_it_shortens_the_time_that_the_api_asked_for() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, Duration::ZERO);
    let (key, turn) = schedule.begin(Duration::ZERO).unwrap();
    schedule.end(&key, turn, Again::AfterAsked(60 * SECOND), Duration::ZERO, 0.0);
    schedule.wake(&"a", Wake::Surroundings, 30 * SECOND);
    assert_eq!(begin(&mut schedule, 59 * SECOND), None);
    assert_eq!(begin(&mut schedule, 60 * SECOND), Some("a"));
}

#[test]
fn who_changes_what_is_around_one_all_the_time_has_two_looks_a_second_and_a_wish_passes() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, Duration::ZERO);
    let mut looks = 0;
    for milli in 0..60_000 {
        let now = Duration::from_millis(milli);
        if let Some((key, turn)) = schedule.begin(now) {
            looks += 1;
            schedule.end(&key, turn, Again::In(Duration::from_mins(5)), now, 0.0);
        }
        schedule.wake(&"a", Wake::Surroundings, now);
    }
    assert!((135..=141).contains(&looks), "{looks} looks in a minute");
    let now = Duration::from_millis(59_999);
    assert_eq!(begin(&mut schedule, now), None);
    schedule.wake(&"a", Wake::Wish, now);
    assert_eq!(begin(&mut schedule, now), Some("a"));
}

#[test]
fn what_cannot_work_until_it_changes_is_not_tried_within_three_quarters_of_an_hour() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, Duration::ZERO);
    let (key, turn) = schedule.begin(Duration::ZERO).unwrap();
    schedule.end(&key, turn, Again::OnChange, Duration::ZERO, 1.0);
    assert!(schedule.next_due().unwrap() >= Duration::from_mins(45));
}

#[test]
fn who_asked_to_be_left_alone_is_never_asked_sooner() {
    for chance in [0.0, 0.5, 1.0] {
        assert!(pause(Again::AfterAsked(60 * SECOND), 9, chance) >= 60 * SECOND);
    }
}

#[test]
fn one_that_always_fails_leaves_the_turns_to_the_others() {
    let mut schedule = Schedule::default();
    schedule.wake(&"bad", Wake::Wish, Duration::ZERO);
    let good: Vec<String> = (0..99).map(|number| format!("good-{number}")).collect();
    let good: Vec<&'static str> = good.into_iter().map(|name| &*name.leak()).collect();
    for name in &good {
        schedule.wake(name, Wake::Wish, Duration::ZERO);
    }
    let (mut now, mut bad, mut others) = (Duration::ZERO, 0, 0);
    while now < 60 * SECOND {
        while let Some((key, turn)) = schedule.begin(now) {
            schedule.wake(&key, Wake::Surroundings, now);
            let again = if key == "bad" { Again::Soon } else { Again::In(SECOND) };
            if key == "bad" {
                bad += 1;
            } else {
                others += 1;
            }
            // Somebody changes the bad one all the time.
            schedule.end(&key, turn, again, now + SECOND / 100, 0.0);
            schedule.wake(&"bad", Wake::Surroundings, now);
        }
        now += SECOND / 10;
    }
    // Once in five seconds at most, after the first few.
    assert!(bad <= 15, "{bad}");
    assert!(others >= 99 * 50, "{others}");
}

#[test]
fn what_was_removed_is_not_put_back_by_the_end_of_its_look() {
    let mut schedule = Schedule::default();
    schedule.wake(&"a", Wake::Wish, SECOND);
    let (key, turn) = schedule.begin(SECOND).unwrap();
    schedule.remove(&"a");
    schedule.wake(&"a", Wake::Wish, SECOND);
    let (again, second) = schedule.begin(SECOND).unwrap();
    // The end of the first look is not that of the second.
    schedule.end(&key, turn, Again::Now, SECOND, 0.0);
    assert_eq!(begin(&mut schedule, SECOND), None);
    schedule.end(&again, second, Again::Now, SECOND, 0.0);
    assert_eq!(begin(&mut schedule, SECOND), Some("a"));
}

#[derive(Debug, Clone)]
enum Act {
    Wake(u8, bool),
    Begin,
    End(u8),
    Remove(u8),
    Pass(u16),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4_u8, any::<bool>()).prop_map(|(key, wish)| Act::Wake(key, wish)),
        Just(Act::Begin),
        (0..6_u8).prop_map(Act::End),
        (0..4_u8).prop_map(Act::Remove),
        (0..5_000_u16).prop_map(Act::Pass),
    ]
}

proptest! {
    #[test]
    fn nobody_is_looked_at_twice_at_once_and_every_wish_is_looked_at(
        acts in prop::collection::vec(act(), 1..200),
    ) {
        let endings = [
            Again::Now, Again::In(SECOND), Again::Soon, Again::Slowly, Again::OnChange,
            Again::AfterAsked(SECOND),
        ];
        let mut schedule = Schedule::default();
        let mut now = Duration::ZERO;
        let mut looking: Vec<(u8, Turn)> = Vec::new();
        let mut wished = BTreeSet::new();
        for act in acts {
            match act {
                Act::Wake(key, wish) => {
                    schedule.wake(&key, if wish { Wake::Wish } else { Wake::Surroundings }, now);
                    if wish {
                        wished.insert(key);
                    }
                }
                Act::Begin => {
                    if let Some((key, turn)) = schedule.begin(now) {
                        wished.remove(&key);
                        looking.push((key, turn));
                    }
                }
                Act::End(which) => {
                    if !looking.is_empty() {
                        let (key, turn) = looking.remove(usize::from(which) % looking.len());
                        schedule.end(&key, turn, endings[usize::from(which) % 6], now, 0.5);
                    }
                }
                Act::Remove(key) => {
                    schedule.remove(&key);
                    wished.remove(&key);
                    looking.retain(|(other, _)| *other != key);
                }
                Act::Pass(millis) => now += Duration::from_millis(millis.into()),
            }
            let mut keys: Vec<_> = looking.iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), looking.len());
        }
        for (key, turn) in looking {
            schedule.end(&key, turn, Again::OnChange, now, 0.5);
        }
        while let Some((key, _)) = schedule.begin(now) {
            wished.remove(&key);
        }
        prop_assert!(wished.is_empty(), "{:?}", wished);
    }
}

#[test]
fn what_may_be_done_sooner_waits_for_no_failure_and_obeys_what_was_asked() {
    let minutes = Duration::from_mins;
    let cases = [(Again::Slowly, minutes(1)), (Again::AfterAsked(minutes(5)), minutes(5))];
    for (again, expected) in cases {
        let mut schedule = Schedule::default();
        schedule.wake(&1, Wake::Wish, Duration::ZERO);
        let mut now = Duration::ZERO;
        // It failed often enough to wait for ten minutes.
        for _ in 0..8 {
            let (_, turn) = schedule.begin(now).unwrap();
            schedule.end(&1, turn, again, now, 0.0);
            schedule.at_latest(&1, now + minutes(1));
            let due = schedule.next_due().unwrap();
            assert!(due <= now + expected, "{again:?}");
            now = due;
        }
        assert!(now >= expected * 4, "{again:?}: never at once");
        let (_, turn) = schedule.begin(now).unwrap();
        schedule.at_latest(&1, now);
        schedule.end(&1, turn, Again::In(minutes(5)), now, 0.0);
        schedule.at_latest(&1, now + minutes(10));
        assert_eq!(schedule.next_due(), Some(now + minutes(5)), "it is sooner anyway");
    }
}
