use std::convert::Infallible;

use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_desired::drift::Memory;
use lanyard_desired::objects::VolumeRefresh;
use lanyard_desired::templates::WorkloadTemplates;

use super::*;
use crate::lease::LeaseSettings;

/// An operator of one shard of which nothing is led, at an API that never answers.
fn operator(clock: &ManualClock) -> Operator {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let client = kube::Client::new(service, "default");
    let api = KubernetesApi::of_client(client, Arc::new(clock.clone()));
    let leases = LeaseSettings {
        namespace: "lanyard".to_owned(),
        name: "lanyard-operator".to_owned(),
        identity: "one".to_owned(),
        shards: 1,
        duration: Duration::from_secs(15),
    };
    let settings = OperatorSettings {
        role: Role::All,
        workers: 1,
        leases: Some(leases),
        vault_reader: None,
        managed_service: None,
        templates: Arc::new(WorkloadTemplates::default()),
        refresh: VolumeRefresh::Polled,
        policy: lanyard_desired::forecast::Policy::default(),
        instance: "test".to_owned(),
    };
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
