//! A node with real sockets and a fake vault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::ManualClock;
use lanyard_grpc::channel_to_socket;
use lanyard_grpc::csi::identity_client::IdentityClient;
use lanyard_grpc::csi::node_client::NodeClient;
use lanyard_grpc::csi::volume_capability::{AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use lanyard_keyvault::SharedSecretBytes;
use lanyard_node::{
    MemoryAccount, MeteredProvider, MeteredReporter, NodeMetrics, NodePluginServer,
    NodePluginServerParts, NodePluginServerSettings, NodeServeError, NoopReporter, ProviderServer,
    Publisher, PublisherParts, PublisherSettings, RegistrationSettings,
};
use lanyard_provider::{
    InMemoryClassSource, Provider, ProviderError, ProviderFile, ProviderObjectVersion,
    ProviderRequest, ProviderResponse,
};
use lanyard_telemetry::{MetricsPage, Readiness, ReadinessGate};
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::FilePath;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

pub(crate) const DRIVER: &str = "secrets-store.csi.k8s.io";
pub(crate) const UID: &str = "6f1d1c1e-93c2-4a6e-8b3a-0f5a3f3e2d11";
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// The content of every secret in these tests.
pub(crate) const MARKER: &str = "planted-4711-marker";

/// Returns one file, while its gate is open.
#[derive(Debug)]
pub(crate) struct GatedProvider {
    path: FilePath,
    pub(crate) error: Mutex<Option<ProviderError>>,
    pub(crate) gate: Semaphore,
    pub(crate) version: Mutex<String>,
    pub(crate) waiting_requests: Mutex<usize>,
}

#[async_trait]
impl Provider for GatedProvider {
    async fn fetch(
        &self,
        _request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        *self.waiting_requests.lock() += 1;
        // The semaphore is never closed.
        let _through = self.gate.acquire().await.ok();
        *self.waiting_requests.lock() -= 1;
        if let Some(error) = self.error.lock().clone() {
            return Err(error);
        }
        let (id, version) = ("secret/credential".to_owned(), self.version.lock().clone());
        Ok(ProviderResponse {
            files: vec![ProviderFile {
                path: self.path.clone(),
                mode: None,
                content: SharedSecretBytes::from(MARKER.to_owned()),
                object: Some(id.clone()),
            }],
            versions: vec![ProviderObjectVersion { id, version }],
            timestamps: BTreeMap::new(),
            warnings: Vec::new(),
            stale: None,
        })
    }
}

pub(crate) struct NodeProcessFixture {
    pub(crate) root: tempfile::TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) vault: Arc<GatedProvider>,
    pub(crate) readiness: Readiness,
    pub(crate) classes_gate: ReadinessGate,
    pub(crate) page: MetricsPage,
    shutdown: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), NodeServeError>>,
}

impl NodeProcessFixture {
    /// Starts a node whose classes are not ready.
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("plugins_registry")).unwrap();
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let shared: lanyard_clock::SharedClock = Arc::new(clock.clone());
        let vault = Arc::new(GatedProvider {
            path: "credential".parse().unwrap(),
            error: Mutex::default(),
            gate: Semaphore::new(1000),
            version: Mutex::new("1".to_owned()),
            waiting_requests: Mutex::default(),
        });
        let metrics = NodeMetrics::new(Arc::clone(&shared));
        let page = MetricsPage::build(|registry| metrics.register(registry));
        let provider = MeteredProvider::new(Arc::<GatedProvider>::clone(&vault), metrics.clone());
        let provider: Arc<dyn Provider> = Arc::new(provider);
        let publisher = Publisher::new(
            PublisherSettings::new(root.path(), DRIVER),
            PublisherParts {
                classes: Arc::new(InMemoryClassSource::new([secret_provider_class()])),
                provider: Arc::clone(&provider),
                reporter: Arc::new(MeteredReporter::new(Arc::new(NoopReporter), metrics.clone())),
                clock: Arc::clone(&shared),
            },
        );
        let readiness = Readiness::default();
        let classes_gate = readiness.add_gate("classes", "the API server did not answer");
        let settings = NodePluginServerSettings {
            driver: DRIVER.parse().unwrap(),
            version: "1.2.3".to_owned(),
            node_id: "node-1".to_owned(),
            kubelet_dir: root.path().to_owned(),
            csi_socket: root.path().join("csi.sock"),
            registration: Some(RegistrationSettings {
                directory: root.path().join("plugins_registry"),
                endpoint: root.path().join("csi.sock"),
            }),
            drain: Duration::from_secs(20),
        };
        let parts = NodePluginServerParts {
            publisher,
            provider: Some((
                root.path().join("azure.sock"),
                ProviderServer::new(provider, MemoryAccount::new(64 << 20), Arc::clone(&shared)),
            )),
            metrics,
            readiness: readiness.clone(),
            clock: shared,
        };
        let (end, ended) = oneshot::channel::<()>();
        let server = NodePluginServer::new(settings, parts);
        let server = tokio::spawn(server.run(async { drop(ended.await) }));
        let shutdown = Some(end);
        Self { root, clock, vault, readiness, classes_gate, page, shutdown, server }
    }

    /// Starts a node and registers it.
    pub(crate) async fn start_registered() -> Self {
        let node = Self::start();
        node.classes_gate.open();
        node.wait_until("the registration socket exists", || node.registration_socket().exists())
            .await;
        node
    }

    pub(crate) fn csi_socket(&self) -> PathBuf {
        self.root.path().join("csi.sock")
    }

    pub(crate) fn registration_socket(&self) -> PathBuf {
        self.root.path().join("plugins_registry").join(format!("{DRIVER}-reg.sock"))
    }

    pub(crate) fn target(&self, volume: &str) -> PathBuf {
        let below = format!("pods/{UID}/volumes/kubernetes.io~csi/{volume}/mount");
        let target = self.root.path().join(below);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        target
    }

    pub(crate) fn identity_client(&self) -> IdentityClient<Channel> {
        IdentityClient::new(channel_to_socket(&self.csi_socket()))
    }

    /// Returns a client with its own connection, as each call of the kubelet has.
    pub(crate) fn node_client(&self) -> NodeClient<Channel> {
        NodeClient::new(channel_to_socket(&self.csi_socket()))
    }

    pub(crate) async fn publish(&self, target: &Path) -> Result<(), Status> {
        self.node_client().node_publish_volume(publish_request(target)).await.map(drop)
    }

    pub(crate) async fn unpublish(&self, target: &Path) -> Result<(), Status> {
        let volume_id = "csi-1".to_owned();
        let target_path = target.display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id, target_path };
        self.node_client().node_unpublish_volume(request).await.map(drop)
    }

    /// Advances the clock until the condition is true.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..100_000 {
            if is_so() {
                return;
            }
            self.clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
            // Other threads do the file work of the plugin. This gives them a turn before time passes again.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        panic!("timed out waiting until {what}; not ready: {:?}", self.readiness.problems());
    }

    pub(crate) fn begin_shutdown(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn wait_for_exit(&mut self) -> Result<(), NodeServeError> {
        (&mut self.server).await.unwrap()
    }

    pub(crate) async fn shut_down(mut self) {
        self.begin_shutdown();
        self.wait_for_exit().await.unwrap();
    }
}

fn secret_provider_class() -> SecretProviderClass {
    let mut class = SecretProviderClass::default();
    class.metadata.namespace = Some("tenant".to_owned());
    class.metadata.name = Some("disk".to_owned());
    class.spec.provider = Some("azure".to_owned());
    class
}

pub(crate) fn volume_context() -> BTreeMap<String, String> {
    let pairs = [
        ("secretProviderClass", "disk"),
        ("csi.storage.k8s.io/pod.name", "controller-0"),
        ("csi.storage.k8s.io/pod.namespace", "tenant"),
        ("csi.storage.k8s.io/pod.uid", UID),
        ("csi.storage.k8s.io/serviceAccount.name", "controller"),
        ("csi.storage.k8s.io/ephemeral", "true"),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(crate) fn tokens() -> String {
    let expires = Timestamp::MAX;
    format!(r#"{{"api://a":{{"token":"{MARKER}","expirationTimestamp":"{expires}"}}}}"#)
}

pub(crate) fn publish_request(target: &Path) -> NodePublishVolumeRequest {
    let mount = MountVolume::default();
    NodePublishVolumeRequest {
        volume_id: "csi-1".to_owned(),
        publish_context: BTreeMap::new(),
        staging_target_path: String::new(),
        target_path: target.display().to_string(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode: None,
        }),
        readonly: true,
        secrets: BTreeMap::from([(TOKENS.to_owned(), tokens())]),
        volume_context: volume_context(),
    }
}

pub(crate) fn forbidden_error() -> ProviderError {
    ProviderError::new(OutcomeCode::VaultForbidden, "could not read `credential`: HTTP 403")
}
