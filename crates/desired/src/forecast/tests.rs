use jiff::ToSpan;
use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use proptest::prelude::*;

use super::*;

fn day(day: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + (day * 24).hours()
}

/// As managed identities have them: 90 days, to be renewed at half time.
fn stamps() -> Stamps {
    Stamps {
        not_before: Some(day(0)),
        renew_after: Some(day(45)),
        cannot_renew_after: Some(day(90)),
        not_after: Some(day(90)),
    }
}

fn hourly() -> Policy {
    Policy { reach: Reach::of_node_plugin(Duration::from_hours(1)), ..Policy::default() }
}

fn verdict(stamps: Stamps, now: Timestamp) -> Verdict {
    forecast(stamps, &hourly(), now).verdict
}

#[test]
fn a_credential_goes_through_every_verdict_in_its_turn() {
    let reach = SignedDuration::try_from(hourly().reach.longest()).unwrap();
    assert_eq!(reach, SignedDuration::from_secs(2 * 3600 + 360 + 90 + 1));
    let overdue = day(46) + reach;
    let too_late = day(90) - reach;
    for (from, expected) in [
        (day(0), Verdict::Ok),
        (day(45), Verdict::RenewalDue),
        (overdue, Verdict::Overdue),
        (too_late, Verdict::TooLate),
        (day(90), Verdict::Expired),
    ] {
        assert_eq!(verdict(stamps(), from), expected, "from {from}");
        assert!(verdict(stamps(), from - 1.second()) < expected || from == day(0), "before {from}");
    }
    let forecast = forecast(stamps(), &hourly(), day(0));
    assert_eq!(forecast.renew_by, Some(day(46)));
    assert_eq!(forecast.overdue_from, Some(overdue));
    assert_eq!(forecast.last_write_at, Some(too_late));
    assert!(!forecast.renewal_is_assumed);
}

#[test]
fn what_cannot_be_renewed_any_more_is_too_late_though_it_lasts() {
    let stamps = Stamps { cannot_renew_after: Some(day(60)), ..stamps() };
    assert_eq!(verdict(stamps, day(60)), Verdict::TooLate);
    assert_eq!(forecast(stamps, &hourly(), day(0)).last_write_at, Some(day(60)));
    // No write helps any more, and there is time for another identity.
    let told = forecast(stamps, &hourly(), day(60));
    assert_eq!(told.reason(), "IdentityNotRenewable");
    assert_eq!(
        told.sentence(),
        format!(
            "the identity cannot be renewed since {}, and its credential ends at {}; next: make another identity, and name its secret in the HostedCluster before the credential ends",
            day(60),
            day(90)
        )
    );
    let overdue = forecast(stamps, &hourly(), day(60) - 1.second()).sentence();
    assert!(overdue.contains("the identity cannot be renewed after 2026-03-02"), "{overdue}");
    let stamps = Stamps { cannot_renew_after: None, ..stamps };
    assert_eq!(verdict(stamps, day(60)), Verdict::Overdue);
    assert_eq!(forecast(stamps, &hourly(), day(90) - 1.second()).reason(), "RenewalTooLate");
}

#[test]
fn without_a_stamp_for_it_a_renewal_is_assumed_in_the_last_fifth() {
    let bare = Stamps { renew_after: None, cannot_renew_after: None, ..stamps() };
    let found = forecast(bare, &hourly(), day(0));
    assert_eq!((found.renew_from, found.renewal_is_assumed), (Some(day(72)), true));
    let bare = Stamps { not_before: None, ..bare };
    assert_eq!(forecast(bare, &hourly(), day(0)).renew_from, Some(day(83)));
}

#[test]
fn without_an_end_nothing_is_known() {
    let found = forecast(Stamps { not_after: None, ..stamps() }, &hourly(), day(200));
    assert_eq!((found.verdict, found.last_write_at), (Verdict::Unknown, None));
    assert_eq!(found.renew_from, Some(day(45)));
    assert!(found.verdict.is_unknown() && !found.verdict.is_alarming());
}

#[test]
fn a_window_that_is_too_short_for_the_interval_is_told_at_its_beginning() {
    let end = day(0) + 2.hours();
    let short = Stamps {
        not_before: Some(day(0)),
        renew_after: Some(day(0) + 90.minutes()),
        cannot_renew_after: None,
        not_after: Some(end),
    };
    assert_eq!(verdict(short, day(0)), Verdict::TooLate, "every write needs longer than it lives");
    let patient = Policy { reach: Reach::of_node_plugin(Duration::from_mins(10)), ..hourly() };
    let found = forecast(short, &patient, day(0));
    assert_eq!(found.overdue_from, short.renew_after);
}

#[test]
fn the_reach_is_the_sum_of_its_parts() {
    assert_eq!(Reach::default().longest(), Duration::from_secs(120 + 12 + 120 + 90 + 1));
    let driver = Reach::of_secrets_store_driver(Duration::from_hours(1));
    assert_eq!(driver.longest(), Duration::from_secs(7 * 3600 + 90));
}

#[test]
fn every_verdict_has_a_name_a_sentence_and_a_next_step_if_it_needs_one() {
    let mut names: Vec<_> = Verdict::ALL.iter().map(|it| it.name()).collect();
    names.dedup();
    assert_eq!(names.len(), 6);
    assert!(Verdict::ALL.is_sorted());
    for (now, part) in [
        (day(0), "its credential ends at 2026-04-01T00:00:00Z"),
        (day(45), "is renewed since 2026-02-15T00:00:00Z"),
        (day(50), "overdue since 2026-02-16T"),
        (day(90) - 1.second(), "comes too late"),
        (day(91), "ended at 2026-04-01T00:00:00Z; next: renew"),
    ] {
        let sentence = forecast(stamps(), &hourly(), now).sentence();
        assert!(sentence.contains(part), "{sentence}");
    }
    for verdict in Verdict::ALL {
        assert_eq!(verdict.hint().is_some(), verdict.is_alarming() || verdict.is_unknown());
    }
}

#[test]
fn a_sentence_and_the_verdict_stay_until_the_next_change() {
    let mut now = day(-10);
    let mut seen = Vec::new();
    while let Some(next) = forecast(stamps(), &hourly(), now).next_change() {
        let (one, other) = (
            forecast(stamps(), &hourly(), now),
            forecast(stamps(), &hourly(), next - 1.nanosecond()),
        );
        assert_eq!((one.verdict, one.sentence()), (other.verdict, other.sentence()));
        seen.push(one.verdict);
        now = next;
    }
    assert_eq!(seen, [Verdict::Ok, Verdict::RenewalDue, Verdict::Overdue, Verdict::TooLate]);
}

pub(super) fn cluster(name: &str, identities: &[(&str, Stamps)]) -> HostedClusterIdentities {
    let mut cluster = HostedClusterIdentities::default();
    cluster.metadata.namespace = Some("clusters".to_owned());
    cluster.metadata.name = Some(name.to_owned());
    let identities = identities.iter().map(|(component, stamps)| IdentityStatus {
        component: (*component).to_owned(),
        ready: "True".to_owned(),
        not_before: stamps.not_before,
        renew_after: stamps.renew_after,
        cannot_renew_after: stamps.cannot_renew_after,
        not_after: stamps.not_after,
        ..IdentityStatus::default()
    });
    let identities = identities.collect();
    cluster.status = Some(IdentitiesStatus { identities, ..IdentitiesStatus::default() });
    cluster
}

#[test]
fn the_timeline_goes_by_the_last_moment_at_which_something_helps() {
    let until = |end: i64| Stamps { not_after: Some(day(end)), ..Stamps::default() };
    let clusters = [
        cluster("one", &[("disk", until(30)), ("file", Stamps::default()), ("network", until(10))]),
        HostedClusterIdentities { status: None, ..cluster("two", &[]) },
        cluster(
            "three",
            &[
                ("disk", until(10)),
                ("kms", Stamps { cannot_renew_after: Some(day(5)), ..until(60) }),
            ],
        ),
    ];
    let entries = timeline(&clusters, &hourly(), day(0));
    let order: Vec<_> =
        entries.iter().map(|it| (it.cluster.as_str(), it.component.as_str())).collect();
    assert_eq!(
        order,
        [
            ("three", "kms"),
            ("one", "network"),
            ("three", "disk"),
            ("one", "disk"),
            ("one", "file"),
            ("two", "*")
        ]
    );
    assert!(entries[4].is_unknown() && entries[5].is_unknown());
    assert_eq!(entries[1].next.unwrap().moment, Moment::RenewFrom);
    let reversed: Vec<_> = clusters.into_iter().rev().collect();
    assert_eq!(timeline(&reversed, &hourly(), day(0)), entries);
}

#[test]
fn what_ends_within_a_time_is_what_ends_by_then_or_needs_somebody_now() {
    let entry = |now| timeline(&[cluster("one", &[("disk", stamps())])], &hourly(), now).remove(0);
    assert!(!entry(day(0)).ends_within(Duration::from_hours(90 * 24 - 1)));
    assert!(entry(day(0)).ends_within(Duration::from_hours(90 * 24)));
    assert!(!entry(day(45)).ends_within(Duration::ZERO), "a renewal that is due is no alarm");
    assert!(entry(day(50)).ends_within(Duration::ZERO), "an overdue one is");
}

#[test]
fn an_entry_is_told_to_programs_with_stable_names() {
    let entry = timeline(&[cluster("one", &[("disk", stamps())])], &hourly(), day(50)).remove(0);
    let told = serde_json::to_value(&entry).unwrap();
    for (field, expected) in [
        ("namespace", "clusters"),
        ("cluster", "one"),
        ("component", "disk"),
        ("ready", "True"),
        ("verdict", "overdue"),
        ("renewFrom", "2026-02-15T00:00:00Z"),
        ("expiresAt", "2026-04-01T00:00:00Z"),
        ("cannotRenewAfter", "2026-04-01T00:00:00Z"),
    ] {
        assert_eq!(told[field], expected, "{field}");
    }
    assert_eq!(told["next"]["moment"], "last-write");
    assert_eq!(told["renewalIsAssumed"], false);
    assert!(told["hint"].is_string());
    assert!(told.get("at").is_none());
}

proptest! {
    #[test]
    fn whatever_the_stamps_moments_are_in_order_and_verdicts_only_get_worse(
        begin in proptest::option::of(-400_i64..400),
        renewal in proptest::option::of(-400_i64..400),
        cannot in proptest::option::of(-400_i64..400),
        end in proptest::option::of(-400_i64..400),
        interval in 1_u64..1_000_000,
        patience in 0_u64..1_000_000,
        looks in proptest::collection::vec(-500_i64..500, 2..10),
    ) {
        let stamps = Stamps {
            not_before: begin.map(day),
            renew_after: renewal.map(day),
            cannot_renew_after: cannot.map(day),
            not_after: end.map(day),
        };
        let policy = Policy {
            reach: Reach::of_node_plugin(Duration::from_secs(interval)),
            patience: Duration::from_secs(patience),
        };
        let mut looks = looks;
        looks.sort_unstable();
        let verdicts: Vec<_> = looks.iter().map(|look| forecast(stamps, &policy, day(*look)).verdict).collect();
        prop_assert!(verdicts.is_sorted(), "{verdicts:?}");
        let found = forecast(stamps, &policy, day(0));
        prop_assert_eq!(found.verdict == Verdict::Unknown, end.is_none());
        if let (Some(overdue), Some(last), Some(end)) = (found.overdue_from, found.last_write_at, found.expires_at) {
            prop_assert!(overdue <= last && last <= end);
        }
    }
}
