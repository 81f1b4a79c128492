use std::convert::Infallible;

use http_body_util::BodyExt as _;
use kube::client::Body;
use lanyard_api::canary_facts::HopFailure;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_kubernetes::KubernetesApi;
use lanyard_vocabulary::Component;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// An API server that knows one pod, and keeps what it is asked.
#[derive(Debug, Default)]
struct Server {
    annotations: Value,
    asked: Vec<(String, String, Value)>,
    refuses: u16,
}

impl Server {
    fn answer(&mut self, method: &str, uri: &str, body: Value) -> (u16, Value) {
        self.asked.push((method.to_owned(), uri.to_owned(), body.clone()));
        if self.refuses != 0 {
            let reason = if self.refuses == 403 { "Forbidden" } else { "InternalError" };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": self.refuses, "reason": reason, "message": "no",
                "details": {"name": "canary-1"}});
            return (self.refuses, status);
        }
        if method == "PATCH" {
            let wanted = body["metadata"]["annotations"].as_object().unwrap();
            let annotations = self.annotations.as_object_mut().unwrap();
            annotations.extend(wanted.clone());
        }
        let is_whole = uri.contains("/status?");
        let (version, kind) =
            if is_whole { ("v1", "Pod") } else { ("meta.k8s.io/v1", "PartialObjectMetadata") };
        let pod = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "canary-1", "namespace": "clusters-harbour",
                "annotations": self.annotations}});
        (200, pod)
    }

    fn writes(&self) -> usize {
        self.asked.iter().filter(|(method, ..)| method == "PATCH").count()
    }
}

struct World {
    server: Arc<Mutex<Server>>,
    clock: ManualClock,
    facts: watch::Sender<Option<CanaryFacts>>,
    metrics: CanaryMetrics,
    _task: tokio::task::JoinSet<()>,
}

impl World {
    fn new(annotations: Value) -> Self {
        let server = Arc::new(Mutex::new(Server { annotations, ..Server::default() }));
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let shared: SharedClock = Arc::new(clock.clone());
        let api = KubernetesApi::of_client(client(&server), Arc::clone(&shared));
        let teller = Arc::new(PodAnnotation::new(api, "clusters-harbour", "canary-1"));
        let metrics = CanaryMetrics::new(Component::Disk, Arc::clone(&shared));
        let (facts, receiver) = watch::channel(None);
        let mut task = tokio::task::JoinSet::new();
        task.spawn(Telling::new(teller, shared, metrics.clone()).follow(receiver));
        Self { server, clock, facts, metrics, _task: task }
    }

    async fn pass(&self, seconds: u64) {
        let end = self.clock.monotonic() + Duration::from_secs(seconds);
        while self.clock.monotonic() < end {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            let left = end.saturating_sub(self.clock.monotonic());
            self.clock.advance(self.clock.next_due().unwrap_or(left).min(left));
        }
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    async fn tell(&self, facts: &CanaryFacts) {
        self.facts.send_replace(Some(facts.clone()));
        self.pass(1).await;
    }

    fn stands(&self) -> Option<CanaryFacts> {
        let text = self.server.lock().annotations[CanaryFacts::ANNOTATION].clone();
        serde_json::from_str(text.as_str()?).ok()
    }
}

fn client(server: &Arc<Mutex<Server>>) -> kube::Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (method, uri) = (request.method().to_string(), request.uri().to_string());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (status, answer) = server.lock().answer(&method, &uri, body);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            let answer = http::Response::builder().status(status).body(body).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    kube::Client::new(service, "default")
}

fn good() -> CanaryFacts {
    CanaryFacts {
        component: "disk".to_owned(),
        last_good_hop: Some("granted".to_owned()),
        ..CanaryFacts::default()
    }
}

fn bad(since: &str) -> CanaryFacts {
    let failure = HopFailure {
        hop: "entra-token".to_owned(),
        code: "AADSTS700016".to_owned(),
        message: "refused".to_owned(),
        hint: "see".to_owned(),
        since: since.parse().unwrap(),
    };
    CanaryFacts {
        component: "disk".to_owned(),
        last_good_hop: Some("credential".to_owned()),
        failure: Some(failure),
        ..CanaryFacts::default()
    }
}

#[tokio::test]
async fn one_key_of_one_pod_is_patched_and_only_when_facts_change() {
    let world = World::new(json!({"somebody": "else's"}));
    world.tell(&CanaryFacts { component: "disk".to_owned(), ..CanaryFacts::default() }).await;
    assert_eq!(world.server.lock().writes(), 0, "nothing is known yet");
    world.tell(&good()).await;
    assert_eq!(world.stands(), Some(good()));
    let (_, uri, body) = world.server.lock().asked.last().cloned().unwrap();
    assert!(uri.starts_with("/api/v1/namespaces/clusters-harbour/pods/canary-1/status?"), "{uri}");
    let metadata = body["metadata"].as_object().unwrap();
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["annotations"]);
    assert_eq!(body["metadata"]["annotations"].as_object().unwrap().len(), 1);
    world.pass(600).await;
    world.facts.send_replace(Some(good()));
    world.pass(600).await;
    assert_eq!(world.server.lock().writes(), 1);
    assert_eq!(world.server.lock().annotations["somebody"], "else's");
    let methods: Vec<_> = world.server.lock().asked.iter().map(|it| it.0.clone()).collect();
    assert_eq!(methods, ["GET", "PATCH"], "two verbs, one of each");
}

#[tokio::test]
async fn a_process_that_starts_anew_goes_on_with_what_stands_there() {
    let before = bad("2026-11-20T00:00:00Z");
    let text = serde_json::to_string(&before).unwrap();
    let world = World::new(json!({CanaryFacts::ANNOTATION: text}));
    world.tell(&bad("2026-11-21T12:00:00Z")).await;
    assert_eq!(world.server.lock().writes(), 0);
    assert_eq!(world.stands(), Some(before));
    let world = World::new(json!({CanaryFacts::ANNOTATION: "what no version of ours wrote"}));
    world.tell(&good()).await;
    assert_eq!(world.stands(), Some(good()));
}

#[tokio::test]
async fn what_could_not_be_told_is_told_later_and_only_the_newest_of_it() {
    let world = World::new(json!({}));
    world.tell(&good()).await;
    world.server.lock().refuses = 403;
    world.pass(10).await;
    world.tell(&bad("2026-11-21T12:00:00Z")).await;
    let writes = world.server.lock().writes();
    assert_eq!(writes, 2, "a refusal is not repeated at once");
    world.facts.send_replace(Some(CanaryFacts { component: "file".to_owned(), ..good() }));
    world.pass(70).await;
    assert!(world.server.lock().writes() <= writes + 3);
    world.server.lock().refuses = 0;
    world.pass(40).await;
    assert_eq!(world.stands().unwrap().component, "file");
    let page = lanyard_telemetry::MetricsPage::build(|it| world.metrics.register(it)).render();
    assert!(
        page.contains(r#"lanyard_canary_annotation_writes_total{result="written"} 2"#),
        "{page}"
    );
}

#[tokio::test]
async fn what_changes_together_is_written_together() {
    let world = World::new(json!({}));
    world.tell(&good()).await;
    for number in 0..5 {
        let component = format!("component{number}");
        world.facts.send_replace(Some(CanaryFacts { component, ..good() }));
        world.pass(0).await;
    }
    world.pass(10).await;
    assert_eq!(world.stands().unwrap().component, "component4");
    assert_eq!(world.server.lock().writes(), 2);
}

#[tokio::test]
async fn a_pod_that_may_not_is_told_what_to_allow() {
    let world = World::new(json!({}));
    world.server.lock().refuses = 403;
    let api = KubernetesApi::of_client(client(&world.server), Arc::new(world.clock.clone()));
    let error = PodAnnotation::new(api, "n", "p").apply_facts(&good()).await.unwrap_err();
    assert!(error.to_string().starts_with("could not annotate pod n/p: no (HTTP 403"), "{error}");
    assert!(error.hint.contains("get pods and patch pods/status"));
}
