use std::convert::Infallible;

use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::drift::Memory;
use lanyard_kubernetes::Seen;

use super::*;
use crate::lease::LeaseSettings;

/// An operator of one shard of which nothing is led, at an API that never answers.
fn operator(clock: &ManualClock) -> Operator {
    operator_at(clock, std::future::pending)
}

/// The same, at an API whose answers are these futures.
fn operator_at<F>(
    clock: &ManualClock,
    answer: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Operator
where
    F: Future<Output = Result<http::Response<Body>, Infallible>> + Send + 'static,
{
    let service = tower::service_fn(move |_: http::Request<Body>| answer());
    let client = kube::Client::new(service, "default");
    let api = KubernetesApi::of_client(client, Arc::new(clock.clone()));
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
async fn a_cluster_whose_shard_is_won_while_it_is_left_is_looked_at() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator(&clock);
    let key = ClusterKey::of("clusters", "harbour");
    operator.queue.wake(&key, Wake::Wish);
    let (_, turn) = operator.queue.take().await;
    // Nobody looks at what another replica leads.
    operator.look(&key, turn).await;
    assert_eq!(operator.queue.waiting(), 0);
    operator.queue.wake(&key, Wake::Wish);
    let (taken, _) = operator.queue.take().await;
    // The worker saw no fence; now the shard is won, and its wake comes while the worker still has
    // the cluster.
    operator.tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
    operator.queue.wake(&key, Wake::Wish);
    operator.leave(&taken);
    assert_eq!(operator.queue.waiting(), 1);
}

#[tokio::test]
async fn what_was_remembered_of_a_cluster_ends_with_its_leadership() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator(&clock);
    let key = ClusterKey::of("clusters", "harbour");
    let remembered = || operator.context.memories.lock().contains_key(&key);
    let remember = || drop(operator.context.memories.lock().insert(key.clone(), Memory::default()));
    let lead = || operator.tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
    let mut before = operator.tenures.held();
    lead();
    operator.forget_what_was_lost(&mut before);
    remember();
    operator.forget_what_was_lost(&mut before);
    assert!(remembered(), "it is led as before");
    operator.tenures.end(0);
    operator.forget_what_was_lost(&mut before);
    assert!(!remembered());
    // A look that was on its way ends later than the leadership.
    remember();
    lead();
    operator.forget_what_was_lost(&mut before);
    assert!(!remembered());
}

#[tokio::test]
async fn a_look_that_panics_costs_no_worker_and_is_repeated_slowly() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let operator = operator_at(&clock, || async { panic!("a defect") });
    let (key, seen) = example();
    let mut telling = Telling::default();
    let stores = &operator.context.stores;
    drop(stores.see(WatchedKind::HostedClusters, seen, &mut telling, Duration::ZERO));
    operator.tenures.extend(0, clock.monotonic() + Duration::from_hours(1));
    operator.queue.wake(&key, Wake::Wish);
    let (taken, turn) = operator.queue.take().await;
    operator.look(&taken, turn).await;
    let mut next = std::pin::pin!(operator.queue.take());
    assert!(futures::poll!(&mut next).is_pending(), "not at once");
    clock.advance(Duration::from_mins(1));
    assert_eq!(next.await.0, key);
}

/// The example, as a watch tells of it.
fn example() -> (ClusterKey, Seen) {
    let example = include_str!("../../../../examples/hostedcluster.yaml");
    let example = lanyard_api::HostedCluster::parse_yaml(example).unwrap();
    let mut object = serde_json::to_value(example).unwrap();
    object["metadata"]["uid"] = "u".into();
    let object = serde_json::from_value(object).unwrap();
    (ClusterKey::of("clusters", "harbour"), Seen::There(Box::new(object)))
}

#[tokio::test]
async fn an_operator_that_lost_a_part_of_it_ends() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    // Whoever watches panics.
    let operator = operator_at(&clock, || async { panic!("a defect") });
    operator.run(std::future::pending()).await;
}
