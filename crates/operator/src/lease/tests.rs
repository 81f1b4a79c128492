use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use lanyard_clock::ManualClock;
use parking_lot::Mutex;

use super::*;

/// A fake API server for leases with resource versions and conflicts.
#[derive(Debug, Default)]
struct FakeLeaseServer {
    leases: BTreeMap<String, Value>,
    version: u64,
}

impl FakeLeaseServer {
    fn respond(&mut self, method: &Method, name: &str, body: Value) -> (StatusCode, Value) {
        self.version += 1;
        match *method {
            Method::GET => {
                let items: Vec<_> = self.leases.values().collect();
                (StatusCode::OK, json!({"metadata": {}, "items": items}))
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.leases.contains_key(&name) {
                    return conflict_response();
                }
                (StatusCode::CREATED, self.store_lease(&name, body))
            }
            Method::PATCH => {
                let Some(mut lease) = self.leases.get(name).cloned() else {
                    return conflict_response();
                };
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return conflict_response();
                }
                lease["spec"] = body["spec"].clone();
                (StatusCode::OK, self.store_lease(name, lease))
            }
            Method::DELETE => {
                self.leases.remove(name);
                (StatusCode::OK, json!({"kind": "Status", "status": "Success"}))
            }
            _ => unreachable!("{method}"),
        }
    }

    fn store_lease(&mut self, name: &str, mut lease: Value) -> Value {
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.leases.insert(name.to_owned(), lease.clone());
        lease
    }

    fn shard_holders(&self) -> Vec<(&str, &str)> {
        let held = self.leases.iter().filter(|(name, _)| name.contains("-shard-"));
        held.filter_map(|(name, it)| Some((&**name, it["spec"]["holderIdentity"].as_str()?)))
            .collect()
    }
}

fn conflict_response() -> (StatusCode, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409});
    (StatusCode::CONFLICT, status)
}

/// Replicas that share a fake server, with a random order of requests.
#[derive(Clone)]
struct LeaseElectionFixture {
    server: Arc<Mutex<FakeLeaseServer>>,
    clock: ManualClock,
    rng: Arc<Mutex<fastrand::Rng>>,
    /// Whether time passes during requests.
    is_slow: bool,
    /// The lease whose renewal is delayed.
    blocked_renewal: Arc<Mutex<Option<&'static str>>>,
}

impl LeaseElectionFixture {
    fn new(seed: u64, is_slow: bool) -> Self {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { server: Arc::default(), clock, rng, is_slow, blocked_renewal: Arc::default() }
    }

    fn candidate(&self, identity: &str, shards: u32) -> LeaseCandidate {
        let fixture = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fixture = fixture.clone();
            async move { Ok::<_, Infallible>(fixture.serve(request).await) }
        });
        let clock: SharedClock = Arc::new(self.clock.clone());
        let api = KubernetesApi::from_client(
            kube::Client::new(service, "lanyard"),
            SharedClock::clone(&clock),
        );
        let settings = LeaseSettings {
            namespace: "lanyard".to_owned(),
            name: "lanyard.prod".to_owned(),
            identity: identity.to_owned(),
            shards,
            duration: LEASE_DURATION,
        };
        LeaseCandidate::new(api, settings, LeaseTerms::without_shards(shards, clock))
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        self.delay_request().await;
        while parts.method == Method::PATCH && *self.blocked_renewal.lock() == Some(&*name) {
            tokio::task::yield_now().await;
        }
        let (status, answer) = self.server.lock().respond(&parts.method, &name, body);
        self.delay_request().await;
        let body = Body::from(serde_json::to_vec(&answer).unwrap());
        Response::builder().status(status).body(body).unwrap()
    }

    /// Delays a request, so that other tasks can run.
    async fn delay_request(&self) {
        let turns = self.rng.lock().u32(0..6);
        for _ in 0..turns {
            let passes = self.is_slow && self.rng.lock().u32(0..SLOW_REQUEST_ODDS) == 0;
            self.clock.advance(if passes { JUST_BELOW_TIMEOUT } else { Duration::ZERO });
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn new_shard_count_waits_for_old_leases() {
    let fixture = LeaseElectionFixture::new(1, false);
    let (mut old, mut new) = (fixture.candidate("old", 2), fixture.candidate("new", 3));
    assert!(old.run_election_round().await);
    for _ in 0..3 {
        fixture.clock.advance(LEASE_DURATION / 3);
        assert!(old.run_election_round().await && new.run_election_round().await);
        assert_eq!((old.lease_terms.led_count(), new.lease_terms.led_count()), (2, 0));
    }
    // A replica with another shard count does not reduce the share; its shards would stay unheld.
    assert_eq!(fixture.server.lock().shard_holders().len(), 2);
    old.run(std::future::ready(())).await;
    assert!(new.run_election_round().await);
    assert_eq!(new.lease_terms.led_count(), 3);
    let expected = [0, 1, 2].map(|shard| (format!("lanyard.prod-shard-{shard}-of-3"), "new"));
    let server = fixture.server.lock();
    assert_eq!(
        server.shard_holders(),
        expected.each_ref().map(|(name, holder)| (&**name, *holder))
    );
}

#[tokio::test]
async fn resharding_waits_until_leases_of_dead_replica_expire() {
    let fixture = LeaseElectionFixture::new(1, false);
    let (mut old, mut new) = (fixture.candidate("old", 2), fixture.candidate("new", 3));
    old.run_election_round().await;
    new.run_election_round().await;
    drop(old);
    fixture.clock.advance(LEASE_DURATION);
    new.run_election_round().await;
    assert_eq!(new.lease_terms.led_count(), 0);
    fixture.clock.advance(Duration::from_millis(1));
    new.run_election_round().await;
    assert_eq!(new.lease_terms.led_count(), 3);
    // The old leases are deleted later, and none of its own.
    fixture.clock.advance(STALE_LEASE_RETENTION + LEASE_DURATION);
    new.run_election_round().await;
    new.run_election_round().await;
    let server = fixture.server.lock();
    assert!(server.leases.keys().all(|name| name.contains("-of-3")), "{:?}", server.leases);
    assert_eq!(new.lease_terms.led_count(), 3);
}

#[tokio::test]
async fn late_renewal_does_not_lead_after_takeover() {
    let fixture = LeaseElectionFixture::new(1, false);
    let (mut old, mut new) = (fixture.candidate("old", 1), fixture.candidate("new", 2));
    old.run_election_round().await;
    new.run_election_round().await;
    fixture.clock.advance(Duration::from_secs(14));
    *fixture.blocked_renewal.lock() = Some("lanyard.prod-shard-0-of-1");
    let take_over = async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        fixture.clock.advance(Duration::from_secs(2));
        new.run_election_round().await;
        assert_eq!(new.lease_terms.led_count(), 2);
        *fixture.blocked_renewal.lock() = None;
    };
    tokio::join!(old.run_election_round(), take_over);
    assert_eq!(fixture.server.lock().shard_holders().len(), 2, "the late renewal was released");
    assert_eq!((old.lease_terms.led_count(), new.lease_terms.led_count()), (0, 2));
}

#[tokio::test]
async fn replicas_with_different_shard_counts_never_lead_together() {
    let mut conflicts = 0;
    for seed in 0..300 {
        let fixture = LeaseElectionFixture::new(seed, true);
        let mut two = fixture.candidate("two", 2);
        let mut three = fixture.candidate("three", 3);
        let is_alone =
            |two: &LeaseTerms, three: &LeaseTerms| two.led_count() == 0 || three.led_count() == 0;
        let (of_two, of_three) = (two.lease_terms.clone(), three.lease_terms.clone());
        let watch = async || {
            for _ in 0..100 {
                assert!(is_alone(&of_two, &of_three), "seed {seed}");
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(two.run_election_round(), three.run_election_round(), watch());
        conflicts += u32::from(of_two.led_count() + of_three.led_count() == 0);
        // A lease that expires during its renewal is renewed too late.
        for _ in 0..6 {
            fixture.clock.advance(
                fixture
                    .rng
                    .lock()
                    .choice([LEASE_DURATION / 3, LEASE_DURATION, 2 * LEASE_DURATION])
                    .unwrap(),
            );
            tokio::join!(two.run_election_round(), three.run_election_round(), watch());
        }
        drop(three);
        let mut has_led = false;
        for _ in 0..12 {
            fixture.clock.advance(LEASE_DURATION / 3);
            two.run_election_round().await;
            has_led |= of_two.led_count() > 0;
        }
        assert!(has_led, "seed {seed}: the remaining replica leads in the end");
    }
    assert!(conflicts > 0, "both acquired at the same time and released");
}

const LEASE_DURATION: Duration = Duration::from_secs(15);
/// One of this many requests is slow, and takes this long.
const SLOW_REQUEST_ODDS: u32 = 20;
const JUST_BELOW_TIMEOUT: Duration = Duration::from_millis(3_900);
