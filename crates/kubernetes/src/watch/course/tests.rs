use proptest::prelude::*;

use super::*;

fn refused(status: u16, seconds: u64) -> ApiError {
    ApiError::Refused {
        action: "watch x".to_owned(),
        status,
        reason: String::new(),
        message: "no".to_owned(),
        retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
    }
}

fn unreadable() -> ApiError {
    ApiError::Unreadable { action: "watch x".to_owned(), problem: "Syntax, line 1".to_owned() }
}

fn listed() -> End {
    End::Listed { version: "1".to_owned() }
}

fn over(seconds: u64, told: bool) -> End {
    End::Over { version: "2".to_owned(), lasted: Duration::from_secs(seconds), told }
}

fn broken_after(error: ApiError, seconds: u64, told: bool) -> End {
    let lasted = Duration::from_secs(seconds);
    End::Broken { error, version: Some("2".to_owned()), lasted, told }
}

fn broken(error: ApiError) -> End {
    broken_after(error, 0, false)
}

fn millis(course: &mut Course, end: End) -> u128 {
    course.after(end, 0.0).as_millis()
}

#[test]
fn a_watch_that_ends_in_time_goes_on_at_once_from_where_it_was() {
    let mut course = Course::default();
    assert_eq!(millis(&mut course, listed()), 0);
    assert_eq!(course.version.as_deref(), Some("1"));
    assert_eq!(millis(&mut course, over(240, false)), 0);
    assert_eq!(course.version.as_deref(), Some("2"));
}

#[test]
fn watches_that_end_as_soon_as_they_began_are_begun_ever_more_seldom() {
    let mut course = Course::default();
    let pauses: Vec<_> = (0..8).map(|_| millis(&mut course, over(0, false))).collect();
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    // One that told something got on.
    assert_eq!(millis(&mut course, over(0, true)), 200);
}

#[test]
fn a_version_that_is_too_old_leads_to_a_list_and_never_to_a_storm_of_them() {
    for told in [false, true] {
        let mut course = Course::default();
        let mut lists = 0;
        let mut passed = Duration::ZERO;
        while passed < Duration::from_mins(1) {
            lists += 1;
            passed += course.after(listed(), 0.0);
            passed += course.after(broken_after(refused(410, 0), 0, told), 0.0);
            assert_eq!(course.version, None);
        }
        assert!(lists <= 13, "{lists} lists in a minute");
    }
}

#[test]
fn what_cannot_be_read_is_listed_and_trouble_that_passes_is_not() {
    let cases = [
        (unreadable(), None),
        (refused(410, 0), None),
        (refused(403, 0), Some("2")),
        (refused(429, 0), Some("2")),
        (refused(500, 0), Some("2")),
        (refused(504, 0), Some("2")),
    ];
    for (error, version) in cases {
        let mut course = Course::default();
        course.after(broken_after(error.clone(), 60, true), 0.0);
        assert_eq!(course.version.as_deref(), version, "{error}");
    }
}

#[test]
fn trouble_keeps_the_version_and_what_was_asked_is_obeyed() {
    let mut course = Course::default();
    assert_eq!(millis(&mut course, broken(refused(500, 0))), 200);
    assert_eq!(course.version.as_deref(), Some("2"));
    assert_eq!(millis(&mut course, broken(refused(429, 7))), 7_000);
    let mut refusals = Course::default();
    let longest = (0..20).map(|_| millis(&mut refusals, broken(refused(403, 0)))).max();
    assert_eq!(longest, Some(60_000));
}

/// What came of a list that did not tell everything.
fn unlisted(error: ApiError) -> End {
    End::of_list(error)
}

#[test]
fn what_is_refused_again_and_again_is_counted_for_each_right() {
    for end in [broken, unlisted] {
        let mut course = Course::default();
        course.after(listed(), 0.0);
        let mut refusals = |error: ApiError| {
            course.after(end(error), 0.0);
            course.refusals()
        };
        assert_eq!((refusals(refused(403, 0)), refusals(refused(403, 0))), (1, 2));
        assert_eq!(refusals(refused(404, 0)), 1, "a server that begins refuses otherwise");
        assert_eq!(refusals(refused(500, 0)), 0, "an API that is away refuses nothing");
    }
}

#[test]
fn a_watch_that_is_refused_leads_to_one_list_and_that_once_it_is_allowed() {
    let mut course = Course::default();
    course.after(listed(), 0.0);
    for times in 1..20 {
        course.after(broken(refused(403, 0)), 0.0);
        assert_eq!((course.version().as_deref(), course.refusals()), (Some("2"), times));
        assert!(course.is_watch_refused());
    }
    // The API is away for a moment; that gives no right.
    course.after(broken(refused(500, 0)), 0.0);
    assert!(course.is_watch_refused());
    assert_eq!(millis(&mut course, End::Allowed), 0);
    assert_eq!((course.version(), course.refusals()), (None, 0));
    assert!(!course.is_watch_refused());
}

#[test]
fn a_list_that_is_allowed_says_nothing_of_the_watch() {
    let mut course = Course::default();
    course.after(listed(), 0.0);
    course.after(broken(refused(403, 0)), 0.0);
    // It grew too old meanwhile.
    course.after(broken(refused(410, 0)), 0.0);
    course.after(listed(), 0.0);
    assert!(course.is_watch_refused());
}

fn short_end() -> impl Strategy<Value = End> {
    let status = prop::sample::select(vec![401_u16, 403, 404, 408, 410, 429, 500, 503]);
    prop_oneof![
        (0_u64..5).prop_map(|seconds| over(seconds, false)),
        (status, 0_u64..5).prop_map(|(status, lasted)| broken_after(
            refused(status, 0),
            lasted,
            false
        )),
        (0_u64..1).prop_map(|_| broken(unreadable())),
    ]
}

proptest! {
    #[test]
    fn whatever_ends_watches_soon_has_few_of_them_begun(
        ends in prop::collection::vec(short_end(), 40..120),
        chance in 0.0..1.0,
    ) {
        let mut course = Course::default();
        let mut pauses = Vec::new();
        for end in ends {
            if course.version.is_none() {
                course.after(listed(), chance);
            }
            pauses.push(course.after(end, chance));
        }
        // Of the pauses chance takes a half at most.
        prop_assert!(pauses[6..].iter().all(|pause| *pause >= LONGEST_PAUSE / 2), "{pauses:?}");
        prop_assert!(pauses.iter().all(|pause| *pause <= LONGEST_REFUSED));
    }
}
