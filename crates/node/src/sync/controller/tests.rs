use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_kubernetes::KubernetesApi;
use lanyard_telemetry::MetricsPage;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::kubernetes::KubeClassesSettings;
use crate::metrics::NodeMetrics;
use crate::reporter::{ReportError, VolumeReport};
use crate::sync::secrets::SecretError;

#[derive(Debug, Default)]
struct Ears(Mutex<Vec<NoticeKind>>);

#[async_trait]
impl Reporter for Ears {
    async fn report(&self, _report: &VolumeReport) -> Result<(), ReportError> {
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        self.0.lock().push(notice.kind);
    }

    fn forget(&self, _target: &std::path::Path) {}
}

type Answer = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

/// A controller that follows one status, and whose looks come to what they are told to.
struct Scene {
    clock: ManualClock,
    ears: Arc<Ears>,
    sync: SecretSync,
    status: SecretProviderClassPodStatus,
}

impl Scene {
    /// Its API server is silent.
    fn new() -> Self {
        let mut scene = Self::served_by(|_| Box::pin(std::future::pending()));
        scene.sync.follow(scene.status.clone());
        scene
    }

    /// It follows nothing yet.
    fn served_by(answer: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            answer(&request.uri().to_string())
        });
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let client = kube::Client::new(service, "default");
        let api = NodeApi::new(KubernetesApi::of_client(client, Arc::new(clock.clone())));
        let classes = Arc::new(KubeClasses::new(api.clone(), KubeClassesSettings::default()));
        let ears = Arc::new(Ears::default());
        let settings = SecretSyncSettings {
            node: "node".to_owned(),
            driver: "secrets-store.csi.k8s.io".to_owned(),
            kubelet_directory: "/var/lib/kubelet".into(),
            interval: PollInterval::DEFAULT,
        };
        let reporter: Arc<dyn Reporter> = Arc::<Ears>::clone(&ears);
        let sync = SecretSync::new(api, classes, reporter, settings);
        let status: SecretProviderClassPodStatus =
            serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "p-n-c"}}))
                .unwrap();
        Self { clock, ears, sync, status }
    }

    /// The next look comes to this; gives what was told.
    fn look(&mut self, outcome: Result<Done, SyncError>) -> Vec<NoticeKind> {
        self.clock.advance(Duration::from_mins(6));
        let look = self.sync.schedule.begin(self.sync.now()).unwrap();
        self.sync.end(&look, &self.status, outcome);
        std::mem::take(&mut *self.ears.0.lock())
    }
}

fn failure() -> Result<Done, SyncError> {
    Err(SyncError::Secret(SecretError::OtherType {
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        wanted: "Opaque".to_owned(),
    }))
}

fn looked<const N: usize>(secrets: [(&str, Ensured); N]) -> Done {
    let secrets = secrets.map(|(name, ensured)| (name.to_owned(), ensured)).into();
    Done::Looked { secrets, patience: Duration::from_mins(10) }
}

fn in_step() -> Done {
    looked([("s", Ensured::InStep)])
}

const STOOD_BACK: Ensured = Ensured::StoodBack { written: Timestamp::UNIX_EPOCH };
const FAILED: NoticeKind = NoticeKind::Failed(OutcomeCode::SecretNotSynced);
const RECOVERED: NoticeKind = NoticeKind::Recovered(OutcomeCode::SecretNotSynced);

#[tokio::test]
async fn what_fails_is_told_as_long_as_it_fails_and_its_end_once() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        assert_eq!(scene.look(failure()), [FAILED]);
    }
    assert_eq!(scene.look(Ok(in_step())), [RECOVERED]);
    assert_eq!(scene.look(Ok(in_step())), []);
}

#[tokio::test]
async fn a_class_that_wants_no_secrets_any_more_has_mended_nothing() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(failure()), [FAILED]);
    assert_eq!(scene.look(Ok(Done::NothingToDo)), []);
    assert_eq!(scene.look(Ok(in_step())), []);
}

#[tokio::test]
async fn standing_back_is_told_once_it_lasts() {
    let mut scene = Scene::new();
    let stood_back = || Ok(looked([("s", STOOD_BACK)]));
    assert_eq!(scene.look(stood_back()), []);
    assert_eq!(scene.look(stood_back()), []);
    assert_eq!(scene.look(stood_back()), [FAILED]);
    assert_eq!(scene.look(Ok(in_step())), [RECOVERED]);
    assert_eq!(scene.look(stood_back()), []);
}

#[tokio::test]
async fn what_became_of_one_secret_hides_nothing_of_another() {
    let mut scene = Scene::new();
    let taken = || Ensured::TakenFrom { class: "d".to_owned() };
    let mixed = || Ok(looked([("s", STOOD_BACK), ("t", Ensured::InStep)]));
    assert_eq!(scene.look(Ok(looked([("t", taken()), ("u", Ensured::InStep)]))), [FAILED]);
    assert_eq!(scene.look(mixed()), [], "nothing is in step again yet");
    // Another one that begins to stand back has not stood back for as long.
    assert_eq!(scene.look(Ok(looked([("t", STOOD_BACK), ("s", Ensured::InStep)]))), []);
    for _ in 0..2 {
        assert_eq!(scene.look(mixed()), []);
    }
    assert_eq!(scene.look(mixed()), [FAILED]);
    assert_eq!(scene.look(Ok(in_step())), [RECOVERED]);
}

#[tokio::test]
async fn a_watch_that_cannot_list_is_tried_less_and_less_often() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let scene = Scene::served_by(move |_| {
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
        clock.advance(clock.next_due().unwrap());
    }
    run.abort();
    assert_eq!(asked.load(Ordering::Relaxed), 20);
    // Half a second each time, had it forgotten how often it failed.
    assert!(clock.monotonic() > Duration::from_secs(150), "{:?}", clock.monotonic());
}

#[tokio::test]
async fn a_node_that_may_not_watch_says_that_new_pods_get_no_secrets_until_it_may() {
    let may_watch = Arc::new(AtomicBool::new(false));
    let allowed = Arc::clone(&may_watch);
    let scene = Scene::served_by(move |uri| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [],
            "metadata": {"resourceVersion": "7"}});
        let refusal = json!({"kind": "Status", "code": 403, "reason": "Forbidden",
            "message": "no right"});
        let (status, body) = match (uri.contains("watch="), allowed.load(Ordering::Relaxed)) {
            (false, _) => (200, list.to_string()),
            (true, false) => (403, refusal.to_string()),
            // Every watch ends, and this one at once.
            (true, true) => (200, String::new()),
        };
        let body = Body::from(body.into_bytes());
        Box::pin(async move { Ok(http::Response::builder().status(status).body(body).unwrap()) })
    });
    let (clock, problem) = (scene.clock.clone(), scene.sync.problem());
    let metrics = NodeMetrics::new(Arc::new(clock.clone()));
    metrics.watch_sync(scene.sync.problem());
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
            clock.advance(clock.next_due().unwrap());
        }
    };
    // A server that begins refuses for a moment.
    pass(4).await;
    assert!(problem.remark().is_none() && is_counted(0));
    pass(8).await;
    let remark = problem.remark().unwrap();
    assert!(remark.contains("HTTP 403") && remark.contains("ClusterRole"), "{remark}");
    assert!(is_counted(1) && clock.monotonic() < Duration::from_mins(5));
    pass(50).await;
    assert_eq!(problem.remark(), Some(remark), "it is one story");
    may_watch.store(true, Ordering::Relaxed);
    pass(2).await;
    assert!(problem.remark().is_none() && is_counted(0));
    run.abort();
}

#[tokio::test]
async fn what_a_list_does_not_tell_is_followed_no_more() {
    let mut scene = Scene::served_by(|_| Box::pin(std::future::pending()));
    let there = |name: &str| {
        let object = json!({"metadata": {"namespace": "n", "name": name}});
        Seen::There(Box::new(serde_json::from_value(object).unwrap()))
    };
    let gone = |name: &str| {
        let Seen::There(object) = there(name) else { unreachable!() };
        Seen::Gone(object)
    };
    let mut listed = None;
    let mut take = |scene: &mut Scene, seen| {
        scene.sync.take(seen, &mut listed);
        scene.sync.followed.keys().map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    for seen in [Seen::Anew, there("a"), there("b"), Seen::Complete, there("c")] {
        take(&mut scene, seen);
    }
    assert_eq!(take(&mut scene, gone("b")), ["a", "c"]);
    // A list that broke says nothing of what it did not come to.
    take(&mut scene, Seen::Anew);
    assert_eq!(take(&mut scene, Seen::Anew), ["a", "c"]);
    take(&mut scene, there("c"));
    assert_eq!(take(&mut scene, Seen::Complete), ["c"]);
}
