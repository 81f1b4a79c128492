use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use lanyard_clock::ManualClock;
use parking_lot::Mutex;

use super::*;

/// What an API server does for leases: versions, and refusal of changes to older ones.
#[derive(Debug, Default)]
struct Server {
    leases: BTreeMap<String, Value>,
    version: u64,
}

impl Server {
    fn answer(&mut self, method: &Method, name: &str, body: Value) -> (StatusCode, Value) {
        self.version += 1;
        match *method {
            Method::GET => {
                let items: Vec<_> = self.leases.values().collect();
                (StatusCode::OK, json!({"metadata": {}, "items": items}))
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.leases.contains_key(&name) {
                    return refusal();
                }
                (StatusCode::CREATED, self.keep(&name, body))
            }
            Method::PATCH => {
                let Some(mut lease) = self.leases.get(name).cloned() else { return refusal() };
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return refusal();
                }
                lease["spec"] = body["spec"].clone();
                (StatusCode::OK, self.keep(name, lease))
            }
            Method::DELETE => {
                self.leases.remove(name);
                (StatusCode::OK, json!({"kind": "Status", "status": "Success"}))
            }
            _ => unreachable!("{method}"),
        }
    }

    fn keep(&mut self, name: &str, mut lease: Value) -> Value {
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.leases.insert(name.to_owned(), lease.clone());
        lease
    }

    fn holders(&self) -> Vec<(&str, &str)> {
        let held = self.leases.iter().filter(|(name, _)| name.contains("-shard-"));
        held.filter_map(|(name, it)| Some((&**name, it["spec"]["holderIdentity"].as_str()?)))
            .collect()
    }
}

fn refusal() -> (StatusCode, Value) {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409});
    (StatusCode::CONFLICT, status)
}

/// Leases at one server, and replicas whose requests come in an order of chance.
#[derive(Clone)]
struct Stage {
    server: Arc<Mutex<Server>>,
    clock: ManualClock,
    chance: Arc<Mutex<fastrand::Rng>>,
    /// Whether time passes while requests are on their way.
    is_slow: bool,
    /// The lease whose renewal stays on its way.
    held: Arc<Mutex<Option<&'static str>>>,
}

impl Stage {
    fn new(seed: u64, is_slow: bool) -> Self {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { server: Arc::default(), clock, chance, is_slow, held: Arc::default() }
    }

    fn candidate(&self, identity: &str, shards: u32) -> Candidate {
        let stage = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let stage = stage.clone();
            async move { Ok::<_, Infallible>(stage.serve(request).await) }
        });
        let clock: SharedClock = Arc::new(self.clock.clone());
        let api = KubernetesApi::of_client(
            kube::Client::new(service, "lanyard"),
            SharedClock::clone(&clock),
        );
        let settings = LeaseSettings {
            namespace: "lanyard".to_owned(),
            name: "lanyard.prod".to_owned(),
            identity: identity.to_owned(),
            shards,
            duration: LASTS,
        };
        Candidate::new(api, settings, Tenures::none(shards, clock))
    }

    async fn serve(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        self.wait().await;
        while parts.method == Method::PATCH && *self.held.lock() == Some(&*name) {
            tokio::task::yield_now().await;
        }
        let (status, answer) = self.server.lock().answer(&parts.method, &name, body);
        self.wait().await;
        let body = Body::from(serde_json::to_vec(&answer).unwrap());
        Response::builder().status(status).body(body).unwrap()
    }

    /// The way takes a while, in which others may go on.
    async fn wait(&self) {
        let turns = self.chance.lock().u32(0..6);
        for _ in 0..turns {
            let passes = self.is_slow && self.chance.lock().u32(0..SLOW_WAYS) == 0;
            self.clock.advance(if passes { SHORT_OF_PATIENCE } else { Duration::ZERO });
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_change_of_the_number_of_shards_waits_for_those_with_the_former_one() {
    let stage = Stage::new(1, false);
    let (mut old, mut new) = (stage.candidate("old", 2), stage.candidate("new", 3));
    assert!(old.tick().await);
    for _ in 0..3 {
        stage.clock.advance(LASTS / 3);
        assert!(old.tick().await && new.tick().await);
        assert_eq!((old.tenures.led(), new.tenures.led()), (2, 0));
    }
    // The other one counts for no share: its part would be nobody's.
    assert_eq!(stage.server.lock().holders().len(), 2);
    old.run(std::future::ready(())).await;
    assert!(new.tick().await);
    assert_eq!(new.tenures.led(), 3);
    let expected = [0, 1, 2].map(|shard| (format!("lanyard.prod-shard-{shard}-of-3"), "new"));
    let server = stage.server.lock();
    assert_eq!(server.holders(), expected.each_ref().map(|(name, holder)| (&**name, *holder)));
}

#[tokio::test]
async fn one_that_vanished_with_the_former_number_is_waited_for_until_its_leases_end() {
    let stage = Stage::new(1, false);
    let (mut old, mut new) = (stage.candidate("old", 2), stage.candidate("new", 3));
    old.tick().await;
    new.tick().await;
    drop(old);
    stage.clock.advance(LASTS);
    new.tick().await;
    assert_eq!(new.tenures.led(), 0);
    stage.clock.advance(Duration::from_millis(1));
    new.tick().await;
    assert_eq!(new.tenures.led(), 3);
    // What it left is swept later, and nothing of our own.
    stage.clock.advance(FORGET_AFTER + LASTS);
    new.tick().await;
    new.tick().await;
    let server = stage.server.lock();
    assert!(server.leases.keys().all(|name| name.contains("-of-3")), "{:?}", server.leases);
    assert_eq!(new.tenures.led(), 3);
}

#[tokio::test]
async fn a_renewal_that_comes_too_late_does_not_lead_beside_who_took_over() {
    let stage = Stage::new(1, false);
    let (mut old, mut new) = (stage.candidate("old", 1), stage.candidate("new", 2));
    old.tick().await;
    new.tick().await;
    stage.clock.advance(Duration::from_secs(14));
    *stage.held.lock() = Some("lanyard.prod-shard-0-of-1");
    let take_over = async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        stage.clock.advance(Duration::from_secs(2));
        new.tick().await;
        assert_eq!(new.tenures.led(), 2);
        *stage.held.lock() = None;
    };
    tokio::join!(old.tick(), take_over);
    assert_eq!(stage.server.lock().holders().len(), 2, "what came too late was given back");
    assert_eq!((old.tenures.led(), new.tenures.led()), (0, 2));
}

#[tokio::test]
async fn replicas_that_divide_the_clusters_otherwise_never_lead_at_the_same_time() {
    let mut contests = 0;
    for seed in 0..300 {
        let stage = Stage::new(seed, true);
        let mut two = stage.candidate("two", 2);
        let mut three = stage.candidate("three", 3);
        let is_alone = |two: &Tenures, three: &Tenures| two.led() == 0 || three.led() == 0;
        let (of_two, of_three) = (two.tenures.clone(), three.tenures.clone());
        let watch = async || {
            for _ in 0..100 {
                assert!(is_alone(&of_two, &of_three), "seed {seed}");
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(two.tick(), three.tick(), watch());
        contests += u32::from(of_two.led() + of_three.led() == 0);
        // A lease that runs out while its renewal is on the way is renewed too late.
        for _ in 0..6 {
            stage.clock.advance(stage.chance.lock().choice([LASTS / 3, LASTS, 2 * LASTS]).unwrap());
            tokio::join!(two.tick(), three.tick(), watch());
        }
        drop(three);
        let mut has_led = false;
        for _ in 0..12 {
            stage.clock.advance(LASTS / 3);
            two.tick().await;
            has_led |= of_two.led() > 0;
        }
        assert!(has_led, "seed {seed}: who is left leads in the end");
    }
    assert!(contests > 0, "both took at the same time and gave way");
}

const LASTS: Duration = Duration::from_secs(15);
/// One of so many ways is slow, and takes so long.
const SLOW_WAYS: u32 = 20;
const SHORT_OF_PATIENCE: Duration = Duration::from_millis(3_900);
