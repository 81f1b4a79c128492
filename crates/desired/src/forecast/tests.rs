use jiff::ToSpan;
use lanyard_api::HostedClusterIdentities;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use proptest::prelude::*;

use super::*;

fn day(day: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + (day * 24).hours()
}

/// Timestamps as in managed identity credentials: valid for 90 days, to be renewed at half of the
/// lifetime.
fn half_time_renewal_timestamps() -> ForecastTimestamps {
    ForecastTimestamps {
        not_before: Some(day(0)),
        renew_after: Some(day(45)),
        cannot_renew_after: Some(day(90)),
        not_after: Some(day(90)),
    }
}

fn hourly_poll_policy() -> RenewalPolicy {
    RenewalPolicy {
        propagation_delay: PropagationDelay::for_node_plugin(Duration::from_hours(1)),
        ..RenewalPolicy::default()
    }
}

fn renewal_state(stamps: ForecastTimestamps, now: Timestamp) -> RenewalState {
    forecast_renewal(stamps, &hourly_poll_policy(), now).verdict
}

#[test]
fn credential_passes_through_every_renewal_state() {
    let reach = SignedDuration::try_from(hourly_poll_policy().propagation_delay.total()).unwrap();
    assert_eq!(reach, SignedDuration::from_secs(2 * 3600 + 360 + 90 + 1));
    let overdue = day(46) + reach;
    let too_late = day(90) - reach;
    for (from, expected) in [
        (day(0), RenewalState::Ok),
        (day(45), RenewalState::RenewalDue),
        (overdue, RenewalState::Overdue),
        (too_late, RenewalState::TooLate),
        (day(90), RenewalState::Expired),
    ] {
        assert_eq!(renewal_state(half_time_renewal_timestamps(), from), expected, "from {from}");
        assert!(
            renewal_state(half_time_renewal_timestamps(), from - 1.second()) < expected
                || from == day(0),
            "before {from}"
        );
    }
    let forecast = forecast_renewal(half_time_renewal_timestamps(), &hourly_poll_policy(), day(0));
    assert_eq!(forecast.renew_by, Some(day(46)));
    assert_eq!(forecast.overdue_from, Some(overdue));
    assert_eq!(forecast.last_write_at, Some(too_late));
    assert!(!forecast.renewal_is_assumed);
}

#[test]
fn non_renewable_identity_is_too_late_before_expiry() {
    let stamps =
        ForecastTimestamps { cannot_renew_after: Some(day(60)), ..half_time_renewal_timestamps() };
    assert_eq!(renewal_state(stamps, day(60)), RenewalState::TooLate);
    assert_eq!(
        forecast_renewal(stamps, &hourly_poll_policy(), day(0)).last_write_at,
        Some(day(60))
    );
    // No write helps any more, but there is time to create another identity.
    let forecast = forecast_renewal(stamps, &hourly_poll_policy(), day(60));
    assert_eq!(forecast.reason(), "IdentityNotRenewable");
    assert_eq!(
        forecast.summary(),
        format!(
            "the identity cannot be renewed since {}, and its credential ends at {}; next: create another identity, and set its secret in the HostedCluster before the credential ends",
            day(60),
            day(90)
        )
    );
    let overdue = forecast_renewal(stamps, &hourly_poll_policy(), day(60) - 1.second()).summary();
    assert!(overdue.contains("the identity cannot be renewed after 2026-03-02"), "{overdue}");
    let stamps = ForecastTimestamps { cannot_renew_after: None, ..stamps };
    assert_eq!(renewal_state(stamps, day(60)), RenewalState::Overdue);
    assert_eq!(
        forecast_renewal(stamps, &hourly_poll_policy(), day(90) - 1.second()).reason(),
        "RenewalTooLate"
    );
}

#[test]
fn without_a_stamp_for_it_a_renewal_is_assumed_in_the_last_fifth() {
    let bare = ForecastTimestamps {
        renew_after: None,
        cannot_renew_after: None,
        ..half_time_renewal_timestamps()
    };
    let found = forecast_renewal(bare, &hourly_poll_policy(), day(0));
    assert_eq!((found.renew_from, found.renewal_is_assumed), (Some(day(72)), true));
    let bare = ForecastTimestamps { not_before: None, ..bare };
    assert_eq!(forecast_renewal(bare, &hourly_poll_policy(), day(0)).renew_from, Some(day(83)));
}

#[test]
fn missing_expiry_gives_unknown_state() {
    let found = forecast_renewal(
        ForecastTimestamps { not_after: None, ..half_time_renewal_timestamps() },
        &hourly_poll_policy(),
        day(200),
    );
    assert_eq!((found.verdict, found.last_write_at), (RenewalState::Unknown, None));
    assert_eq!(found.renew_from, Some(day(45)));
    assert!(found.verdict.is_unknown() && !found.verdict.requires_action());
}

#[test]
fn short_renewal_window_is_reported_from_its_start() {
    let end = day(0) + 2.hours();
    let short = ForecastTimestamps {
        not_before: Some(day(0)),
        renew_after: Some(day(0) + 90.minutes()),
        cannot_renew_after: None,
        not_after: Some(end),
    };
    assert_eq!(
        renewal_state(short, day(0)),
        RenewalState::TooLate,
        "every write needs longer than it lives"
    );
    let patient = RenewalPolicy {
        propagation_delay: PropagationDelay::for_node_plugin(Duration::from_mins(10)),
        ..hourly_poll_policy()
    };
    let found = forecast_renewal(short, &patient, day(0));
    assert_eq!(found.overdue_from, short.renew_after);
}

#[test]
fn propagation_delay_is_the_sum_of_its_parts() {
    assert_eq!(PropagationDelay::default().total(), Duration::from_secs(120 + 12 + 120 + 90 + 1));
    let driver = PropagationDelay::for_secrets_store_driver(Duration::from_hours(1));
    assert_eq!(driver.total(), Duration::from_secs(7 * 3600 + 90));
}

#[test]
fn every_renewal_state_has_name_summary_and_hint() {
    let mut names: Vec<_> = RenewalState::ALL.iter().map(|it| it.name()).collect();
    names.dedup();
    assert_eq!(names.len(), 6);
    assert!(RenewalState::ALL.is_sorted());
    for (now, part) in [
        (day(0), "its credential ends at 2026-04-01T00:00:00Z"),
        (day(45), "is due since 2026-02-15T00:00:00Z"),
        (day(50), "overdue since 2026-02-16T"),
        (day(90) - 1.second(), "are too late"),
        (day(91), "ended at 2026-04-01T00:00:00Z; next: renew"),
    ] {
        let sentence =
            forecast_renewal(half_time_renewal_timestamps(), &hourly_poll_policy(), now).summary();
        assert!(sentence.contains(part), "{sentence}");
    }
    for verdict in RenewalState::ALL {
        assert_eq!(verdict.hint().is_some(), verdict.requires_action() || verdict.is_unknown());
    }
}

#[test]
fn summary_and_state_stay_until_the_next_change() {
    let mut now = day(-10);
    let mut observed = Vec::new();
    while let Some(next) =
        forecast_renewal(half_time_renewal_timestamps(), &hourly_poll_policy(), now)
            .next_change_at()
    {
        let (one, other) = (
            forecast_renewal(half_time_renewal_timestamps(), &hourly_poll_policy(), now),
            forecast_renewal(
                half_time_renewal_timestamps(),
                &hourly_poll_policy(),
                next - 1.nanosecond(),
            ),
        );
        assert_eq!((one.verdict, one.summary()), (other.verdict, other.summary()));
        observed.push(one.verdict);
        now = next;
    }
    assert_eq!(
        observed,
        [RenewalState::Ok, RenewalState::RenewalDue, RenewalState::Overdue, RenewalState::TooLate]
    );
}

pub(super) fn identities_of_cluster(
    name: &str,
    identities: &[(&str, ForecastTimestamps)],
) -> HostedClusterIdentities {
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
    cluster.status = Some(HostedClusterIdentitiesStatus {
        identities,
        ..HostedClusterIdentitiesStatus::default()
    });
    cluster
}

#[test]
fn timeline_is_sorted_by_last_write_at() {
    let until = |end: i64| ForecastTimestamps {
        not_after: Some(day(end)),
        ..ForecastTimestamps::default()
    };
    let clusters = [
        identities_of_cluster(
            "one",
            &[("disk", until(30)), ("file", ForecastTimestamps::default()), ("network", until(10))],
        ),
        HostedClusterIdentities { status: None, ..identities_of_cluster("two", &[]) },
        identities_of_cluster(
            "three",
            &[
                ("disk", until(10)),
                ("kms", ForecastTimestamps { cannot_renew_after: Some(day(5)), ..until(60) }),
            ],
        ),
    ];
    let entries = renewal_timeline(&clusters, &hourly_poll_policy(), day(0));
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
    assert_eq!(entries[1].next.unwrap().moment, RenewalMilestone::RenewFrom);
    let reversed: Vec<_> = clusters.into_iter().rev().collect();
    assert_eq!(renewal_timeline(&reversed, &hourly_poll_policy(), day(0)), entries);
}

#[test]
fn ends_within_includes_expiring_and_alarming_entries() {
    let entry = |now| {
        renewal_timeline(
            &[identities_of_cluster("one", &[("disk", half_time_renewal_timestamps())])],
            &hourly_poll_policy(),
            now,
        )
        .remove(0)
    };
    assert!(!entry(day(0)).ends_within(Duration::from_hours(90 * 24 - 1)));
    assert!(entry(day(0)).ends_within(Duration::from_hours(90 * 24)));
    assert!(!entry(day(45)).ends_within(Duration::ZERO), "a renewal that is due is no alarm");
    assert!(entry(day(50)).ends_within(Duration::ZERO), "an overdue one is");
}

#[test]
fn timeline_entry_serializes_with_stable_names() {
    let entry = renewal_timeline(
        &[identities_of_cluster("one", &[("disk", half_time_renewal_timestamps())])],
        &hourly_poll_policy(),
        day(50),
    )
    .remove(0);
    let json = serde_json::to_value(&entry).unwrap();
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
        assert_eq!(json[field], expected, "{field}");
    }
    assert_eq!(json["next"]["moment"], "last-write");
    assert_eq!(json["renewalIsAssumed"], false);
    assert!(json["hint"].is_string());
    assert!(json.get("at").is_none());
}

proptest! {
    #[test]
    fn milestones_are_ordered_and_states_only_get_worse(
        begin in proptest::option::of(-400_i64..400),
        renewal in proptest::option::of(-400_i64..400),
        cannot in proptest::option::of(-400_i64..400),
        end in proptest::option::of(-400_i64..400),
        interval in 1_u64..1_000_000,
        grace_seconds in 0_u64..1_000_000,
        days in proptest::collection::vec(-500_i64..500, 2..10),
    ) {
        let stamps = ForecastTimestamps {
            not_before: begin.map(day),
            renew_after: renewal.map(day),
            cannot_renew_after: cannot.map(day),
            not_after: end.map(day),
        };
        let policy = RenewalPolicy {
            propagation_delay: PropagationDelay::for_node_plugin(Duration::from_secs(interval)),
            grace_period: Duration::from_secs(grace_seconds),
        };
        let mut days = days;
        days.sort_unstable();
        let verdicts: Vec<_> = days.iter().map(|day_number| forecast_renewal(stamps, &policy, day(*day_number)).verdict).collect();
        prop_assert!(verdicts.is_sorted(), "{verdicts:?}");
        let found = forecast_renewal(stamps, &policy, day(0));
        prop_assert_eq!(found.verdict == RenewalState::Unknown, end.is_none());
        if let (Some(overdue), Some(last), Some(end)) = (found.overdue_from, found.last_write_at, found.expires_at) {
            prop_assert!(overdue <= last && last <= end);
        }
    }
}
