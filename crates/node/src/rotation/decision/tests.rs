use lanyard_keyvault::RetryClass;
use proptest::prelude::*;

use super::*;
use crate::rotation::volume_clock::CheckRecord;
use crate::rotation::wishes::ClassWishes;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A look at a volume without stamps or wishes.
fn look<'a>(clock: &'a VolumeClock, interval: &str) -> Look<'a> {
    Look {
        volume_id: "csi-1",
        clock,
        interval: interval.parse().unwrap(),
        stamps: &[],
        refresh: None,
        proofs: ProofState::Good,
    }
}

fn checked(second: i64) -> VolumeClock {
    let mut clock = VolumeClock::default();
    clock.succeeded(at(second), &ClassWishes::default(), []);
    clock
}

/// A look at a volume whose class asks for a refresh since second 100.
fn asked<'a>(clock: &'a VolumeClock, wish: &'a RefreshWish) -> Look<'a> {
    Look { refresh: Some((wish, at(100))), ..look(clock, "1h") }
}

/// When the volume is due, whatever `now` is.
fn due(look: &Look<'_>, now: i64) -> Timestamp {
    match decide(at(now), look) {
        Decision::NotBefore(due) => due,
        Decision::Due { since, .. } | Decision::AwaitsProofs { since } => since,
    }
}

fn reason(look: &Look<'_>, now: i64) -> Option<(Urgency, Reason)> {
    match decide(at(now), look) {
        Decision::Due { urgency, reason, .. } => Some((urgency, reason)),
        Decision::NotBefore(_) | Decision::AwaitsProofs { .. } => None,
    }
}

#[test]
fn a_healthy_volume_is_due_when_the_interval_has_passed() {
    let clock = checked(0);
    let look = look(&clock, "1h");
    assert_eq!(reason(&look, 3_239), None);
    assert_eq!(reason(&look, 3_961), Some((Urgency::Rotation, Reason::Interval)));
}

#[test]
fn a_look_that_came_to_nothing_is_not_repeated_at_once() {
    for mut clock in [checked(0), VolumeClock::default()] {
        clock.began(at(10_000));
        assert_eq!(due(&look(&clock, "1h"), 10_001), at(10_010));
    }
}

#[test]
fn a_volume_whose_marker_is_missing_is_due_soon_after_the_restart() {
    let clock = VolumeClock::resumed(None, at(100));
    let look = look(&clock, "1h");
    assert!(due(&look, 100) <= at(130));
    assert_eq!(reason(&look, 130), Some((Urgency::Rotation, Reason::NeverChecked)));
}

#[test]
fn a_restart_changes_nothing_for_a_volume_that_was_looked_at_lately() {
    let before = checked(0);
    let after = VolumeClock::resumed(before.record().cloned(), at(60));
    assert_eq!(due(&look(&before, "1h"), 60), due(&look(&after, "1h"), 60));
}

#[test]
fn volumes_that_are_overdue_after_a_restart_are_spread() {
    let record = checked(0).record().cloned();
    let clock = VolumeClock::resumed(record, at(100_000));
    let mut dues: Vec<_> = (0..1_000)
        .map(|number| {
            let id = format!("csi-{number}");
            due(&Look { volume_id: &id, ..look(&clock, "1h") }, 100_000)
        })
        .collect();
    dues.sort_unstable();
    assert!(dues[0] >= at(100_000) && dues[999] <= at(100_030));
    for second in 0..30 {
        let within = |it: &&Timestamp| it.as_second() == 100_000 + second;
        let count = dues.iter().filter(within).count();
        assert!((5..=70).contains(&count), "{count} in second {second}");
    }
}

#[test]
fn an_expired_credential_makes_its_volume_due_at_the_floor() {
    let clock = checked(10_000);
    let stamps = [Stamps { not_after: Some(at(9_000)), ..Stamps::default() }];
    let look = Look { stamps: &stamps, ..look(&clock, "1h") };
    assert_eq!(reason(&look, 10_000 + 991), Some((Urgency::Rotation, Reason::Expired)));
}

#[test]
fn a_new_value_of_the_annotation_makes_a_volume_due_within_seconds_and_once() {
    let wish = RefreshWish::of("1").unwrap();
    let mut clock = checked(0);
    assert_eq!(reason(&asked(&clock, &wish), 105), Some((Urgency::Refresh, Reason::Refresh)));

    let wishes = ClassWishes { refresh: Some(wish.clone()), ..ClassWishes::default() };
    clock.succeeded(at(105), &wishes, []);
    assert_eq!(reason(&asked(&clock, &wish), 106), None);
    assert_eq!(reason(&asked(&clock, &wish), 3_000), None);
}

#[test]
fn a_wish_that_stood_when_the_volume_was_mounted_is_fulfilled() {
    let wish = RefreshWish::of("1").unwrap();
    let wishes = ClassWishes { refresh: Some(wish.clone()), ..ClassWishes::default() };
    let mut clock = VolumeClock::default();
    clock.succeeded(at(0), &wishes, []);
    let look = Look { refresh: Some((&wish, at(1))), ..look(&clock, "1h") };
    assert_eq!(reason(&look, 60), None);
}

#[test]
fn refreshes_are_spread_over_a_few_seconds() {
    let wish = RefreshWish::of("1").unwrap();
    let clock = checked(0);
    let mut seconds = [0_u32; 5];
    for number in 0..1_000 {
        let id = format!("csi-{number}");
        let refresh = Some((&wish, at(1_000)));
        let due = due(&Look { volume_id: &id, refresh, ..look(&clock, "1h") }, 1_000);
        seconds[usize::try_from(due.as_second() - 1_000).unwrap()] += 1;
    }
    assert!(seconds.iter().all(|count| (130..=270).contains(count)), "{seconds:?}");
}

#[test]
fn whoever_changes_the_annotation_all_the_time_gets_no_more_than_a_look_in_ten_seconds() {
    let mut clock = checked(0);
    let mut looks = 0;
    for second in 1..=1_000 {
        let wish = RefreshWish::of(&second.to_string()).unwrap();
        // Noticed long enough ago that the spread is over.
        let look = Look { refresh: Some((&wish, at(second - 6))), ..look(&clock, "1h") };
        if reason(&look, second).is_some() {
            looks += 1;
            let wishes = ClassWishes { refresh: Some(wish.clone()), ..ClassWishes::default() };
            clock.succeeded(at(second), &wishes, []);
        }
    }
    assert_eq!(looks, 100);
}

#[test]
fn a_failed_volume_waits_longer_each_time_and_not_longer_than_the_interval() {
    let mut clock = checked(0);
    let mut now = 3_600;
    let mut waits = Vec::new();
    for _ in 0..12 {
        clock.failed(at(now), RetryClass::Transient);
        let next = due(&look(&clock, "1h"), now).as_second();
        waits.push(next - now);
        now = next + 1;
    }
    let expected = [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600];
    for (wait, expected) in waits.iter().zip(expected) {
        assert!((expected..=expected * 6 / 5).contains(wait), "{waits:?}");
    }
    assert_eq!(reason(&look(&clock, "1h"), now), Some((Urgency::Rotation, Reason::Retry)));
}

#[test]
fn who_was_turned_away_looks_again_when_somebody_knows_more_and_has_not_failed() {
    // How long nobody asks, and when the volume looks again.
    for (interval, pause, earliest, latest) in [
        // One asks at this moment: it will be known soon.
        ("2m", 1, 10, 12),
        ("2m", 10, 10, 12),
        ("2m", 60, 60, 72),
        // The longest of the pauses is longer than the interval.
        ("30s", 60, 60, 72),
        ("5s", 1, 4, 6),
        ("1h", 72, 72, 87),
    ] {
        for failures in [0, 3, 30] {
            let mut clock = checked(0);
            for _ in 0..failures {
                clock.failed(at(100), RetryClass::Transient);
            }
            let before = pause_of(&clock, interval, 100);
            clock.turned_away(at(500), Duration::from_secs(pause));
            let wait = pause_of(&clock, interval, 500);
            assert!((earliest..=latest).contains(&wait), "{interval} {pause}: {wait}");
            assert_eq!(clock.failures(), failures);
            let reason = reason(&look(&clock, interval), 1_000);
            assert_eq!(reason, Some((Urgency::Rotation, Reason::Retry)));
            // The back-off of its own failures goes on where it was.
            clock.failed(at(100), RetryClass::Transient);
            if failures == 0 {
                assert!(pause_of(&clock, interval, 100) <= 12);
            } else {
                assert!(pause_of(&clock, interval, 100) >= before);
            }
        }
    }
}

/// How many whole seconds after this one the volume is due.
fn pause_of(clock: &VolumeClock, interval: &str, now: i64) -> i64 {
    due(&look(clock, interval), now).as_second() - now
}

#[test]
fn those_who_were_turned_away_together_do_not_come_back_together() {
    let mut clock = checked(0);
    clock.turned_away(at(100), Duration::from_mins(1));
    let mut seconds = [0_u32; 12];
    for number in 0..1_200 {
        let id = format!("csi-{number}");
        let due = due(&Look { volume_id: &id, ..look(&clock, "2m") }, 100);
        seconds[usize::try_from(due.as_second() - 160).unwrap()] += 1;
    }
    assert!(seconds.iter().all(|count| (50..=150).contains(count)), "{seconds:?}");
}

#[test]
fn a_wish_for_a_refresh_does_not_shorten_the_pause_of_who_was_turned_away() {
    let wish = RefreshWish::of("mended").unwrap();
    let mut clock = checked(-3_600);
    clock.turned_away(at(99), Duration::from_mins(1));
    assert!(due(&asked(&clock, &wish), 100) >= at(159));
    assert_eq!(reason(&asked(&clock, &wish), 180), Some((Urgency::Refresh, Reason::Retry)));
}

#[test]
fn a_refresh_ends_the_back_off_but_not_the_pause_that_the_service_asked_for() {
    let wish = RefreshWish::of("mended").unwrap();
    let asked = Duration::from_mins(5);
    for (retry, expected) in
        [(RetryClass::Denied, 105), (RetryClass::Throttled { after: Some(asked) }, 360)]
    {
        let mut clock = checked(-3_600);
        clock.failed(at(0), retry);
        let look = Look { refresh: Some((&wish, at(100))), ..look(&clock, "1h") };
        let due = due(&look, 100).as_second();
        assert!((expected - 60..=expected).contains(&due), "{retry:?}: {due}");
        assert!(due >= 100);
        assert_eq!(reason(&look, 361).map(|(urgency, _)| urgency), Some(Urgency::Refresh));
    }
}

#[test]
fn a_wish_that_could_not_be_fulfilled_stays_and_backs_off() {
    let wish = RefreshWish::of("1").unwrap();
    let mut clock = checked(0);
    clock.failed(at(106), RetryClass::Transient);
    let look = Look { refresh: Some((&wish, at(100))), ..look(&clock, "1h") };
    assert!(due(&look, 106) >= at(116));
    assert_eq!(reason(&look, 120), Some((Urgency::Refresh, Reason::Retry)));
}

#[test]
fn a_volume_whose_token_expired_waits_for_the_kubelet() {
    let clock = checked(0);
    let awaited = Look { proofs: ProofState::Awaited, ..look(&clock, "2m") };
    assert!(matches!(decide(at(60), &awaited), Decision::NotBefore(_)));
    let Decision::AwaitsProofs { since } = decide(at(600), &awaited) else { panic!() };
    assert!(since <= at(132));
    assert!(reason(&look(&clock, "2m"), 600).is_some());
}

#[test]
fn a_clock_that_was_set_back_makes_a_volume_due_once() {
    let mut clock = checked(10_000);
    assert_eq!(reason(&look(&clock, "1h"), 5_000), Some((Urgency::Rotation, Reason::ClockSetBack)));
    clock.succeeded(at(5_000), &ClassWishes::default(), []);
    assert_eq!(reason(&look(&clock, "1h"), 5_001), None);

    // A failure does not make it due all the time either.
    let mut clock = checked(10_000);
    clock.failed(at(5_000), RetryClass::Transient);
    assert_eq!(reason(&look(&clock, "1h"), 5_001), None);
    assert!(reason(&look(&clock, "1h"), 5_020).is_some());
}

/// How a look went.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Good,
    Failed(RetryClass),
    TurnedAway(Duration),
}

/// Asks at every given second, in the order of time, and looks whenever the volume is due.
/// Returns when it was looked at.
fn looks(
    interval: PollInterval,
    stamps: &[Stamps],
    seconds: impl IntoIterator<Item = i64>,
    outcome: impl Fn(usize) -> Outcome,
) -> Vec<i64> {
    let mut clock = checked(0);
    let mut looks = vec![0];
    for second in seconds {
        let look = Look {
            volume_id: "csi-9",
            clock: &clock,
            interval,
            stamps,
            refresh: None,
            proofs: ProofState::Good,
        };
        if matches!(decide(at(second), &look), Decision::Due { .. }) {
            looks.push(second);
            match outcome(looks.len()) {
                Outcome::Good => clock.succeeded(at(second), &ClassWishes::default(), []),
                Outcome::Failed(retry) => clock.failed(at(second), retry),
                Outcome::TurnedAway(pause) => clock.turned_away(at(second), pause),
            }
        }
    }
    looks
}

fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = prop_oneof![
        Just(Outcome::Good),
        Just(Outcome::Failed(RetryClass::Transient)),
        Just(Outcome::Failed(RetryClass::Denied)),
        (0_u64..2_000).prop_map(|seconds| Outcome::Failed(RetryClass::Throttled {
            after: Some(Duration::from_secs(seconds)),
        })),
        (0_u64..200).prop_map(|seconds| Outcome::TurnedAway(Duration::from_secs(seconds))),
    ];
    proptest::collection::vec(outcome, 1..20)
}

fn stamps() -> impl Strategy<Value = Vec<Stamps>> {
    let stamp = (proptest::option::of(0_i64..40_000), proptest::option::of(0_i64..40_000))
        .prop_map(|(renewal, end)| Stamps {
            renew_after: renewal.map(at),
            not_after: end.map(at),
            ..Stamps::default()
        });
    proptest::collection::vec(stamp, 0..3)
}

proptest! {
    #[test]
    fn no_two_looks_are_closer_than_the_least_gap(
        interval in 1_u64..=604_800,
        checked_at in 0_i64..1_000_000,
        later in 0_i64..1_000_000,
        outcome in 0_u8..5,
        wished in proptest::bool::ANY,
        end in proptest::option::of(0_i64..3_000_000),
    ) {
        let interval = format!("{interval}s");
        let mut clock = checked(checked_at);
        let looked = checked_at + later;
        match outcome {
            0 => clock.began(at(looked)),
            1 => clock.failed(at(looked), RetryClass::Transient),
            2 => clock.failed(at(looked), RetryClass::Denied),
            3 => clock.turned_away(at(looked), Duration::from_secs(1)),
            _ => clock.succeeded(at(looked), &ClassWishes::default(), []),
        }
        let wish = RefreshWish::of("now").unwrap();
        let stamps = [Stamps { not_after: end.map(at), ..Stamps::default() }];
        let refresh = wished.then_some((&wish, at(0)));
        let look = Look { refresh, stamps: &stamps, ..look(&clock, &interval) };
        let earliest = after(at(looked), least_gap(look.interval));
        prop_assert!(due(&look, looked) >= earliest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_looks_are_never_closer_than_the_least_gap(
        interval in 1_u64..7_200, stamps in stamps(), outcomes in outcomes(), step in 1_i64..90,
    ) {
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let looks = looks(interval, &stamps, (0..2_000).map(|n| n * step), |n| {
            outcomes[n % outcomes.len()]
        });
        let gap = least_gap(interval).as_secs();
        for pair in looks.windows(2) {
            prop_assert!(u64::try_from(pair[1] - pair[0]).unwrap() >= gap, "{:?}", looks);
        }
    }

    #[test]
    fn in_health_no_content_is_staler_than_the_interval_and_its_jitter(
        interval in 30_u64..900, stamps in stamps(),
    ) {
        let length = interval;
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let looks = looks(interval, &stamps, 0..4_000, |_| Outcome::Good);
        for pair in looks.windows(2) {
            prop_assert!(u64::try_from(pair[1] - pair[0]).unwrap() <= length * 11 / 10 + 1);
        }
        prop_assert!(looks.len() > 1);
    }

    #[test]
    fn a_storm_of_republishes_costs_no_look_beyond_one_per_interval(
        gaps in proptest::collection::vec(1_i64..90, 100..400),
    ) {
        let seconds = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) });
        let end: i64 = gaps.iter().sum();
        let looks = looks("1h".parse().unwrap(), &[], seconds, |_| Outcome::Good);
        prop_assert!(i64::try_from(looks.len()).unwrap() - 1 <= end / 3_240);
    }

    #[test]
    fn the_answer_not_before_holds(
        interval in 1_u64..7_200, stamps in stamps(), now in 0_i64..20_000,
    ) {
        let clock = checked(0);
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let look = Look { interval, stamps: &stamps, ..look(&clock, "1h") };
        if let Decision::NotBefore(due) = decide(at(now), &look) {
            prop_assert!(due > at(now));
            let early = due.checked_sub(Duration::from_nanos(1)).unwrap();
            prop_assert_eq!(decide(early, &look), Decision::NotBefore(due));
            let is_due = matches!(decide(due, &look), Decision::Due { since, .. } if since == due);
            prop_assert!(is_due);
        }
    }

    #[test]
    fn a_record_in_any_state_decides_without_a_panic(
        checked in -377_705_023_201_i64..253_402_207_200, now in -377_705_023_201_i64..253_402_207_200,
        resumed: bool,
    ) {
        let record = CheckRecord {
            checked: at(checked),
            refreshed: None,
            interval: None,
            accepted_older: [].into(),
        };
        let clock = VolumeClock::resumed(Some(record), if resumed { at(now) } else { at(0) });
        let _decision = decide(at(now), &look(&clock, "168h"));
    }
}
