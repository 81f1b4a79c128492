use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_clock::{ManualClock, SharedClock};

use super::*;
use crate::fleet::Fleet;

/// A fleet whose clusters have the labels `stage` and `order`.
fn fleet(clusters: &[(&str, &str, &str)], waves: &str) -> Fleet {
    let id =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters";
    let entry = |(name, stage, order): &(&str, &str, &str)| {
        format!(
            "  - {{ name: {name}, id: {id}/{name}, labels: {{ stage: {stage}, order: \"{order}\" }} }}\n"
        )
    };
    let clusters: String = clusters.iter().map(entry).collect();
    let text = format!(
        "apiVersion: lanyard.dev/v1alpha1\nkind: Fleet\nmetadata: {{ name: f }}\n\
         defaults: {{ identityResourceGroup: g }}\nclusters:\n{clusters}\
         applications: [{{ name: web, namespace: shop }}]\nrollout: {{ waves: {waves} }}\n"
    );
    Fleet::parse(&text, |_| None).unwrap_or_else(|error| panic!("{error:?}"))
}

const SEVEN: [(&str, &str, &str); 7] = [
    ("a", "canary", "2"),
    ("b", "prod", "10"),
    ("c", "prod", "9"),
    ("d", "canary", "1"),
    ("e", "prod", "x"),
    ("f", "prod", "1"),
    ("g", "prod", "2"),
];

fn names(clusters: &[&FleetCluster]) -> String {
    clusters.iter().map(|it| it.name.as_str()).collect()
}

/// Runs the waves; the clusters in `failing` fail. Returns started, not started and the largest number at the same time.
async fn run(fleet: &Fleet, failing: &str) -> (String, String, usize) {
    let waves = fleet.waves(|_| true);
    let clock: SharedClock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
    let (running, most) = (Cell::new(0), Cell::new(0));
    let started = RefCell::new(String::new());
    let change = async |cluster: &FleetCluster| {
        started.borrow_mut().push_str(cluster.name.as_str());
        running.set(running.get() + 1);
        most.set(most.get().max(running.get()));
        tokio::task::yield_now().await;
        running.set(running.get() - 1);
        failing.contains(cluster.name.as_str())
    };
    let rollout = run_waves(&waves, &clock, change, |failed| *failed).await;
    (started.into_inner(), names(&rollout.not_started), most.get())
}

#[test]
fn waves_have_their_clusters_in_the_order_of_the_label() {
    let waves = "[{ name: canary, matchLabels: { stage: canary }, orderBy: order }, \
                 { name: rest, orderBy: order, maxConcurrency: 50%, maxAllowedFailures: 10% }]";
    let fleet = fleet(&SEVEN, waves);
    let waves = fleet.waves(|_| true);
    let shown: Vec<_> =
        waves.iter().map(|it| (names(&it.clusters), it.concurrency, it.allowed_failures)).collect();
    assert_eq!(shown, [("da".to_owned(), 1, 0), ("fgcbe".to_owned(), 2, 1)]);
    let selected = fleet.waves(|it| it.name.as_str() == "g");
    assert_eq!(selected.len(), 1);
    assert_eq!(selected[0].name.unwrap().as_str(), "rest");
}

#[test]
fn fleet_without_waves_has_one_with_the_order_of_the_file() {
    let fleet = fleet(&SEVEN, "[]");
    let waves = fleet.waves(|_| true);
    assert_eq!(waves.len(), 1);
    assert_eq!((names(&waves[0].clusters).as_str(), waves[0].concurrency), ("abcdefg", 1));
}

#[tokio::test]
async fn failure_in_a_wave_stops_it_and_all_later_waves() {
    let waves =
        "[{ name: canary, matchLabels: { stage: canary } }, { name: rest, maxConcurrency: 2 }]";
    let fleet = fleet(&SEVEN, waves);
    assert_eq!(run(&fleet, "").await, ("adbcefg".to_owned(), String::new(), 2));
    assert_eq!(run(&fleet, "a").await, ("a".to_owned(), "dbcefg".to_owned(), 1));
    let (started, not_started, _) = run(&fleet, "c").await;
    // `b` can end before or after `c`, so `e` can be started.
    assert_eq!(format!("{started}{not_started}"), "adbcefg");
    assert!(not_started.ends_with("fg"), "{not_started}");
}

#[tokio::test]
async fn allowed_failures_do_not_stop_a_wave() {
    let fleet = fleet(&SEVEN, "[{ name: all, maxAllowedFailures: 2 }]");
    assert_eq!(run(&fleet, "ac").await, ("abcdefg".to_owned(), String::new(), 1));
    assert_eq!(run(&fleet, "abc").await, ("abc".to_owned(), "defg".to_owned(), 1));
}

#[tokio::test]
async fn next_wave_begins_after_the_pause() {
    let waves = "[{ name: canary, matchLabels: { stage: canary }, pauseAfter: 10m }, { name: rest, pauseAfter: 1h }]";
    let fleet = fleet(&SEVEN, waves);
    let manual = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
    let clock: SharedClock = Arc::<ManualClock>::clone(&manual);
    let advance = async {
        loop {
            tokio::task::yield_now().await;
            manual.advance(manual.time_until_next_deadline().unwrap_or_default());
        }
    };
    let waves = fleet.waves(|_| true);
    let times = RefCell::new(Vec::new());
    let change = async |_: &FleetCluster| times.borrow_mut().push(clock.monotonic());
    tokio::select! {
        _ = run_waves(&waves, &clock, change, |()| false) => {}
        () = advance => {}
    }
    let first = times.borrow()[0];
    let since = |time: Duration| time.saturating_sub(first);
    let pauses: Vec<_> = times.borrow().iter().map(|time| since(*time)).collect();
    let minutes = |count| Duration::from_mins(count);
    assert_eq!(pauses, [&[minutes(0); 2][..], &[minutes(10); 5][..]].concat());
    assert_eq!(since(clock.monotonic()), minutes(10));
}
