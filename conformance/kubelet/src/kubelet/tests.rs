//! Tests of the fake kubelet with a scripted driver, over real sockets.

use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_grpc::csi::node_server::{Node, NodeServer};
use lanyard_grpc::csi::node_service_capability::{Rpc, Type, rpc};
use lanyard_grpc::csi::*;
use lanyard_grpc::registration::registration_server::{Registration, RegistrationServer};
use lanyard_grpc::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use lanyard_grpc::{PrivateSocket, SocketFile};
use parking_lot::Mutex;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Code, Request, Response};

use super::*;

const DRIVER: &str = "secrets-store.csi.k8s.io";

/// The calls that a driver received, and the responses that it returns.
#[derive(Debug, Default)]
struct DriverScript {
    calls: Mutex<Vec<String>>,
    publish_error: Mutex<Option<Code>>,
    unpublish_error: Mutex<Option<Code>>,
    publish_requests: Mutex<Vec<NodePublishVolumeRequest>>,
    supports_mount_group: bool,
    /// Blocks publishes until it is notified.
    publish_gate: Option<Notify>,
    /// The number of publishes in flight.
    publishes_in_flight: AtomicUsize,
    registration_statuses: Mutex<Vec<RegistrationStatus>>,
    endpoint: PathBuf,
}

impl DriverScript {
    fn record_call(&self, call: &str, metadata: &tonic::metadata::MetadataMap) {
        let timeout = metadata.get("grpc-timeout").and_then(|it| it.to_str().ok()).unwrap_or("-");
        self.calls.lock().push(format!("{call} {timeout}"));
    }

    fn call_count(&self, call: &str) -> usize {
        self.calls.lock().iter().filter(|it| it.starts_with(call)).count()
    }
}

/// Counts a publish as in flight until the driver responds or the call is cancelled.
struct InFlightPublish<'a>(&'a AtomicUsize);

impl<'a> InFlightPublish<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InFlightPublish<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone)]
struct FakeDriver(Arc<DriverScript>);

#[tonic::async_trait]
impl Node for FakeDriver {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.0.record_call("Publish", request.metadata());
        let request = request.into_inner();
        let _in_flight = InFlightPublish::new(&self.0.publishes_in_flight);
        self.0.publish_requests.lock().push(request.clone());
        if let Some(hold) = &self.0.publish_gate {
            hold.notified().await;
        }
        let code = *self.0.publish_error.lock();
        if let Some(code) = code {
            return Err(Status::new(code, "scripted error"));
        }
        // The driver creates the target. The kubelet's part needs no mount.
        std::fs::create_dir_all(&request.target_path).unwrap();
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        self.0.record_call("Unpublish", request.metadata());
        let code = *self.0.unpublish_error.lock();
        match code {
            Some(code) => Err(Status::new(code, "scripted error")),
            None => Ok(Response::new(NodeUnpublishVolumeResponse {})),
        }
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        self.0.record_call("Capabilities", request.metadata());
        let group = Rpc { r#type: rpc::Type::VolumeMountGroup.into() };
        let group = NodeServiceCapability { r#type: Some(Type::Rpc(group)) };
        let capabilities = if self.0.supports_mount_group { vec![group] } else { Vec::new() };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node_id = "node-1".to_owned();
        Ok(Response::new(NodeGetInfoResponse { node_id, max_volumes_per_node: 0 }))
    }
}

#[tonic::async_trait]
impl Registration for FakeDriver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.0.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.0.registration_statuses.lock().push(request.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// A node with one driver, on a manual clock.
struct FakeKubeletFixture {
    root: tempfile::TempDir,
    clock: ManualClock,
    kubelet: FakeKubelet,
    script: Arc<DriverScript>,
    servers: Vec<(SocketFile, JoinHandle<()>)>,
}

impl FakeKubeletFixture {
    fn with_driver(script: DriverScript) -> Self {
        let root = tempfile::tempdir().unwrap();
        let clock = ManualClock::starting_at(Timestamp::from_second(1_000_000).unwrap());
        let kubelet = FakeKubelet::new(root.path(), Arc::new(clock.clone()));
        std::fs::create_dir_all(root.path().join("plugins_registry")).unwrap();
        let endpoint = root.path().join("csi.sock");
        let script = Arc::new(DriverScript { endpoint, ..script });
        let mut fixture = Self { root, clock, kubelet, script, servers: Vec::new() };
        fixture
            .kubelet
            .apply_driver(CsiDriverObject::new(DRIVER).with_audience("api://AzureADTokenExchange"));
        fixture.serve_driver();
        fixture
    }

    fn registration_socket(&self) -> PathBuf {
        self.root.path().join("plugins_registry").join(format!("{DRIVER}-reg.sock"))
    }

    fn serve_driver(&mut self) {
        let driver = FakeDriver(Arc::clone(&self.script));
        let node = Server::builder().add_service(NodeServer::new(driver.clone()));
        let registration = Server::builder().add_service(RegistrationServer::new(driver));
        let bind = |path: &Path| PrivateSocket::bind(path).unwrap().split();
        for (router, path) in
            [(node, self.script.endpoint.clone()), (registration, self.registration_socket())]
        {
            let (incoming, file) = bind(&path);
            let task = tokio::spawn(async move {
                router.serve_with_incoming(incoming).await.unwrap();
            });
            self.servers.push((file, task));
        }
    }

    async fn advance_clock(&self, time: Duration) -> Vec<KubeletEvent> {
        self.clock.advance(time);
        self.kubelet.tick().await
    }

    fn add_pod(&self, uid: &str) -> VolumeKey {
        let volume =
            InlineVolume::new("credentials", DRIVER).with_attribute("secretProviderClass", "cpo");
        self.kubelet.add_pod(PodSpec::new("clusters", "cpo-0", uid).with_volume(volume));
        VolumeKey::new(uid, "credentials")
    }

    fn volume_directory(&self, key: &VolumeKey) -> PathBuf {
        self.kubelet.target_path(key).parent().unwrap().to_owned()
    }
}

impl Drop for FakeKubeletFixture {
    fn drop(&mut self) {
        for (_, task) in &self.servers {
            task.abort();
        }
    }
}

fn published_count(events: &[KubeletEvent]) -> usize {
    events.iter().filter(|event| matches!(event, KubeletEvent::Published { .. })).count()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn driver_is_registered_and_deregistered_with_its_socket() {
    let mut fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    let events = fixture.kubelet.tick().await;
    let expected =
        KubeletEvent::Registered { driver: DRIVER.to_owned(), node_id: "node-1".to_owned() };
    assert_eq!(events, [expected]);
    let expected = RegistrationStatus { plugin_registered: true, error: String::new() };
    assert_eq!(*fixture.script.registration_statuses.lock(), [expected]);
    assert_eq!(fixture.kubelet.tick().await, [], "each driver is registered once");

    for (file, task) in fixture.servers.drain(..) {
        task.abort();
        drop(file);
    }
    fixture.add_pod("uid-1");
    let events = fixture.kubelet.tick().await;
    assert_eq!(events[0], KubeletEvent::Deregistered { driver: DRIVER.to_owned() });
    assert!(matches!(events[1], KubeletEvent::PublishNotSent { .. }), "{events:?}");

    fixture.serve_driver();
    let events = fixture.advance_clock(SECOND).await;
    assert!(matches!(events[0], KubeletEvent::Registered { .. }), "{events:?}");
    assert_eq!(published_count(&events), 1);
}

#[tokio::test]
async fn publish_prepares_directory_queries_capabilities_twice_and_sets_deadline() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    let key = fixture.add_pod("uid-1");
    let events = fixture.kubelet.tick().await;
    assert_eq!(events.last(), Some(&KubeletEvent::Published { key: key.clone(), count: 1 }));
    let calls = fixture.script.calls.lock().clone();
    assert_eq!(calls, ["Capabilities 120000m", "Capabilities 120000m", "Publish 120000m"]);

    let request = fixture.script.publish_requests.lock()[0].clone();
    assert_eq!(Path::new(&request.target_path), fixture.kubelet.target_path(&key));
    assert!(request.volume_context.contains_key("csi.storage.k8s.io/serviceAccount.tokens"));
    let directory = fixture.volume_directory(&key);
    assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, 0o750);
    let data = std::fs::read_to_string(directory.join("vol_data.json")).unwrap();
    assert!(data.contains(&request.volume_id) && data.contains("Ephemeral"), "{data}");
}

#[tokio::test]
async fn volume_is_republished_within_a_second_and_then_every_sync_period() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    assert_eq!(published_count(&fixture.advance_clock(SECOND).await), 1);
    let mut count = 0;
    for _ in 0..3_600 {
        count += published_count(&fixture.advance_clock(SECOND).await);
    }
    assert!((42..=58).contains(&count), "{count}");
    let token = |request: &NodePublishVolumeRequest| {
        request.volume_context["csi.storage.k8s.io/serviceAccount.tokens"].clone()
    };
    let requests = fixture.script.publish_requests.lock();
    assert_ne!(token(&requests[0]), token(requests.last().unwrap()), "the token was renewed");
    assert_eq!(token(&requests[0]), token(&requests[9]), "the token was cached before");
}

#[tokio::test]
async fn final_code_at_first_publish_removes_directory_without_unpublish() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    *fixture.script.publish_error.lock() = Some(Code::Internal);
    let key = fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    assert!(!fixture.volume_directory(&key).exists());
    assert_eq!(fixture.script.call_count("Publish"), 1);
    fixture.advance_clock(Duration::from_millis(499)).await;
    assert_eq!(fixture.script.call_count("Publish"), 1);
    fixture.advance_clock(Duration::from_millis(1)).await;
    assert_eq!(fixture.script.call_count("Publish"), 2);
    fixture.kubelet.delete_pod("uid-1");
    fixture.advance_clock(SECOND * 300).await;
    assert_eq!(fixture.script.call_count("Unpublish"), 0);
    assert_eq!(fixture.kubelet.volume_count(), 0);
}

#[tokio::test]
async fn non_final_code_keeps_directory_and_unpublishes_on_deletion() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    *fixture.script.publish_error.lock() = Some(Code::Unavailable);
    let key = fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    assert!(fixture.volume_directory(&key).join("vol_data.json").exists());
    fixture.kubelet.delete_pod("uid-1");
    let events = fixture.advance_clock(SECOND).await;
    assert_eq!(events, [KubeletEvent::Unpublished { key: key.clone(), still_mounted: false }]);
    assert!(!fixture.volume_directory(&key).exists());
}

#[tokio::test]
async fn republish_error_keeps_volume_and_retries_with_back_off() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    let key = fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    *fixture.script.publish_error.lock() = Some(Code::InvalidArgument);
    let events = fixture.advance_clock(SECOND).await;
    assert!(
        matches!(&events[0], KubeletEvent::PublishFailed { was_published: true, .. }),
        "{events:?}"
    );
    assert!(fixture.kubelet.is_mounted(&key) && fixture.kubelet.target_path(&key).exists());
    let mut tries = 0;
    for _ in 0..1_000 {
        tries += fixture.advance_clock(SECOND).await.len();
    }
    assert!((12..=16).contains(&tries), "{tries}");
}

#[tokio::test]
async fn failed_unpublish_keeps_volume_and_is_retried() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    let key = fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    *fixture.script.unpublish_error.lock() = Some(Code::Internal);
    fixture.kubelet.delete_pod("uid-1");
    let events = fixture.advance_clock(SECOND).await;
    assert!(matches!(&events[0], KubeletEvent::UnpublishFailed { code: Code::Internal, .. }));
    assert!(fixture.volume_directory(&key).exists());
    *fixture.script.unpublish_error.lock() = None;
    let events = fixture.advance_clock(SECOND).await;
    assert!(matches!(&events[0], KubeletEvent::Unpublished { .. }), "{events:?}");
}

#[tokio::test]
async fn a_deleted_pod_waits_for_the_publish_that_is_in_flight() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript {
        publish_gate: Some(Notify::new()),
        ..DriverScript::default()
    });
    let key = fixture.add_pod("uid-1");
    let run = tokio::spawn({
        let kubelet = fixture.kubelet.clone();
        async move { kubelet.run(std::future::pending()).await }
    });
    wait_until(|| fixture.script.call_count("Publish") == 1).await;
    fixture.kubelet.delete_pod("uid-1");
    fixture.clock.advance(SECOND * 2);
    wait_for_network().await;
    assert_eq!(fixture.script.call_count("Unpublish"), 0);
    fixture.script.publish_gate.as_ref().unwrap().notify_one();
    wait_until(|| fixture.kubelet.is_mounted(&key)).await;
    wait_for_network().await;
    assert_eq!(fixture.script.call_count("Unpublish"), 0);
    fixture.clock.advance(Duration::from_millis(200));
    wait_until(|| fixture.kubelet.volume_count() == 0).await;
    assert_eq!(fixture.script.call_count("Unpublish"), 1);
    run.abort();
}

#[tokio::test]
async fn hanging_call_is_abandoned_after_two_minutes() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript {
        publish_gate: Some(Notify::new()),
        ..DriverScript::default()
    });
    fixture.add_pod("uid-1");
    let tick = tokio::spawn({
        let kubelet = fixture.kubelet.clone();
        async move { kubelet.tick().await }
    });
    wait_until(|| fixture.script.call_count("Publish") == 1).await;
    fixture.clock.advance(SECOND * 119);
    wait_for_network().await;
    assert!(!tick.is_finished());
    fixture.clock.advance(SECOND);
    let events = tick.await.unwrap();
    let is_late = |it: &KubeletEvent| {
        matches!(it, KubeletEvent::PublishFailed { code: Code::DeadlineExceeded, .. })
    };
    assert!(is_late(events.last().unwrap()), "{events:?}");
}

#[tokio::test]
async fn restarted_kubelet_republishes_found_volumes_and_unpublishes_orphans() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    let retained = fixture.add_pod("uid-1");
    fixture.add_pod("uid-2");
    fixture.kubelet.tick().await;
    // A second kubelet that does not know the second pod, as after a deletion while the kubelet was down.
    let survivor = FakeKubelet::new(fixture.root.path(), Arc::new(fixture.clock.clone()));
    survivor.apply_driver(CsiDriverObject::new(DRIVER));
    let volume = InlineVolume::new("credentials", DRIVER);
    survivor.add_pod(PodSpec::new("clusters", "cpo-0", "uid-1").with_volume(volume));
    survivor.restart().await.unwrap();
    survivor.tick().await;
    assert_eq!(fixture.script.call_count("Publish"), 2);
    fixture.clock.advance(Duration::from_millis(1_300));
    survivor.tick().await;
    assert_eq!(fixture.script.call_count("Unpublish"), 1);
    fixture.clock.advance(Duration::from_millis(100));
    survivor.tick().await;
    assert_eq!(fixture.script.call_count("Publish"), 3);
    assert!(survivor.is_mounted(&retained));
    assert_eq!(survivor.volume_count(), 1);
}

#[tokio::test]
async fn restart_cancels_the_call_in_flight_before_the_next_one() {
    let fixture = FakeKubeletFixture::with_driver(DriverScript {
        publish_gate: Some(Notify::new()),
        ..DriverScript::default()
    });
    let key = fixture.add_pod("uid-1");
    let run = tokio::spawn({
        let kubelet = fixture.kubelet.clone();
        async move { kubelet.run(std::future::pending()).await }
    });
    let in_flight = || fixture.script.publishes_in_flight.load(Ordering::SeqCst);
    wait_until(|| fixture.script.call_count("Publish") == 1 && in_flight() == 1).await;
    fixture.kubelet.restart().await.unwrap();
    wait_until(|| in_flight() == 0).await;
    let events = fixture.kubelet.take_events();
    let is_about_volume = |it: &KubeletEvent| !matches!(it, KubeletEvent::Registered { .. });
    assert!(!events.iter().any(is_about_volume), "a cancelled call emits no event: {events:?}");

    fixture.clock.advance(Duration::from_millis(1_400));
    wait_until(|| fixture.script.call_count("Publish") == 2 && in_flight() == 1).await;
    fixture.script.publish_gate.as_ref().unwrap().notify_one();
    wait_until(|| fixture.kubelet.is_mounted(&key)).await;
    assert_eq!((fixture.script.call_count("Publish"), in_flight()), (2, 0));
    run.abort();
}

#[tokio::test]
async fn killed_driver_needs_no_new_registration() {
    let mut fixture = FakeKubeletFixture::with_driver(DriverScript::default());
    fixture.add_pod("uid-1");
    fixture.kubelet.tick().await;
    // SIGKILL leaves the socket files behind.
    for (file, task) in fixture.servers.drain(..) {
        let (name, aside) = (file.path().to_owned(), fixture.root.path().join("aside"));
        std::fs::rename(&name, &aside).unwrap();
        drop(file);
        std::fs::rename(&aside, &name).unwrap();
        task.abort();
        assert!(task.await.is_err());
    }
    let events = fixture.advance_clock(SECOND).await;
    let is_refused = |it: &KubeletEvent| matches!(it, KubeletEvent::PublishNotSent { message, .. } if message.contains("Unavailable"));
    assert!(matches!(events.as_slice(), [event] if is_refused(event)), "{events:?}");
    assert!(fixture.kubelet.registered_driver(DRIVER).is_some());
}

async fn wait_for_network() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// Waits for the effect of real sockets. A test that never observes it hangs until the runner kills it.
async fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
