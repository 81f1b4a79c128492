use std::convert::Infallible;

use http_body_util::BodyExt as _;
use kube::client::Body;
use lanyard_api::canary_report::HopFailure;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_kubernetes::KubernetesApi;
use lanyard_vocabulary::Component;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// An API server with one pod, which records its requests.
#[derive(Debug, Default)]
struct FakePodServer {
    annotations: Value,
    requests: Vec<(String, String, Value)>,
    failure_status: u16,
}

impl FakePodServer {
    fn respond(&mut self, method: &str, uri: &str, body: Value) -> (u16, Value) {
        self.requests.push((method.to_owned(), uri.to_owned(), body.clone()));
        if self.failure_status != 0 {
            let reason = if self.failure_status == 403 { "Forbidden" } else { "InternalError" };
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": self.failure_status, "reason": reason, "message": "no",
                "details": {"name": "canary-1"}});
            return (self.failure_status, status);
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

    fn write_count(&self) -> usize {
        self.requests.iter().filter(|(method, ..)| method == "PATCH").count()
    }
}

struct PodAnnotationFixture {
    server: Arc<Mutex<FakePodServer>>,
    clock: ManualClock,
    facts: watch::Sender<Option<CanaryStatusReport>>,
    metrics: CanaryMetrics,
    _task: tokio::task::JoinSet<()>,
}

impl PodAnnotationFixture {
    fn new(annotations: Value) -> Self {
        let server =
            Arc::new(Mutex::new(FakePodServer { annotations, ..FakePodServer::default() }));
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let shared: SharedClock = Arc::new(clock.clone());
        let api = KubernetesApi::from_client(kube_client(&server), Arc::clone(&shared));
        let sink = Arc::new(PodAnnotation::new(api, "clusters-harbour", "canary-1"));
        let metrics = CanaryMetrics::new(Component::Disk, Arc::clone(&shared));
        let (facts, receiver) = watch::channel(None);
        let mut task = tokio::task::JoinSet::new();
        task.spawn(FactsPublisher::new(sink, shared, metrics.clone()).publish_changes(receiver));
        Self { server, clock, facts, metrics, _task: task }
    }

    async fn advance_seconds(&self, seconds: u64) {
        let end = self.clock.monotonic() + Duration::from_secs(seconds);
        while self.clock.monotonic() < end {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            let left = end.saturating_sub(self.clock.monotonic());
            self.clock.advance(self.clock.time_until_next_deadline().unwrap_or(left).min(left));
        }
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    async fn publish(&self, facts: &CanaryStatusReport) {
        self.facts.send_replace(Some(facts.clone()));
        self.advance_seconds(1).await;
    }

    fn published_facts(&self) -> Option<CanaryStatusReport> {
        let text = self.server.lock().annotations[CanaryStatusReport::REPORT_ANNOTATION].clone();
        serde_json::from_str(text.as_str()?).ok()
    }
}

fn kube_client(server: &Arc<Mutex<FakePodServer>>) -> kube::Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (method, uri) = (request.method().to_string(), request.uri().to_string());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (status, answer) = server.lock().respond(&method, &uri, body);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            let answer = http::Response::builder().status(status).body(body).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    kube::Client::new(service, "default")
}

fn good_facts() -> CanaryStatusReport {
    CanaryStatusReport {
        component: "disk".to_owned(),
        last_good_hop: Some("granted".to_owned()),
        ..CanaryStatusReport::default()
    }
}

fn failed_facts(since: &str) -> CanaryStatusReport {
    let failure = HopFailure {
        hop: "entra-token".to_owned(),
        code: "AADSTS700016".to_owned(),
        message: "refused".to_owned(),
        hint: "see".to_owned(),
        since: since.parse().unwrap(),
    };
    CanaryStatusReport {
        component: "disk".to_owned(),
        last_good_hop: Some("credential".to_owned()),
        failure: Some(failure),
        ..CanaryStatusReport::default()
    }
}

#[tokio::test]
async fn only_the_facts_annotation_is_patched_on_change() {
    let fixture = PodAnnotationFixture::new(json!({"other": "value"}));
    fixture
        .publish(&CanaryStatusReport {
            component: "disk".to_owned(),
            ..CanaryStatusReport::default()
        })
        .await;
    assert_eq!(fixture.server.lock().write_count(), 0, "there are no results yet");
    fixture.publish(&good_facts()).await;
    assert_eq!(fixture.published_facts(), Some(good_facts()));
    let (_, uri, body) = fixture.server.lock().requests.last().cloned().unwrap();
    assert!(uri.starts_with("/api/v1/namespaces/clusters-harbour/pods/canary-1/status?"), "{uri}");
    let metadata = body["metadata"].as_object().unwrap();
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["annotations"]);
    assert_eq!(body["metadata"]["annotations"].as_object().unwrap().len(), 1);
    fixture.advance_seconds(600).await;
    fixture.facts.send_replace(Some(good_facts()));
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.server.lock().write_count(), 1);
    assert_eq!(fixture.server.lock().annotations["other"], "value");
    let methods: Vec<_> = fixture.server.lock().requests.iter().map(|it| it.0.clone()).collect();
    assert_eq!(methods, ["GET", "PATCH"], "one request of each verb");
}

#[tokio::test]
async fn restarted_canary_continues_from_annotation() {
    let before = failed_facts("2026-11-20T00:00:00Z");
    let text = serde_json::to_string(&before).unwrap();
    let fixture = PodAnnotationFixture::new(json!({CanaryStatusReport::REPORT_ANNOTATION: text}));
    fixture.publish(&failed_facts("2026-11-21T12:00:00Z")).await;
    assert_eq!(fixture.server.lock().write_count(), 0);
    assert_eq!(fixture.published_facts(), Some(before));
    let fixture = PodAnnotationFixture::new(
        json!({CanaryStatusReport::REPORT_ANNOTATION: "not a status report"}),
    );
    fixture.publish(&good_facts()).await;
    assert_eq!(fixture.published_facts(), Some(good_facts()));
}

#[tokio::test]
async fn failed_write_is_retried_with_newest_facts() {
    let fixture = PodAnnotationFixture::new(json!({}));
    fixture.publish(&good_facts()).await;
    fixture.server.lock().failure_status = 403;
    fixture.advance_seconds(10).await;
    fixture.publish(&failed_facts("2026-11-21T12:00:00Z")).await;
    let writes = fixture.server.lock().write_count();
    assert_eq!(writes, 2, "a failed write is not retried immediately");
    fixture
        .facts
        .send_replace(Some(CanaryStatusReport { component: "file".to_owned(), ..good_facts() }));
    fixture.advance_seconds(70).await;
    assert!(fixture.server.lock().write_count() <= writes + 3);
    fixture.server.lock().failure_status = 0;
    fixture.advance_seconds(40).await;
    assert_eq!(fixture.published_facts().unwrap().component, "file");
    let page = lanyard_telemetry::MetricsPage::build(|it| fixture.metrics.register(it)).render();
    assert!(
        page.contains(r#"lanyard_canary_annotation_writes_total{result="written"} 2"#),
        "{page}"
    );
}

#[tokio::test]
async fn simultaneous_changes_are_written_once() {
    let fixture = PodAnnotationFixture::new(json!({}));
    fixture.publish(&good_facts()).await;
    for number in 0..5 {
        let component = format!("component{number}");
        fixture.facts.send_replace(Some(CanaryStatusReport { component, ..good_facts() }));
        fixture.advance_seconds(0).await;
    }
    fixture.advance_seconds(10).await;
    assert_eq!(fixture.published_facts().unwrap().component, "component4");
    assert_eq!(fixture.server.lock().write_count(), 2);
}

#[tokio::test]
async fn forbidden_write_logs_required_permissions() {
    let fixture = PodAnnotationFixture::new(json!({}));
    fixture.server.lock().failure_status = 403;
    let api =
        KubernetesApi::from_client(kube_client(&fixture.server), Arc::new(fixture.clock.clone()));
    let error = PodAnnotation::new(api, "n", "p").apply_facts(&good_facts()).await.unwrap_err();
    assert!(error.to_string().starts_with("could not annotate pod n/p: no (HTTP 403"), "{error}");
    assert!(error.hint.contains("get pods and patch pods/status"));
}
