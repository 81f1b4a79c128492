use std::convert::Infallible;

use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::drift::DriftHistory;
use lanyard_kubernetes::WatchUpdate;

use super::*;
use crate::lease::LeaseSettings;

/// An operator of one shard of which nothing is led, at an API that never answers.
fn operator_without_api(clock: &ManualClock) -> Operator {
    operator_with_api(clock, std::future::pending)
}

/// The same, at an API whose answers are these futures.
fn operator_with_api<F>(
    clock: &ManualClock,
    answer: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Operator
where
    F: Future<Output = Result<http::Response<Body>, Infallible>> + Send + 'static,
{
    let service = tower::service_fn(move |_: http::Request<Body>| answer());
    let client = kube::Client::new(service, "default");
    let api = KubernetesApi::from_client(client, Arc::new(clock.clone()));
    let leases = LeaseSettings {
        namespace: "lanyard".to_owned(),
        name: "lanyard-operator".to_owned(),
        identity: "one".to_owned(),
        shards: 1,
        duration: Duration::from_secs(15),
    };
    let settings = OperatorSettings { leases: Some(leases), ..OperatorSettings::default() };
    Operator::new(api, settings, &Readiness::default())
}

#[tokio::test]
async fn shard_won_during_dequeue_requeues_cluster() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator_without_api(&clock);
    let key = ClusterKey::of("clusters", "harbour");
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    let (_, turn) = operator.queue.take_next().await;
    // Nobody looks at what another replica leads.
    operator.reconcile_cluster(&key, turn).await;
    assert_eq!(operator.queue.due_count(), 0);
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    let (taken, _) = operator.queue.take_next().await;
    // The worker saw no fence; now the shard is won, and its wake comes while the worker still has
    // the cluster.
    operator.lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    operator.dequeue_if_not_leader(&taken);
    assert_eq!(operator.queue.due_count(), 1);
}

#[tokio::test]
async fn losing_the_lease_forgets_cluster_memory() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator_without_api(&clock);
    let key = ClusterKey::of("clusters", "harbour");
    let remembered = || operator.context.drift_histories.lock().contains_key(&key);
    let remember = || {
        drop(operator.context.drift_histories.lock().insert(key.clone(), DriftHistory::default()))
    };
    let lead = || operator.lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
    let mut before = operator.lease_terms.led_shards();
    lead();
    operator.forget_lost_shards(&mut before);
    remember();
    operator.forget_lost_shards(&mut before);
    assert!(remembered(), "it is led as before");
    operator.lease_terms.stop_leading(0);
    operator.forget_lost_shards(&mut before);
    assert!(!remembered());
    // A look that was on its way ends later than the leadership.
    remember();
    lead();
    operator.forget_lost_shards(&mut before);
    assert!(!remembered());
}

#[tokio::test]
async fn panicking_reconcile_keeps_worker_and_backs_off() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator_with_api(&clock, || async { panic!("a defect") });
    let (key, seen) = watched_example();
    let mut telling = ListProgress::default();
    let stores = &operator.context.stores;
    drop(stores.apply_watch_update(
        WatchedKind::HostedClusters,
        seen,
        &mut telling,
        Duration::ZERO,
    ));
    operator.lease_terms.lead_until(0, clock.monotonic() + Duration::from_hours(1));
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    let (taken, turn) = operator.queue.take_next().await;
    operator.reconcile_cluster(&taken, turn).await;
    let mut next = std::pin::pin!(operator.queue.take_next());
    assert!(futures::poll!(&mut next).is_pending(), "not at once");
    clock.advance(Duration::from_mins(1));
    assert_eq!(next.await.0, key);
}

/// The example, as a watch tells of it.
fn watched_example() -> (ClusterKey, WatchUpdate) {
    let example = include_str!("../../../../examples/hostedcluster.yaml");
    let example = lanyard_api::HostedCluster::parse_yaml(example).unwrap();
    let mut object = serde_json::to_value(example).unwrap();
    object["metadata"]["uid"] = "u".into();
    let object = serde_json::from_value(object).unwrap();
    (ClusterKey::of("clusters", "harbour"), WatchUpdate::Applied(Box::new(object)))
}

#[tokio::test]
async fn operator_exits_when_a_task_panics() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    // Whoever watches panics.
    let operator = operator_with_api(&clock, || async { panic!("a defect") });
    operator.run(std::future::pending()).await;
}
