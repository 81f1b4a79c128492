use std::convert::Infallible;

use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::drift::DriftHistory;
use lanyard_kubernetes::WatchUpdate;

use super::*;
use crate::lease::LeaseSettings;

/// An operator with one shard that it does not lead, and an API server that never answers.
fn operator_without_api(clock: &ManualClock) -> Operator {
    operator_with_api(clock, std::future::pending)
}

/// An operator like that, with an API server that answers with these futures.
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
    let (_, reconcile_id) = operator.queue.take_next().await;
    // A cluster that another replica leads is not reconciled.
    operator.reconcile_cluster(&key, reconcile_id).await;
    assert_eq!(operator.queue.due_count(), 0);
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    let (taken, _) = operator.queue.take_next().await;
    // The worker got no fencing token. Now the shard is acquired, and triggers the cluster while the
    // worker still has it.
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
        drop(operator.context.drift_histories.lock().insert(key.clone(), DriftHistory::default()));
    };
    let lead = || operator.lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
    let mut before = operator.lease_terms.led_shards();
    lead();
    operator.forget_lost_shards(&mut before);
    remember();
    operator.forget_lost_shards(&mut before);
    assert!(remembered(), "the shard is still led");
    operator.lease_terms.stop_leading(0);
    operator.forget_lost_shards(&mut before);
    assert!(!remembered());
    // A reconciliation that was running ends after the lease.
    remember();
    lead();
    operator.forget_lost_shards(&mut before);
    assert!(!remembered());
}

#[tokio::test]
async fn panicking_reconcile_keeps_worker_and_backs_off() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator_with_api(&clock, || async { panic!("a defect") });
    let (key, observed) = watched_example();
    let mut list_progress = ListProgress::default();
    let stores = &operator.context.stores;
    drop(stores.apply_watch_update(
        WatchedKind::HostedClusters,
        observed,
        &mut list_progress,
        Duration::ZERO,
    ));
    operator.lease_terms.lead_until(0, clock.monotonic() + Duration::from_hours(1));
    operator.queue.enqueue(&key, ReconcileTrigger::SpecChanged);
    let (taken, reconcile_id) = operator.queue.take_next().await;
    operator.reconcile_cluster(&taken, reconcile_id).await;
    let mut next = std::pin::pin!(operator.queue.take_next());
    assert!(futures::poll!(&mut next).is_pending(), "not immediately");
    clock.advance(Duration::from_mins(1));
    assert_eq!(next.await.0, key);
}

/// The example cluster as a watch update.
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
    // Every watch panics.
    let operator = operator_with_api(&clock, || async { panic!("a defect") });
    operator.run(std::future::pending()).await;
}
