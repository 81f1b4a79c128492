use proptest::prelude::*;

use super::*;

const THRESHOLD: FailureThreshold =
    FailureThreshold { failures: 3, duration: Duration::from_mins(5) };

fn clock_at(seconds: u64) -> ClockReading {
    let monotonic = Duration::from_secs(seconds);
    ClockReading { wall: Timestamp::UNIX_EPOCH + monotonic, monotonic }
}

fn transient_error(code: &str) -> Result<(), ProofError> {
    Err(ProofError::new(ProofErrorKind::Transient, code, format!("message of {code}"), "wait"))
}

fn throttled_error() -> Result<(), ProofError> {
    Err(ProofError::new(ProofErrorKind::Throttled, "TooManyRequests", "too many", "wait"))
}

fn definitive_error(code: &str) -> Result<(), ProofError> {
    Err(ProofError::new(ProofErrorKind::Definitive, code, format!("message of {code}"), "fix it"))
}

/// The status after outcomes at these seconds: `good`, `unknown` or the error code.
fn final_status(steps: &[(u64, Result<(), ProofError>)]) -> String {
    status_text(tracker_after(steps).status())
}

fn tracker_after(steps: &[(u64, Result<(), ProofError>)]) -> CheckTracker {
    let mut track = CheckTracker::default();
    for (seconds, outcome) in steps {
        track.record(outcome.clone(), clock_at(*seconds), THRESHOLD);
    }
    track
}

fn status_text(status: &CheckStatus) -> String {
    match status {
        CheckStatus::Unknown => "unknown".to_owned(),
        CheckStatus::Good { .. } => "good".to_owned(),
        CheckStatus::Bad { error, .. } => error.code.clone(),
    }
}

#[test]
fn success_and_definitive_error_are_reported_immediately() {
    assert_eq!(final_status(&[(0, Ok(()))]), "good");
    assert_eq!(final_status(&[(0, definitive_error("AADSTS700016"))]), "AADSTS700016");
    assert_eq!(
        final_status(&[(0, Ok(())), (60, definitive_error("AADSTS700016"))]),
        "AADSTS700016"
    );
    assert_eq!(final_status(&[(0, definitive_error("AADSTS700016")), (60, Ok(()))]), "good");
}

#[test]
fn transient_errors_are_reported_after_threshold() {
    let busy = || transient_error("ServiceUnreachable");
    // Enough failures, but within too short a time.
    assert_eq!(final_status(&[(0, Ok(())), (60, busy()), (61, busy()), (62, busy())]), "good");
    // A long enough time, but too few failures.
    assert_eq!(final_status(&[(0, Ok(())), (60, busy()), (3_600, busy())]), "good");
    let both = [(0, Ok(())), (60, busy()), (200, busy()), (360, busy())];
    assert_eq!(final_status(&both), "ServiceUnreachable");
    // The failure started with the first error.
    let CheckStatus::Bad { since, .. } = tracker_after(&both).status().clone() else { panic!() };
    assert_eq!(since, clock_at(60).wall);
    // A success resets the count.
    let broken = [(0, busy()), (200, Ok(())), (400, busy()), (401, busy())];
    assert_eq!(final_status(&broken), "good");
}

#[test]
fn unknown_status_stays_unknown_during_transient_errors() {
    assert_eq!(
        final_status(&[(0, transient_error("TimedOut")), (1, transient_error("TimedOut"))]),
        "unknown"
    );
}

#[test]
fn transient_errors_do_not_replace_definitive_error() {
    let mut steps = vec![(0, definitive_error("AADSTS700016"))];
    steps.extend((1..20).map(|minute| (minute * 60, transient_error("TimedOut"))));
    assert_eq!(final_status(&steps), "AADSTS700016");
    steps.push((2_000, definitive_error("AADSTS700027")));
    assert_eq!(final_status(&steps), "AADSTS700027");
}

#[test]
fn repeated_error_keeps_first_time_and_message() {
    let error_with = |words: &str| {
        Err(ProofError::new(ProofErrorKind::Definitive, "AADSTS700016", words, "fix it"))
    };
    let track = tracker_after(&[(0, error_with("request 1")), (60, error_with("request 2"))]);
    let CheckStatus::Bad { error, since } = track.status() else { panic!() };
    assert_eq!((error.message.as_str(), *since), ("request 1", clock_at(0).wall));
}

#[test]
fn same_reason_with_other_cause_is_reported() {
    let error_with = |cause: &str| match definitive_error(cause) {
        Err(error) => Err(error.with_reason("AzureError")),
        Ok(()) => Ok(()),
    };
    let track = tracker_after(&[
        (0, error_with("AuthorizationFailed")),
        (60, error_with("ResourceNotFound")),
    ]);
    let CheckStatus::Bad { error, .. } = track.status() else { panic!() };
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("AzureError", "message of ResourceNotFound")
    );
}

#[test]
fn throttling_keeps_status_and_is_reported_when_it_lasts() {
    for (known, expected) in
        [(Some(Ok(())), "good"), (Some(definitive_error("X")), "X"), (None, "unknown")]
    {
        let mut steps: Vec<_> = known.into_iter().map(|known| (0, known)).collect();
        steps.extend([(60, throttled_error()), (61, throttled_error()), (62, throttled_error())]);
        // Below the threshold, throttling is reported only if the status is unknown.
        assert_eq!(
            tracker_after(&steps).throttled().is_some(),
            expected == "unknown",
            "{expected}"
        );
        steps.push((360, throttled_error()));
        let lasting = tracker_after(&steps);
        let (error, since) = lasting.throttled().unwrap();
        assert_eq!((error.code.as_str(), since), ("TooManyRequests", clock_at(60).wall));
        assert!(!lasting.last_try_succeeded(), "a throttled try is not a success");
        steps.extend((7..200).map(|minute| (minute * 60, throttled_error())));
        assert_eq!(final_status(&steps), expected);
        for end in [Ok(()), definitive_error("Y")] {
            let mut ended = steps.clone();
            ended.push((100_000, end));
            assert_eq!(tracker_after(&ended).throttled(), None);
        }
    }
}

fn throttled_error_for(seconds: u64) -> Result<(), ProofError> {
    let pause = Some(Duration::from_secs(seconds));
    let error = lanyard_azure::AzureCallError::Throttled { target: "GET x".to_owned(), pause };
    Err(ProofError::of_call(&error))
}

#[test]
fn long_retry_after_is_reported_immediately() {
    for (seconds, is_reported) in [(7, false), (299, false), (300, true), (3_600, true)] {
        let track = tracker_after(&[(0, Ok(())), (60, throttled_error_for(seconds))]);
        let since = track.throttled().map(|(_, since)| since);
        assert_eq!(since, is_reported.then(|| clock_at(60).wall), "{seconds}");
        assert!(track.is_good(), "{seconds}");
    }
    // The period starts with the first throttled request, although a later one is reported.
    let track = tracker_after(&[
        (0, Ok(())),
        (60, throttled_error_for(7)),
        (120, throttled_error_for(3_600)),
    ]);
    assert_eq!(track.throttled().map(|(_, since)| since), Some(clock_at(60).wall));
}

#[test]
fn throttling_clears_status_of_replaced_credential() {
    for known in [Ok(()), definitive_error("AADSTS700016")] {
        let mut track = tracker_after(&[(0, known.clone())]);
        let before = track.status().clone();
        track.mark_replaced();
        track.record(transient_error("TimedOut"), clock_at(60), THRESHOLD);
        assert_eq!(*track.status(), before, "a transient error counts only from the threshold on");
        track.record(throttled_error(), clock_at(120), THRESHOLD);
        assert_eq!(*track.status(), CheckStatus::Unknown);
        assert_eq!(
            track.throttled().map(|(_, since)| since),
            Some(clock_at(120).wall),
            "the reason is reported"
        );
        for (end, expected) in [(Ok(()), "good"), (definitive_error("Y"), "Y")] {
            let mut track = track.clone();
            track.record(end, clock_at(180), THRESHOLD);
            assert_eq!(status_text(track.status()), expected);
            // The status now describes the new object.
            track.record(throttled_error(), clock_at(240), THRESHOLD);
            assert_eq!(status_text(track.status()), expected);
        }
    }
    // If the service throttles already, the new object is not tried.
    let mut track = tracker_after(&[(0, Ok(())), (60, throttled_error())]);
    track.mark_replaced();
    assert_eq!(*track.status(), CheckStatus::Unknown);
    assert_eq!(track.throttled().map(|(_, since)| since), Some(clock_at(60).wall));
}

#[test]
fn status_of_replaced_credential_lasts_until_threshold() {
    for (known, expected) in [
        (Ok(()), "ServiceUnreachable"),
        (definitive_error("AADSTS700027"), "ServiceUnreachable"),
        (transient_error("TimedOut"), "TimedOut"),
    ] {
        let mut track = tracker_after(&[(0, known.clone()), (200, known.clone()), (400, known)]);
        let before = track.status().clone();
        assert!(!track.is_about_replaced());
        track.mark_replaced();
        let is_same_failure = expected == "TimedOut";
        if !is_same_failure {
            for seconds in [460, 520] {
                track.record(transient_error("ServiceUnreachable"), clock_at(seconds), THRESHOLD);
                assert_eq!((track.status(), track.is_about_replaced()), (&before, true));
            }
        }
        track.record(transient_error("ServiceUnreachable"), clock_at(800), THRESHOLD);
        assert_eq!(status_text(track.status()), expected);
        assert!(!track.is_about_replaced(), "the status now describes the new object");
        assert_eq!(is_same_failure, *track.status() == before);
    }
}

fn outcome_sequence() -> impl Strategy<Value = Vec<(u64, Result<(), ProofError>)>> {
    let outcome = prop_oneof![
        Just(Ok(())),
        prop::sample::select(vec!["ServiceUnreachable", "TimedOut"]).prop_map(transient_error),
        Just(()).prop_map(|()| throttled_error()),
        prop::sample::select(vec!["AADSTS700016", "AuthorizationFailed"])
            .prop_map(definitive_error),
    ];
    prop::collection::vec((1_u64..200, outcome), 1..60).prop_map(|steps| {
        let mut seconds = 0;
        let later = |(pause, outcome)| {
            seconds += pause;
            (seconds, outcome)
        };
        steps.into_iter().map(later).collect()
    })
}

proptest! {
    #[test]
    fn transient_errors_change_status_once_per_threshold(
        steps in outcome_sequence(),
    ) {
        let mut track = CheckTracker::default();
        let mut last_bad: Option<u64> = None;
        for (seconds, outcome) in steps {
            let before = status_text(track.status());
            let nature = outcome.as_ref().err().map(|it| it.kind);
            track.record(outcome, clock_at(seconds), THRESHOLD);
            let after = status_text(track.status());
            let is_passing = nature == Some(ProofErrorKind::Transient);
            if nature == Some(ProofErrorKind::Throttled) {
                prop_assert_eq!(&before, &after);
            }
            if is_passing && before != after {
                prop_assert!(matches!(before.as_str(), "good" | "unknown"), "{before} to {after}");
                if let Some(last) = last_bad {
                    prop_assert!(seconds - last >= THRESHOLD.duration.as_secs());
                }
                last_bad = Some(seconds);
            }
        }
    }

    #[test]
    fn last_definitive_outcome_decides_status(
        mut steps in outcome_sequence(),
        ends_well in any::<bool>(),
    ) {
        let last = steps.last().map_or(0, |(seconds, _)| *seconds) + 1;
        let end = if ends_well { Ok(()) } else { definitive_error("AADSTS90002") };
        steps.push((last, end));
        prop_assert_eq!(final_status(&steps), if ends_well { "good" } else { "AADSTS90002" });
    }
}
