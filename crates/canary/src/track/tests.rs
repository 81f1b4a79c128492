use proptest::prelude::*;

use super::*;

const PATIENCE: Patience = Patience { failures: 3, lasting: Duration::from_mins(5) };

fn at(seconds: u64) -> Moment {
    let monotonic = Duration::from_secs(seconds);
    Moment { wall: Timestamp::UNIX_EPOCH + monotonic, monotonic }
}

fn passing(code: &str) -> Result<(), Trouble> {
    Err(Trouble::new(Nature::Passing, code, format!("{code} was said"), "wait"))
}

fn throttled() -> Result<(), Trouble> {
    Err(Trouble::new(Nature::Throttled, "TooManyRequests", "too many", "wait"))
}

fn refusal(code: &str) -> Result<(), Trouble> {
    Err(Trouble::new(Nature::Final, code, format!("{code} was said"), "mend it"))
}

/// The standing after outcomes at these seconds, as `good`, `unknown` or the code.
fn standing(steps: &[(u64, Result<(), Trouble>)]) -> String {
    told(track(steps).standing())
}

fn track(steps: &[(u64, Result<(), Trouble>)]) -> Track {
    let mut track = Track::default();
    for (seconds, outcome) in steps {
        track.note(outcome.clone(), at(*seconds), PATIENCE);
    }
    track
}

fn told(standing: &Standing) -> String {
    match standing {
        Standing::Unknown => "unknown".to_owned(),
        Standing::Good { .. } => "good".to_owned(),
        Standing::Bad { trouble, .. } => trouble.code.clone(),
    }
}

#[test]
fn a_success_and_a_refusal_are_told_at_once() {
    assert_eq!(standing(&[(0, Ok(()))]), "good");
    assert_eq!(standing(&[(0, refusal("AADSTS700016"))]), "AADSTS700016");
    assert_eq!(standing(&[(0, Ok(())), (60, refusal("AADSTS700016"))]), "AADSTS700016");
    assert_eq!(standing(&[(0, refusal("AADSTS700016")), (60, Ok(()))]), "good");
}

#[test]
fn trouble_on_the_way_is_told_when_it_came_often_and_long_enough() {
    let busy = || passing("ServiceUnreachable");
    // Often, and not long.
    assert_eq!(standing(&[(0, Ok(())), (60, busy()), (61, busy()), (62, busy())]), "good");
    // Long, and not often.
    assert_eq!(standing(&[(0, Ok(())), (60, busy()), (3_600, busy())]), "good");
    let both = [(0, Ok(())), (60, busy()), (200, busy()), (360, busy())];
    assert_eq!(standing(&both), "ServiceUnreachable");
    // It began with the first of them.
    let Standing::Bad { since, .. } = track(&both).standing().clone() else { panic!() };
    assert_eq!(since, at(60).wall);
    // A success between two of them begins anew.
    let broken = [(0, busy()), (200, Ok(())), (400, busy()), (401, busy())];
    assert_eq!(standing(&broken), "good");
}

#[test]
fn what_nobody_knows_yet_stays_unknown_while_trouble_may_pass() {
    assert_eq!(standing(&[(0, passing("TimedOut")), (1, passing("TimedOut"))]), "unknown");
}

#[test]
fn a_refusal_is_replaced_by_another_refusal_and_not_by_trouble_on_the_way() {
    let mut steps = vec![(0, refusal("AADSTS700016"))];
    steps.extend((1..20).map(|minute| (minute * 60, passing("TimedOut"))));
    assert_eq!(standing(&steps), "AADSTS700016");
    steps.push((2_000, refusal("AADSTS700027")));
    assert_eq!(standing(&steps), "AADSTS700027");
}

#[test]
fn what_is_told_keeps_its_beginning_and_its_words() {
    let said = |words: &str| Err(Trouble::new(Nature::Final, "AADSTS700016", words, "mend it"));
    let track = track(&[(0, said("request 1")), (60, said("request 2"))]);
    let Standing::Bad { trouble, since } = track.standing() else { panic!() };
    assert_eq!((trouble.message.as_str(), *since), ("request 1", at(0).wall));
}

#[test]
fn one_reason_for_another_cause_is_news() {
    let said = |cause: &str| match refusal(cause) {
        Err(trouble) => Err(trouble.because("AzureError")),
        Ok(()) => Ok(()),
    };
    let track = track(&[(0, said("AuthorizationFailed")), (60, said("ResourceNotFound"))]);
    let Standing::Bad { trouble, .. } = track.standing() else { panic!() };
    assert_eq!(
        (trouble.code.as_str(), trouble.message.as_str()),
        ("AzureError", "ResourceNotFound was said")
    );
}

#[test]
fn a_service_that_wants_to_be_left_alone_takes_nothing_back_and_is_told_when_it_lasts() {
    for (known, told) in [(Some(Ok(())), "good"), (Some(refusal("X")), "X"), (None, "unknown")] {
        let mut steps: Vec<_> = known.into_iter().map(|known| (0, known)).collect();
        steps.extend([(60, throttled()), (61, throttled()), (62, throttled())]);
        // Not long enough, and at once where it is why nothing is known.
        assert_eq!(track(&steps).throttled().is_some(), told == "unknown", "{told}");
        steps.push((360, throttled()));
        let lasting = track(&steps);
        let (trouble, since) = lasting.throttled().unwrap();
        assert_eq!((trouble.code.as_str(), since), ("TooManyRequests", at(60).wall));
        assert!(!lasting.is_quiet(), "it is no proof");
        steps.extend((7..200).map(|minute| (minute * 60, throttled())));
        assert_eq!(standing(&steps), told);
        for end in [Ok(()), refusal("Y")] {
            let mut ended = steps.clone();
            ended.push((100_000, end));
            assert_eq!(track(&ended).throttled(), None);
        }
    }
}

fn throttled_for(seconds: u64) -> Result<(), Trouble> {
    let pause = Some(Duration::from_secs(seconds));
    let error = lanyard_azure::CallError::Throttled { target: "GET x".to_owned(), pause };
    Err(Trouble::of_call(&error))
}

#[test]
fn who_wants_to_be_left_alone_for_as_long_as_the_patience_is_told_of_at_once() {
    for (seconds, is_told) in [(7, false), (299, false), (300, true), (3_600, true)] {
        let track = track(&[(0, Ok(())), (60, throttled_for(seconds))]);
        let since = track.throttled().map(|(_, since)| since);
        assert_eq!(since, is_told.then(|| at(60).wall), "{seconds}");
        assert!(track.is_good(), "{seconds}");
    }
    // It came to that later, and began before.
    let track = track(&[(0, Ok(())), (60, throttled_for(7)), (120, throttled_for(3_600))]);
    assert_eq!(track.throttled().map(|(_, since)| since), Some(at(60).wall));
}

#[test]
fn what_is_known_of_something_that_was_replaced_ends_where_its_successor_may_not_be_tried() {
    for known in [Ok(()), refusal("AADSTS700016")] {
        let mut track = track(&[(0, known.clone())]);
        let before = track.standing().clone();
        track.outdate();
        track.note(passing("TimedOut"), at(60), PATIENCE);
        assert_eq!(*track.standing(), before, "trouble on the way has its patience");
        track.note(throttled(), at(120), PATIENCE);
        assert_eq!(*track.standing(), Standing::Unknown);
        assert_eq!(track.throttled().map(|(_, since)| since), Some(at(120).wall), "it says why");
        for (end, told_then) in [(Ok(()), "good"), (refusal("Y"), "Y")] {
            let mut track = track.clone();
            track.note(end, at(180), PATIENCE);
            assert_eq!(told(track.standing()), told_then);
            // From then on it is known of this one.
            track.note(throttled(), at(240), PATIENCE);
            assert_eq!(told(track.standing()), told_then);
        }
    }
    // Nobody tries it while the service is left alone already.
    let mut track = track(&[(0, Ok(())), (60, throttled())]);
    track.outdate();
    assert_eq!(*track.standing(), Standing::Unknown);
    assert_eq!(track.throttled().map(|(_, since)| since), Some(at(60).wall));
}

#[test]
fn what_is_known_of_something_that_was_replaced_stands_as_long_as_the_patience() {
    for (known, told_then) in [
        (Ok(()), "ServiceUnreachable"),
        (refusal("AADSTS700027"), "ServiceUnreachable"),
        (passing("TimedOut"), "TimedOut"),
    ] {
        let mut track = track(&[(0, known.clone()), (200, known.clone()), (400, known)]);
        let before = track.standing().clone();
        assert!(!track.is_of_replaced());
        track.outdate();
        let is_one_story = told_then == "TimedOut";
        if !is_one_story {
            for seconds in [460, 520] {
                track.note(passing("ServiceUnreachable"), at(seconds), PATIENCE);
                assert_eq!((track.standing(), track.is_of_replaced()), (&before, true));
            }
        }
        track.note(passing("ServiceUnreachable"), at(800), PATIENCE);
        assert_eq!(told(track.standing()), told_then);
        assert!(!track.is_of_replaced(), "from then on it is known of this one");
        assert_eq!(is_one_story, *track.standing() == before);
    }
}

fn outcomes() -> impl Strategy<Value = Vec<(u64, Result<(), Trouble>)>> {
    let outcome = prop_oneof![
        Just(Ok(())),
        prop::sample::select(vec!["ServiceUnreachable", "TimedOut"]).prop_map(passing),
        Just(()).prop_map(|()| throttled()),
        prop::sample::select(vec!["AADSTS700016", "AuthorizationFailed"]).prop_map(refusal),
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
    fn trouble_on_the_way_alone_never_flips_what_is_known_more_than_once_in_the_patience(
        steps in outcomes(),
    ) {
        let mut track = Track::default();
        let mut last_bad: Option<u64> = None;
        for (seconds, outcome) in steps {
            let before = told(track.standing());
            let nature = outcome.as_ref().err().map(|it| it.nature);
            track.note(outcome, at(seconds), PATIENCE);
            let after = told(track.standing());
            let is_passing = nature == Some(Nature::Passing);
            if nature == Some(Nature::Throttled) {
                prop_assert_eq!(&before, &after);
            }
            if is_passing && before != after {
                prop_assert!(matches!(before.as_str(), "good" | "unknown"), "{before} to {after}");
                if let Some(last) = last_bad {
                    prop_assert!(seconds - last >= PATIENCE.lasting.as_secs());
                }
                last_bad = Some(seconds);
            }
        }
    }

    #[test]
    fn a_last_success_is_good_and_a_last_refusal_is_bad_whatever_came_before(
        mut steps in outcomes(),
        ends_well in any::<bool>(),
    ) {
        let last = steps.last().map_or(0, |(seconds, _)| *seconds) + 1;
        let end = if ends_well { Ok(()) } else { refusal("AADSTS90002") };
        steps.push((last, end));
        prop_assert_eq!(standing(&steps), if ends_well { "good" } else { "AADSTS90002" });
    }
}
