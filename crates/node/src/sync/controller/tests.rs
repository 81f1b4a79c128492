use std::convert::Infallible;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::client::Body;
use lanyard_clock::ManualClock;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::kubernetes::KubeClassesSettings;
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

/// A controller that follows one status, and whose looks come to what they are told to.
struct Scene {
    clock: ManualClock,
    ears: Arc<Ears>,
    sync: SecretSync,
    status: SecretProviderClassPodStatus,
}

impl Scene {
    fn new() -> Self {
        let service = tower::service_fn(|_request: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let client = kube::Client::new(service, "default");
        let api = KubernetesApi::of_client(client, Arc::new(clock.clone()));
        let classes = Arc::new(KubeClasses::new(api.clone(), KubeClassesSettings::default()));
        let ears = Arc::new(Ears::default());
        let settings = SecretSyncSettings {
            node: "node".to_owned(),
            driver: "secrets-store.csi.k8s.io".to_owned(),
            kubelet_directory: "/var/lib/kubelet".into(),
            interval: PollInterval::DEFAULT,
        };
        let reporter: Arc<dyn Reporter> = Arc::<Ears>::clone(&ears);
        let mut sync = SecretSync::new(api, classes, reporter, settings);
        let status: SecretProviderClassPodStatus =
            serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "p-n-c"}}))
                .unwrap();
        sync.follow(status.clone());
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

const FAILED: NoticeKind = NoticeKind::Failed(OutcomeCode::SecretNotSynced);
const RECOVERED: NoticeKind = NoticeKind::Recovered(OutcomeCode::SecretNotSynced);

#[tokio::test]
async fn what_fails_is_told_as_long_as_it_fails_and_its_end_once() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        assert_eq!(scene.look(failure()), [FAILED]);
    }
    assert_eq!(scene.look(Ok(Done::InStep)), [RECOVERED]);
    assert_eq!(scene.look(Ok(Done::InStep)), []);
}

#[tokio::test]
async fn a_class_that_wants_no_secrets_any_more_has_mended_nothing() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(failure()), [FAILED]);
    assert_eq!(scene.look(Ok(Done::NothingToDo)), []);
    assert_eq!(scene.look(Ok(Done::InStep)), []);
}

#[tokio::test]
async fn standing_back_is_told_once_it_lasts() {
    let mut scene = Scene::new();
    let stood_back = || {
        Ok(Done::StoodBack {
            secret: "s".to_owned(),
            written: Timestamp::UNIX_EPOCH,
            patience: Duration::from_mins(10),
        })
    };
    assert_eq!(scene.look(stood_back()), []);
    assert_eq!(scene.look(stood_back()), []);
    assert_eq!(scene.look(stood_back()), [FAILED]);
    assert_eq!(scene.look(Ok(Done::InStep)), [RECOVERED]);
    assert_eq!(scene.look(stood_back()), []);
}
