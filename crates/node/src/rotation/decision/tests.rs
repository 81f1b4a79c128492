use lanyard_clock::RetryClass;
use lanyard_provider::RotationPolicy;
use proptest::prelude::*;

use super::*;
use crate::rotation::poll_history::PollRecord;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The inputs for a volume without timestamps or refresh request.
fn poll_inputs<'a>(clock: &'a PollHistory, interval: &str) -> PollInputs<'a> {
    PollInputs {
        volume_id: "csi-1",
        history: clock,
        interval: interval.parse().unwrap(),
        timestamps: &[],
        refresh: None,
        pod_tokens: PodTokenState::Usable,
    }
}

fn history_polled_at(second: i64) -> PollHistory {
    let mut clock = PollHistory::default();
    clock.record_success(at(second), &RotationPolicy::default(), []);
    clock
}

/// The inputs for a volume whose class requests a refresh since second 100.
fn inputs_with_refresh<'a>(clock: &'a PollHistory, request: &'a RefreshRequest) -> PollInputs<'a> {
    PollInputs { refresh: Some((request, at(100))), ..poll_inputs(clock, "1h") }
}

/// When the volume is due, whatever `now` is.
fn due_time(inputs: &PollInputs<'_>, now: i64) -> Timestamp {
    match decide_poll(at(now), inputs) {
        PollDecision::NotBefore(due) => due,
        PollDecision::Due { since, .. } | PollDecision::AwaitsPublish { since } => since,
    }
}

fn due_reason(inputs: &PollInputs<'_>, now: i64) -> Option<(Urgency, PollReason)> {
    match decide_poll(at(now), inputs) {
        PollDecision::Due { urgency, reason, .. } => Some((urgency, reason)),
        PollDecision::NotBefore(_) | PollDecision::AwaitsPublish { .. } => None,
    }
}

#[test]
fn a_healthy_volume_is_due_when_the_interval_has_passed() {
    let clock = history_polled_at(0);
    let inputs = poll_inputs(&clock, "1h");
    assert_eq!(due_reason(&inputs, 3_239), None);
    assert_eq!(due_reason(&inputs, 3_961), Some((Urgency::Rotation, PollReason::Interval)));
}

#[test]
fn poll_without_outcome_is_not_repeated_immediately() {
    for mut clock in [history_polled_at(0), PollHistory::default()] {
        clock.record_attempt(at(10_000));
        assert_eq!(due_time(&poll_inputs(&clock, "1h"), 10_001), at(10_010));
    }
}

#[test]
fn a_volume_whose_marker_is_missing_is_due_soon_after_the_restart() {
    let clock = PollHistory::restored(None, at(100));
    let inputs = poll_inputs(&clock, "1h");
    assert!(due_time(&inputs, 100) <= at(130));
    assert_eq!(due_reason(&inputs, 130), Some((Urgency::Rotation, PollReason::NeverPolled)));
}

#[test]
fn restart_keeps_the_schedule_of_a_recently_polled_volume() {
    let before = history_polled_at(0);
    let after = PollHistory::restored(before.record().cloned(), at(60));
    assert_eq!(due_time(&poll_inputs(&before, "1h"), 60), due_time(&poll_inputs(&after, "1h"), 60));
}

#[test]
fn volumes_that_are_overdue_after_a_restart_are_spread() {
    let record = history_polled_at(0).record().cloned();
    let clock = PollHistory::restored(record, at(100_000));
    let mut dues: Vec<_> = (0..1_000)
        .map(|number| {
            let id = format!("csi-{number}");
            due_time(&PollInputs { volume_id: &id, ..poll_inputs(&clock, "1h") }, 100_000)
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
    let clock = history_polled_at(10_000);
    let stamps = [ObjectTimestamps { not_after: Some(at(9_000)), ..ObjectTimestamps::default() }];
    let inputs = PollInputs { timestamps: &stamps, ..poll_inputs(&clock, "1h") };
    assert_eq!(due_reason(&inputs, 10_000 + 991), Some((Urgency::Rotation, PollReason::Expired)));
}

#[test]
fn a_new_value_of_the_annotation_makes_a_volume_due_within_seconds_and_once() {
    let request = RefreshRequest::of("1").unwrap();
    let mut clock = history_polled_at(0);
    assert_eq!(
        due_reason(&inputs_with_refresh(&clock, &request), 105),
        Some((Urgency::ForceRefresh, PollReason::Refresh))
    );

    let policy = RotationPolicy { refresh: Some(request.clone()), ..RotationPolicy::default() };
    clock.record_success(at(105), &policy, []);
    assert_eq!(due_reason(&inputs_with_refresh(&clock, &request), 106), None);
    assert_eq!(due_reason(&inputs_with_refresh(&clock, &request), 3_000), None);
}

#[test]
fn refresh_annotation_present_at_mount_is_already_served() {
    let request = RefreshRequest::of("1").unwrap();
    let policy = RotationPolicy { refresh: Some(request.clone()), ..RotationPolicy::default() };
    let mut clock = PollHistory::default();
    clock.record_success(at(0), &policy, []);
    let inputs = PollInputs { refresh: Some((&request, at(1))), ..poll_inputs(&clock, "1h") };
    assert_eq!(due_reason(&inputs, 60), None);
}

#[test]
fn refreshes_are_spread_over_a_few_seconds() {
    let request = RefreshRequest::of("1").unwrap();
    let clock = history_polled_at(0);
    let mut seconds = [0_u32; 5];
    for number in 0..1_000 {
        let id = format!("csi-{number}");
        let refresh = Some((&request, at(1_000)));
        let due =
            due_time(&PollInputs { volume_id: &id, refresh, ..poll_inputs(&clock, "1h") }, 1_000);
        seconds[usize::try_from(due.as_second() - 1_000).unwrap()] += 1;
    }
    assert!(seconds.iter().all(|count| (130..=270).contains(count)), "{seconds:?}");
}

#[test]
fn changing_the_annotation_constantly_polls_at_most_every_ten_seconds() {
    let mut clock = history_polled_at(0);
    let mut polls = 0;
    for second in 1..=1_000 {
        let request = RefreshRequest::of(&second.to_string()).unwrap();
        // Seen long enough ago that the spread has passed.
        let inputs =
            PollInputs { refresh: Some((&request, at(second - 6))), ..poll_inputs(&clock, "1h") };
        if due_reason(&inputs, second).is_some() {
            polls += 1;
            let policy =
                RotationPolicy { refresh: Some(request.clone()), ..RotationPolicy::default() };
            clock.record_success(at(second), &policy, []);
        }
    }
    assert_eq!(polls, 100);
}

#[test]
fn a_failed_volume_waits_longer_each_time_and_not_longer_than_the_interval() {
    let mut clock = history_polled_at(0);
    let mut now = 3_600;
    let mut waits = Vec::new();
    for _ in 0..12 {
        clock.record_failure(at(now), RetryClass::Transient);
        let next = due_time(&poll_inputs(&clock, "1h"), now).as_second();
        waits.push(next - now);
        now = next + 1;
    }
    let expected = [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600];
    for (wait, expected) in waits.iter().zip(expected) {
        assert!((expected..=expected * 6 / 5).contains(wait), "{waits:?}");
    }
    assert_eq!(
        due_reason(&poll_inputs(&clock, "1h"), now),
        Some((Urgency::Rotation, PollReason::Retry))
    );
}

#[test]
fn suppressed_poll_is_repeated_after_its_pause_and_is_no_failure() {
    // How long polls are suppressed, and when the volume polls again.
    for (interval, pause, earliest, latest) in [
        // A probe is in progress: its outcome will be known soon.
        ("2m", 1, 10, 12),
        ("2m", 10, 10, 12),
        ("2m", 60, 60, 72),
        // The longest of the pauses exceeds the interval.
        ("30s", 60, 60, 72),
        ("5s", 1, 4, 6),
        ("1h", 72, 72, 87),
    ] {
        for failures in [0, 3, 30] {
            let mut clock = history_polled_at(0);
            for _ in 0..failures {
                clock.record_failure(at(100), RetryClass::Transient);
            }
            let before = seconds_until_due(&clock, interval, 100);
            clock.record_suppressed(at(500), Duration::from_secs(pause));
            let wait = seconds_until_due(&clock, interval, 500);
            assert!((earliest..=latest).contains(&wait), "{interval} {pause}: {wait}");
            assert_eq!(clock.failure_count(), failures);
            let reason = due_reason(&poll_inputs(&clock, interval), 1_000);
            assert_eq!(reason, Some((Urgency::Rotation, PollReason::Retry)));
            // The back-off of the volume's own failures continues.
            clock.record_failure(at(100), RetryClass::Transient);
            if failures == 0 {
                assert!(seconds_until_due(&clock, interval, 100) <= 12);
            } else {
                assert!(seconds_until_due(&clock, interval, 100) >= before);
            }
        }
    }
}

/// The number of whole seconds after this one at which the volume is due.
fn seconds_until_due(clock: &PollHistory, interval: &str, now: i64) -> i64 {
    due_time(&poll_inputs(clock, interval), now).as_second() - now
}

#[test]
fn volumes_suppressed_together_are_spread_over_time() {
    let mut clock = history_polled_at(0);
    clock.record_suppressed(at(100), Duration::from_mins(1));
    let mut seconds = [0_u32; 12];
    for number in 0..1_200 {
        let id = format!("csi-{number}");
        let due = due_time(&PollInputs { volume_id: &id, ..poll_inputs(&clock, "2m") }, 100);
        seconds[usize::try_from(due.as_second() - 160).unwrap()] += 1;
    }
    assert!(seconds.iter().all(|count| (50..=150).contains(count)), "{seconds:?}");
}

#[test]
fn refresh_does_not_shorten_the_pause_of_a_suppressed_poll() {
    let request = RefreshRequest::of("fixed").unwrap();
    let mut clock = history_polled_at(-3_600);
    clock.record_suppressed(at(99), Duration::from_mins(1));
    assert!(due_time(&inputs_with_refresh(&clock, &request), 100) >= at(159));
    assert_eq!(
        due_reason(&inputs_with_refresh(&clock, &request), 180),
        Some((Urgency::ForceRefresh, PollReason::Retry))
    );
}

#[test]
fn refresh_ends_the_back_off_but_not_a_retry_after() {
    let request = RefreshRequest::of("fixed").unwrap();
    let asked = Duration::from_mins(5);
    for (retry, expected) in
        [(RetryClass::Denied, 105), (RetryClass::Throttled { after: Some(asked) }, 360)]
    {
        let mut clock = history_polled_at(-3_600);
        clock.record_failure(at(0), retry);
        let inputs = PollInputs { refresh: Some((&request, at(100))), ..poll_inputs(&clock, "1h") };
        let due = due_time(&inputs, 100).as_second();
        assert!((expected - 60..=expected).contains(&due), "{retry:?}: {due}");
        assert!(due >= 100);
        assert_eq!(
            due_reason(&inputs, 361).map(|(urgency, _)| urgency),
            Some(Urgency::ForceRefresh)
        );
    }
}

#[test]
fn failed_refresh_stays_pending_and_backs_off() {
    let request = RefreshRequest::of("1").unwrap();
    let mut clock = history_polled_at(0);
    clock.record_failure(at(106), RetryClass::Transient);
    let inputs = PollInputs { refresh: Some((&request, at(100))), ..poll_inputs(&clock, "1h") };
    assert!(due_time(&inputs, 106) >= at(116));
    assert_eq!(due_reason(&inputs, 120), Some((Urgency::ForceRefresh, PollReason::Retry)));
}

#[test]
fn a_volume_whose_token_expired_waits_for_the_kubelet() {
    let clock = history_polled_at(0);
    let awaited = PollInputs { pod_tokens: PodTokenState::Expired, ..poll_inputs(&clock, "2m") };
    assert!(matches!(decide_poll(at(60), &awaited), PollDecision::NotBefore(_)));
    let PollDecision::AwaitsPublish { since } = decide_poll(at(600), &awaited) else { panic!() };
    assert!(since <= at(132));
    assert!(due_reason(&poll_inputs(&clock, "2m"), 600).is_some());
}

#[test]
fn a_clock_that_was_set_back_makes_a_volume_due_once() {
    let mut clock = history_polled_at(10_000);
    assert_eq!(
        due_reason(&poll_inputs(&clock, "1h"), 5_000),
        Some((Urgency::Rotation, PollReason::ClockSetBack))
    );
    clock.record_success(at(5_000), &RotationPolicy::default(), []);
    assert_eq!(due_reason(&poll_inputs(&clock, "1h"), 5_001), None);

    // A failure does not make the volume permanently due either.
    let mut clock = history_polled_at(10_000);
    clock.record_failure(at(5_000), RetryClass::Transient);
    assert_eq!(due_reason(&poll_inputs(&clock, "1h"), 5_001), None);
    assert!(due_reason(&poll_inputs(&clock, "1h"), 5_020).is_some());
}

#[derive(Debug, Clone, Copy)]
enum ScriptedPollOutcome {
    Succeeded,
    Failed(RetryClass),
    Suppressed(Duration),
}

/// Decides at every given second, in order, and polls whenever the volume is due. Returns the times
/// of the polls.
fn simulate_polls(
    interval: PollInterval,
    stamps: &[ObjectTimestamps],
    seconds: impl IntoIterator<Item = i64>,
    outcome: impl Fn(usize) -> ScriptedPollOutcome,
) -> Vec<i64> {
    let mut clock = history_polled_at(0);
    let mut polls = vec![0];
    for second in seconds {
        let inputs = PollInputs {
            volume_id: "csi-9",
            history: &clock,
            interval,
            timestamps: stamps,
            refresh: None,
            pod_tokens: PodTokenState::Usable,
        };
        if matches!(decide_poll(at(second), &inputs), PollDecision::Due { .. }) {
            polls.push(second);
            match outcome(polls.len()) {
                ScriptedPollOutcome::Succeeded => {
                    clock.record_success(at(second), &RotationPolicy::default(), []);
                }
                ScriptedPollOutcome::Failed(retry) => clock.record_failure(at(second), retry),
                ScriptedPollOutcome::Suppressed(pause) => {
                    clock.record_suppressed(at(second), pause);
                }
            }
        }
    }
    polls
}

fn any_poll_outcomes() -> impl Strategy<Value = Vec<ScriptedPollOutcome>> {
    let outcome = prop_oneof![
        Just(ScriptedPollOutcome::Succeeded),
        Just(ScriptedPollOutcome::Failed(RetryClass::Transient)),
        Just(ScriptedPollOutcome::Failed(RetryClass::Denied)),
        (0_u64..2_000).prop_map(|seconds| ScriptedPollOutcome::Failed(RetryClass::Throttled {
            after: Some(Duration::from_secs(seconds)),
        })),
        (0_u64..200)
            .prop_map(|seconds| ScriptedPollOutcome::Suppressed(Duration::from_secs(seconds))),
    ];
    proptest::collection::vec(outcome, 1..20)
}

fn any_timestamps() -> impl Strategy<Value = Vec<ObjectTimestamps>> {
    let stamp = (proptest::option::of(0_i64..40_000), proptest::option::of(0_i64..40_000))
        .prop_map(|(renewal, end)| ObjectTimestamps {
            renew_after: renewal.map(at),
            not_after: end.map(at),
            ..ObjectTimestamps::default()
        });
    proptest::collection::vec(stamp, 0..3)
}

proptest! {
    #[test]
    fn next_poll_is_never_before_the_min_gap(
        interval in 1_u64..=604_800,
        checked_at in 0_i64..1_000_000,
        later in 0_i64..1_000_000,
        outcome in 0_u8..5,
        has_request in proptest::bool::ANY,
        end in proptest::option::of(0_i64..3_000_000),
    ) {
        let interval = format!("{interval}s");
        let mut clock = history_polled_at(checked_at);
        let last_attempt = checked_at + later;
        match outcome {
            0 => clock.record_attempt(at(last_attempt)),
            1 => clock.record_failure(at(last_attempt), RetryClass::Transient),
            2 => clock.record_failure(at(last_attempt), RetryClass::Denied),
            3 => clock.record_suppressed(at(last_attempt), Duration::from_secs(1)),
            _ => clock.record_success(at(last_attempt), &RotationPolicy::default(), []),
        }
        let request = RefreshRequest::of("now").unwrap();
        let stamps = [ObjectTimestamps { not_after: end.map(at), ..ObjectTimestamps::default() }];
        let refresh = has_request.then_some((&request, at(0)));
        let inputs = PollInputs { refresh, timestamps: &stamps, ..poll_inputs(&clock, &interval) };
        let earliest = saturating_after(at(last_attempt), min_gap(inputs.interval));
        prop_assert!(due_time(&inputs, last_attempt) >= earliest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn simulated_polls_keep_the_min_gap(
        interval in 1_u64..7_200, stamps in any_timestamps(), outcomes in any_poll_outcomes(), step in 1_i64..90,
    ) {
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let polls = simulate_polls(interval, &stamps, (0..2_000).map(|n| n * step), |n| {
            outcomes[n % outcomes.len()]
        });
        let gap = min_gap(interval).as_secs();
        for pair in polls.windows(2) {
            prop_assert!(u64::try_from(pair[1] - pair[0]).unwrap() >= gap, "{:?}", polls);
        }
    }

    #[test]
    fn healthy_volumes_are_polled_within_interval_and_jitter(
        interval in 30_u64..900, stamps in any_timestamps(),
    ) {
        let length = interval;
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let polls = simulate_polls(interval, &stamps, 0..4_000, |_| ScriptedPollOutcome::Succeeded);
        for pair in polls.windows(2) {
            prop_assert!(u64::try_from(pair[1] - pair[0]).unwrap() <= length * 11 / 10 + 1);
        }
        prop_assert!(polls.len() > 1);
    }

    #[test]
    fn republish_storm_polls_at_most_once_per_interval(
        gaps in proptest::collection::vec(1_i64..90, 100..400),
    ) {
        let seconds = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) });
        let end: i64 = gaps.iter().sum();
        let polls = simulate_polls("1h".parse().unwrap(), &[], seconds, |_| ScriptedPollOutcome::Succeeded);
        prop_assert!(i64::try_from(polls.len()).unwrap() - 1 <= end / 3_240);
    }

    #[test]
    fn volume_is_due_exactly_at_its_not_before_time(
        interval in 1_u64..7_200, stamps in any_timestamps(), now in 0_i64..20_000,
    ) {
        let clock = history_polled_at(0);
        let interval: PollInterval = format!("{interval}s").parse().unwrap();
        let inputs = PollInputs { interval, timestamps: &stamps, ..poll_inputs(&clock, "1h") };
        if let PollDecision::NotBefore(due) = decide_poll(at(now), &inputs) {
            prop_assert!(due > at(now));
            let early = due.checked_sub(Duration::from_nanos(1)).unwrap();
            prop_assert_eq!(decide_poll(early, &inputs), PollDecision::NotBefore(due));
            let is_due = matches!(decide_poll(due, &inputs), PollDecision::Due { since, .. } if since == due);
            prop_assert!(is_due);
        }
    }

    #[test]
    fn a_record_in_any_state_decides_without_a_panic(
        checked in -377_705_023_201_i64..253_402_207_200, now in -377_705_023_201_i64..253_402_207_200,
        resumed: bool,
    ) {
        let record = PollRecord {
            checked: at(checked),
            refreshed: None,
            interval: None,
            accepted_older: [].into(),
        };
        let clock = PollHistory::restored(Some(record), if resumed { at(now) } else { at(0) });
        let _decision = decide_poll(at(now), &poll_inputs(&clock, "168h"));
    }
}
