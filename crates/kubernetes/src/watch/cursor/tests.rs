use proptest::prelude::*;

use super::*;

fn status_error(status: u16, seconds: u64) -> ApiError {
    ApiError::Refused {
        action: "watch x".to_owned(),
        status,
        reason: String::new(),
        message: "no".to_owned(),
        retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
    }
}

fn unreadable_error() -> ApiError {
    ApiError::Unreadable { action: "watch x".to_owned(), problem: "Syntax, line 1".to_owned() }
}

fn list_completed() -> WatchOutcome {
    WatchOutcome::Listed { version: "1".to_owned() }
}

fn watch_ended(seconds: u64, had_events: bool) -> WatchOutcome {
    WatchOutcome::Ended {
        version: "2".to_owned(),
        duration: Duration::from_secs(seconds),
        had_events,
    }
}

fn watch_failed_after(error: ApiError, seconds: u64, had_events: bool) -> WatchOutcome {
    let lasted = Duration::from_secs(seconds);
    WatchOutcome::Failed { error, version: Some("2".to_owned()), duration: lasted, had_events }
}

fn watch_failed(error: ApiError) -> WatchOutcome {
    watch_failed_after(error, 0, false)
}

fn delay_millis(cursor: &mut WatchCursor, end: WatchOutcome) -> u128 {
    cursor.record_outcome(end, 0.0).as_millis()
}

#[test]
fn watch_that_ends_in_time_resumes_immediately() {
    let mut cursor = WatchCursor::default();
    assert_eq!(delay_millis(&mut cursor, list_completed()), 0);
    assert_eq!(cursor.version.as_deref(), Some("1"));
    assert_eq!(delay_millis(&mut cursor, watch_ended(240, false)), 0);
    assert_eq!(cursor.version.as_deref(), Some("2"));
}

#[test]
fn watches_that_end_immediately_back_off() {
    let mut cursor = WatchCursor::default();
    let pauses: Vec<_> = (0..8).map(|_| delay_millis(&mut cursor, watch_ended(0, false))).collect();
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    // A watch with events is a success.
    assert_eq!(delay_millis(&mut cursor, watch_ended(0, true)), 200);
}

#[test]
fn expired_version_causes_list_without_storm() {
    for had_events in [false, true] {
        let mut cursor = WatchCursor::default();
        let mut lists = 0;
        let mut passed = Duration::ZERO;
        while passed < Duration::from_mins(1) {
            lists += 1;
            passed += cursor.record_outcome(list_completed(), 0.0);
            passed +=
                cursor.record_outcome(watch_failed_after(status_error(410, 0), 0, had_events), 0.0);
            assert_eq!(cursor.version, None);
        }
        assert!(lists <= 13, "{lists} lists in a minute");
    }
}

#[test]
fn unreadable_events_force_a_list_and_transient_errors_do_not() {
    let cases = [
        (unreadable_error(), None),
        (status_error(410, 0), None),
        (status_error(403, 0), Some("2")),
        (status_error(429, 0), Some("2")),
        (status_error(500, 0), Some("2")),
        (status_error(504, 0), Some("2")),
    ];
    for (error, version) in cases {
        let mut cursor = WatchCursor::default();
        cursor.record_outcome(watch_failed_after(error.clone(), 60, true), 0.0);
        assert_eq!(cursor.version.as_deref(), version, "{error}");
    }
}

#[test]
fn transient_error_keeps_version_and_honours_retry_after() {
    let mut cursor = WatchCursor::default();
    assert_eq!(delay_millis(&mut cursor, watch_failed(status_error(500, 0))), 200);
    assert_eq!(cursor.version.as_deref(), Some("2"));
    assert_eq!(delay_millis(&mut cursor, watch_failed(status_error(429, 7))), 7_000);
    let mut refusals = WatchCursor::default();
    let longest =
        (0..20).map(|_| delay_millis(&mut refusals, watch_failed(status_error(403, 0)))).max();
    assert_eq!(longest, Some(60_000));
}

/// The outcome of a failed list.
fn list_failed(error: ApiError) -> WatchOutcome {
    WatchOutcome::list_failed(error)
}

#[test]
fn refusals_are_counted_for_list_and_watch() {
    for end in [watch_failed, list_failed] {
        let mut cursor = WatchCursor::default();
        cursor.record_outcome(list_completed(), 0.0);
        let mut refusals = |error: ApiError| {
            cursor.record_outcome(end(error), 0.0);
            cursor.refusals()
        };
        assert_eq!((refusals(status_error(403, 0)), refusals(status_error(403, 0))), (1, 2));
        assert_eq!(refusals(status_error(404, 0)), 1, "another status starts a new count");
        assert_eq!(refusals(status_error(500, 0)), 0, "a server error is not a refusal");
    }
}

#[test]
fn refused_watch_lists_once_after_permission_returns() {
    let mut cursor = WatchCursor::default();
    cursor.record_outcome(list_completed(), 0.0);
    for times in 1..20 {
        cursor.record_outcome(watch_failed(status_error(403, 0)), 0.0);
        assert_eq!((cursor.version().as_deref(), cursor.refusals()), (Some("2"), times));
        assert!(cursor.is_watch_refused());
    }
    // An unreachable API server does not restore the permission.
    cursor.record_outcome(watch_failed(status_error(500, 0)), 0.0);
    assert!(cursor.is_watch_refused());
    assert_eq!(delay_millis(&mut cursor, WatchOutcome::PermissionRestored), 0);
    assert_eq!((cursor.version(), cursor.refusals()), (None, 0));
    assert!(!cursor.is_watch_refused());
}

#[test]
fn successful_list_does_not_clear_watch_refusal() {
    let mut cursor = WatchCursor::default();
    cursor.record_outcome(list_completed(), 0.0);
    cursor.record_outcome(watch_failed(status_error(403, 0)), 0.0);
    // The version expired meanwhile.
    cursor.record_outcome(watch_failed(status_error(410, 0)), 0.0);
    cursor.record_outcome(list_completed(), 0.0);
    assert!(cursor.is_watch_refused());
}

fn short_lived_outcome() -> impl Strategy<Value = WatchOutcome> {
    let status = prop::sample::select(vec![401_u16, 403, 404, 408, 410, 429, 500, 503]);
    prop_oneof![
        (0_u64..5).prop_map(|seconds| watch_ended(seconds, false)),
        (status, 0_u64..5).prop_map(|(status, lasted)| watch_failed_after(
            status_error(status, 0),
            lasted,
            false
        )),
        (0_u64..1).prop_map(|_| watch_failed(unreadable_error())),
    ]
}

proptest! {
    #[test]
    fn short_watches_are_restarted_with_backoff(
        ends in prop::collection::vec(short_lived_outcome(), 40..120),
        chance in 0.0..1.0,
    ) {
        let mut cursor = WatchCursor::default();
        let mut pauses = Vec::new();
        for end in ends {
            if cursor.version.is_none() {
                cursor.record_outcome(list_completed(), chance);
            }
            pauses.push(cursor.record_outcome(end, chance));
        }
        // Jitter removes at most a half of each delay.
        prop_assert!(pauses[6..].iter().all(|pause| *pause >= BACKOFF.delay(u32::MAX) / 2), "{pauses:?}");
        prop_assert!(pauses.iter().all(|pause| *pause <= REFUSED_BACKOFF.delay(u32::MAX)));
    }
}
