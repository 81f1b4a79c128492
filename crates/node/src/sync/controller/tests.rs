use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_kubernetes::KubernetesApi;
use lanyard_provider::PollInterval;
use lanyard_telemetry::MetricsPage;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::kubernetes::KubeClassCacheSettings;
use crate::metrics::NodeMetrics;
use crate::reporter::{StatusReportError, VolumeStatusUpdate};
use crate::sync::secret_applier::SecretApplyError;

#[derive(Debug, Default)]
struct FakeSecretSyncReporter(Mutex<Vec<PodEventKind>>);

#[async_trait]
impl Reporter for FakeSecretSyncReporter {
    async fn report_status(&self, _report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        Ok(())
    }

    fn emit_event(&self, notice: PodEvent) {
        self.0.lock().push(notice.kind);
    }

    fn forget_volume(&self, _target: &std::path::Path) {}
}

type ApiResponseFuture = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

/// A controller that watches one status, and whose reconciles end with given outcomes.
struct SecretSyncFixture {
    clock: ManualClock,
    reporter: Arc<FakeSecretSyncReporter>,
    sync: SecretSync,
    status: SecretProviderClassPodStatus,
}

impl SecretSyncFixture {
    /// Its API server never responds.
    fn new() -> Self {
        let mut scene = Self::with_api(|_| Box::pin(std::future::pending()));
        scene.sync.track_pod_status(scene.status.clone());
        scene
    }

    /// It watches no status yet.
    fn with_api(answer: impl Fn(&str) -> ApiResponseFuture + Send + 'static) -> Self {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            answer(&request.uri().to_string())
        });
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let client = kube::Client::new(service, "default");
        let api =
            NodeKubernetesApi::new(KubernetesApi::from_client(client, Arc::new(clock.clone())));
        let classes = Arc::new(KubeClassCache::new(api.clone(), KubeClassCacheSettings::default()));
        let reporter = Arc::new(FakeSecretSyncReporter::default());
        let settings = SecretSyncSettings {
            node: "node".to_owned(),
            driver: "secrets-store.csi.k8s.io".to_owned(),
            kubelet_directory: "/var/lib/kubelet".into(),
            interval: PollInterval::DEFAULT,
        };
        let shared: Arc<dyn Reporter> = Arc::<FakeSecretSyncReporter>::clone(&reporter);
        let sync = SecretSync::new(api, classes, shared, settings);
        let status: SecretProviderClassPodStatus =
            serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "p-n-c"}}))
                .unwrap();
        Self { clock, reporter, sync, status }
    }

    /// Finishes the next reconcile with this outcome and returns the emitted messages.
    fn finish_next_reconcile(
        &mut self,
        outcome: Result<SecretSyncOutcome, SecretSyncError>,
    ) -> Vec<PodEventKind> {
        self.clock.advance(Duration::from_mins(6));
        let attempt = self.sync.schedule.start_due(self.sync.now()).unwrap();
        self.sync.finish_reconcile(&attempt, &self.status, outcome);
        std::mem::take(&mut *self.reporter.0.lock())
    }
}

fn failure() -> Result<SecretSyncOutcome, SecretSyncError> {
    Err(SecretSyncError::ApplySecret(SecretApplyError::TypeMismatch {
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        wanted: "Opaque".to_owned(),
    }))
}

fn reconciled<const N: usize>(secrets: [(&str, SecretApplyOutcome); N]) -> SecretSyncOutcome {
    let secrets = secrets.map(|(name, ensured)| (name.to_owned(), ensured)).into();
    SecretSyncOutcome::Reconciled { secrets, report_skipped_after: Duration::from_mins(10) }
}

fn in_sync() -> SecretSyncOutcome {
    reconciled([("s", SecretApplyOutcome::InSync)])
}

const SKIPPED_OLDER: SecretApplyOutcome =
    SecretApplyOutcome::SkippedOlder { content_since: Timestamp::UNIX_EPOCH };
const FAILED: PodEventKind = PodEventKind::Failed(OutcomeCode::SecretNotSynced);
const RECOVERED: PodEventKind = PodEventKind::Recovered(OutcomeCode::SecretNotSynced);

#[tokio::test]
async fn failures_are_reported_each_time_and_recovery_once() {
    let mut scene = SecretSyncFixture::new();
    for _ in 0..3 {
        assert_eq!(scene.finish_next_reconcile(failure()), [FAILED]);
    }
    assert_eq!(scene.finish_next_reconcile(Ok(in_sync())), [RECOVERED]);
    assert_eq!(scene.finish_next_reconcile(Ok(in_sync())), []);
}

#[tokio::test]
async fn removing_secret_objects_emits_no_recovery() {
    let mut scene = SecretSyncFixture::new();
    assert_eq!(scene.finish_next_reconcile(failure()), [FAILED]);
    assert_eq!(scene.finish_next_reconcile(Ok(SecretSyncOutcome::NoSecretObjects)), []);
    assert_eq!(scene.finish_next_reconcile(Ok(in_sync())), []);
}

#[tokio::test]
async fn skipped_older_content_is_reported_after_a_delay() {
    let mut scene = SecretSyncFixture::new();
    let skipped = || Ok(reconciled([("s", SKIPPED_OLDER)]));
    assert_eq!(scene.finish_next_reconcile(skipped()), []);
    assert_eq!(scene.finish_next_reconcile(skipped()), []);
    assert_eq!(scene.finish_next_reconcile(skipped()), [FAILED]);
    assert_eq!(scene.finish_next_reconcile(Ok(in_sync())), [RECOVERED]);
    assert_eq!(scene.finish_next_reconcile(skipped()), []);
}

#[tokio::test]
async fn outcomes_of_secrets_are_reported_independently() {
    let mut scene = SecretSyncFixture::new();
    let taken = || SecretApplyOutcome::OverwroteClass { class: "d".to_owned() };
    let mixed = || Ok(reconciled([("s", SKIPPED_OLDER), ("t", SecretApplyOutcome::InSync)]));
    assert_eq!(
        scene.finish_next_reconcile(Ok(reconciled([
            ("t", taken()),
            ("u", SecretApplyOutcome::InSync)
        ]))),
        [FAILED]
    );
    assert_eq!(scene.finish_next_reconcile(mixed()), [], "nothing has recovered yet");
    // A Secret that is newly skipped has not been skipped for as long.
    assert_eq!(
        scene.finish_next_reconcile(Ok(reconciled([
            ("t", SKIPPED_OLDER),
            ("s", SecretApplyOutcome::InSync)
        ]))),
        []
    );
    for _ in 0..2 {
        assert_eq!(scene.finish_next_reconcile(mixed()), []);
    }
    assert_eq!(scene.finish_next_reconcile(mixed()), [FAILED]);
    assert_eq!(scene.finish_next_reconcile(Ok(in_sync())), [RECOVERED]);
}

#[tokio::test]
async fn failing_list_backs_off() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let scene = SecretSyncFixture::with_api(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden"});
        let body = Body::from(serde_json::to_vec(&status).unwrap());
        Box::pin(async { Ok(http::Response::builder().status(403).body(body).unwrap()) })
    });
    let clock = scene.clock.clone();
    let run = tokio::spawn(scene.sync.run());
    for _ in 0..20 {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        clock.advance(clock.time_until_next_deadline().unwrap());
    }
    run.abort();
    assert_eq!(requests.load(Ordering::Relaxed), 20);
    // It would be half a second each time if the back-off were reset.
    assert!(clock.monotonic() > Duration::from_secs(150), "{:?}", clock.monotonic());
}

#[tokio::test]
async fn forbidden_watch_is_reported_until_it_succeeds() {
    let may_watch = Arc::new(AtomicBool::new(false));
    let allowed = Arc::clone(&may_watch);
    let scene = SecretSyncFixture::with_api(move |uri| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [],
            "metadata": {"resourceVersion": "7"}});
        let forbidden = json!({"kind": "Status", "code": 403, "reason": "Forbidden",
            "message": "no right"});
        let (status, body) = match (uri.contains("watch="), allowed.load(Ordering::Relaxed)) {
            (false, _) => (200, list.to_string()),
            (true, false) => (403, forbidden.to_string()),
            // Every watch ends; this one ends immediately.
            (true, true) => (200, String::new()),
        };
        let body = Body::from(body.into_bytes());
        Box::pin(async move { Ok(http::Response::builder().status(status).body(body).unwrap()) })
    });
    let (clock, problem) = (scene.clock.clone(), scene.sync.health());
    let metrics = NodeMetrics::new(Arc::new(clock.clone()));
    metrics.watch_sync(scene.sync.health());
    let page = MetricsPage::build(|registry| metrics.register(registry));
    let is_counted = |problems: u8| {
        let line = format!("lanyard_node_sync_problem {problems}");
        page.render().lines().any(|it| it == line)
    };
    let run = tokio::spawn(scene.sync.run());
    let pass = async |tries: usize| {
        for _ in 0..tries {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            clock.advance(clock.time_until_next_deadline().unwrap());
        }
    };
    // A starting API server rejects requests for a moment.
    pass(4).await;
    assert!(problem.warning().is_none() && is_counted(0));
    pass(8).await;
    let warning = problem.warning().unwrap();
    assert!(warning.contains("HTTP 403") && warning.contains("ClusterRole"), "{warning}");
    assert!(is_counted(1) && clock.monotonic() < Duration::from_mins(5));
    pass(50).await;
    assert_eq!(problem.warning(), Some(warning), "repeated rejections keep the first start");
    may_watch.store(true, Ordering::Relaxed);
    pass(2).await;
    assert!(problem.warning().is_none() && is_counted(0));
    run.abort();
}

#[tokio::test]
async fn statuses_missing_from_a_list_are_forgotten() {
    let mut scene = SecretSyncFixture::with_api(|_| Box::pin(std::future::pending()));
    let there = |name: &str| {
        let object = json!({"metadata": {"namespace": "n", "name": name}});
        WatchUpdate::Applied(Box::new(serde_json::from_value(object).unwrap()))
    };
    let gone = |name: &str| {
        let WatchUpdate::Applied(object) = there(name) else { unreachable!() };
        WatchUpdate::Deleted(object)
    };
    let mut listed = None;
    let mut handle = |scene: &mut SecretSyncFixture, update| {
        scene.sync.handle_watch_event(update, &mut listed);
        scene.sync.pod_statuses.keys().map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    for observed in
        [WatchUpdate::ListStarted, there("a"), there("b"), WatchUpdate::ListCompleted, there("c")]
    {
        handle(&mut scene, observed);
    }
    assert_eq!(handle(&mut scene, gone("b")), ["a", "c"]);
    // An interrupted list says nothing about the statuses that it did not reach.
    handle(&mut scene, WatchUpdate::ListStarted);
    assert_eq!(handle(&mut scene, WatchUpdate::ListStarted), ["a", "c"]);
    handle(&mut scene, there("c"));
    assert_eq!(handle(&mut scene, WatchUpdate::ListCompleted), ["c"]);
}
