//! A node with its kubelet and its vault, in virtual time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::{Clock, ManualClock, SharedClock};
use lanyard_keyvault::SharedSecretBytes;
use lanyard_kubelet::{
    CsiDriverObject, FakeKubelet, InlineVolume, KubeletEvent, PodSpec, VolumeKey,
};
use lanyard_node::audit::{AuditSink, AuditTrail};
use lanyard_node::rotation::{RotatableVolumes, RotationTarget, Rotator, RotatorSettings};
use lanyard_node::{
    NodeMetrics, NodePluginServer, NodePluginServerParts, NodePluginServerSettings, NodeServeError,
    PodEvent, PodEventKind, Publisher, PublisherParts, PublisherSettings, RegistrationSettings,
    Reporter, StatusReportError, VolumeStatusUpdate,
};
use lanyard_provider::{
    ClassError, ClassSource, ObjectTimestamps, Provider, ProviderError, ProviderFile,
    ProviderObjectVersion, ProviderRequest, ProviderResponse, Urgency,
};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::OutcomeCode;
use lanyard_volume::PublishError;
use parking_lot::Mutex;
use rustix::mount::UnmountFlags;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DRIVER: &str = "secrets-store.csi.k8s.io";

/// The configuration of the node and its class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KubeletFixtureSettings {
    pub(crate) requires_republish: bool,
    pub(crate) interval: &'static str,
    /// Whether the class reads with the node's identity, which needs no tokens of the pod.
    pub(crate) managed: bool,
    pub(crate) audience: Option<&'static str>,
}

impl Default for KubeletFixtureSettings {
    fn default() -> Self {
        Self { requires_republish: true, interval: "1h", managed: true, audience: None }
    }
}

/// Returns a file per pod that contains the version, a number; a credential's `not_before` is that number in
/// seconds.
#[derive(Debug)]
pub(crate) struct FakeCredentialProvider {
    clock: ManualClock,
    version: Mutex<String>,
    failing: Mutex<bool>,
    fetches: AtomicUsize,
    expired: AtomicUsize,
}

impl FakeCredentialProvider {
    pub(crate) fn set_version(&self, version: &str) {
        version.clone_into(&mut self.version.lock());
    }

    pub(crate) fn set_failing(&self, fails: bool) {
        *self.failing.lock() = fails;
    }

    /// The number of fetches.
    pub(crate) fn fetch_count(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    pub(crate) fn expired_tokens(&self) -> usize {
        self.expired.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Provider for FakeCredentialProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let now = self.clock.now();
        let expired =
            request.pod_credentials.tokens.0.values().filter(|token| token.expires <= now);
        self.expired.fetch_add(expired.count(), Ordering::SeqCst);
        if *self.failing.lock() {
            return Err(ProviderError::new(OutcomeCode::VaultUnavailable, "the vault is down"));
        }
        let (id, version) = ("secret/credential".to_owned(), self.version.lock().clone());
        let not_before = Timestamp::from_second(version.parse().unwrap()).unwrap();
        let timestamps = ObjectTimestamps {
            not_before: Some(not_before),
            is_credential: true,
            ..ObjectTimestamps::default()
        };
        Ok(ProviderResponse {
            files: vec![ProviderFile {
                path: "credential".parse().unwrap(),
                mode: None,
                content: SharedSecretBytes::from(format!("{} holds {version}", request.pod.name)),
                object: Some(id.clone()),
            }],
            versions: vec![ProviderObjectVersion { id: id.clone(), version }],
            timestamps: BTreeMap::from([(id, timestamps)]),
            warnings: Vec::new(),
            stale: None,
        })
    }
}

/// A source of one class with changing annotations.
#[derive(Debug)]
struct MutableClassSource(Mutex<SecretProviderClass>);

#[async_trait]
impl ClassSource for MutableClassSource {
    async fn class(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError> {
        Ok(Arc::new(self.0.lock().clone()))
    }
}

#[derive(Debug, Default)]
struct FakeEventReporter(Mutex<Vec<PodEvent>>);

#[async_trait]
impl Reporter for FakeEventReporter {
    async fn report_status(&self, _report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        Ok(())
    }

    fn emit_event(&self, event: PodEvent) {
        self.0.lock().push(event);
    }

    fn forget_volume(&self, _target: &Path) {}
}

/// A publisher that counts its running tasks.
#[derive(Debug)]
struct TrackedVolumes {
    publisher: Publisher,
    running_tasks: AtomicUsize,
}

#[async_trait]
impl RotatableVolumes for TrackedVolumes {
    fn volumes(&self) -> Vec<RotationTarget> {
        self.publisher.volumes()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, polled: Option<Timestamp>) {
        self.running_tasks.fetch_add(1, Ordering::SeqCst);
        self.publisher.rotate(target, urgency, polled).await;
        self.running_tasks.fetch_sub(1, Ordering::SeqCst);
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        self.running_tasks.fetch_add(1, Ordering::SeqCst);
        let scrubbed = self.publisher.scrub(target).await;
        self.running_tasks.fetch_sub(1, Ordering::SeqCst);
        scrubbed
    }
}

/// The running plugin; on a real node, it ends with its process.
struct RunningPlugin {
    volumes: Arc<TrackedVolumes>,
    server: JoinHandle<Result<(), NodeServeError>>,
    rotator: JoinHandle<()>,
    shutdown_senders: [oneshot::Sender<()>; 2],
}

pub(crate) struct KubeletFixture {
    root: tempfile::TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) kubelet: FakeKubelet,
    pub(crate) vault: Arc<FakeCredentialProvider>,
    class: Arc<MutableClassSource>,
    reporter: Arc<FakeEventReporter>,
    audit: AuditTrail,
    settings: KubeletFixtureSettings,
    plugin: Option<RunningPlugin>,
}

impl KubeletFixture {
    /// Starts a node whose plugin serves, before its kubelet has discovered it.
    pub(crate) fn start(settings: KubeletFixtureSettings) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("plugins_registry")).unwrap();
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let kubelet = FakeKubelet::new(root.path(), Arc::new(clock.clone()));
        let object = CsiDriverObject {
            requires_republish: settings.requires_republish,
            ..CsiDriverObject::new(DRIVER)
        };
        kubelet.apply_driver(match settings.audience {
            Some(audience) => object.with_audience(audience),
            None => object,
        });
        let vault = Arc::new(FakeCredentialProvider {
            clock: clock.clone(),
            version: Mutex::new("1".to_owned()),
            failing: Mutex::default(),
            fetches: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
        });
        let class =
            Arc::new(MutableClassSource(Mutex::new(secret_provider_class(settings.managed))));
        let fake_reporter = Arc::default();
        let sink = AuditSink::File(root.path().join("audit.jsonl"));
        let audit = AuditTrail::open(&sink, Arc::new(clock.clone())).unwrap();
        let mut scene = Self {
            root,
            clock,
            kubelet,
            vault,
            class,
            reporter: fake_reporter,
            audit,
            settings,
            plugin: None,
        };
        scene.start_plugin();
        scene
    }

    fn start_plugin(&mut self) {
        let clock: SharedClock = Arc::new(self.clock.clone());
        let root = self.root.path();
        let provider: Arc<dyn Provider> = Arc::<FakeCredentialProvider>::clone(&self.vault);
        let interval = self.settings.interval.parse().unwrap();
        let publisher = Publisher::new(
            PublisherSettings {
                interval: Some(interval),
                audit: self.audit.clone(),
                ..PublisherSettings::new(root, DRIVER)
            },
            PublisherParts {
                classes: Arc::<MutableClassSource>::clone(&self.class),
                provider: Arc::clone(&provider),
                reporter: Arc::<FakeEventReporter>::clone(&self.reporter),
                clock: Arc::clone(&clock),
            },
        );
        let watched = Arc::new(TrackedVolumes {
            publisher: publisher.clone(),
            running_tasks: AtomicUsize::new(1),
        });
        let rotator = Rotator::new(
            Arc::<TrackedVolumes>::clone(&watched),
            Arc::<MutableClassSource>::clone(&self.class),
            Arc::<FakeEventReporter>::clone(&self.reporter),
            Arc::clone(&clock),
            RotatorSettings { interval: Some(interval), ..RotatorSettings::default() },
        );
        let server = NodePluginServer::new(
            NodePluginServerSettings {
                driver: DRIVER.parse().unwrap(),
                version: "1.2.3".to_owned(),
                node_id: "node-1".to_owned(),
                kubelet_dir: root.to_owned(),
                csi_socket: root.join("csi.sock"),
                registration: Some(RegistrationSettings {
                    directory: root.join("plugins_registry"),
                    endpoint: root.join("csi.sock"),
                }),
                drain: Duration::from_secs(20),
            },
            NodePluginServerParts {
                publisher: publisher.clone(),
                provider: None,
                metrics: NodeMetrics::new(Arc::clone(&clock)),
                readiness: Readiness::default(),
                clock,
            },
        );
        let (end_rotator, rotator_ended) = oneshot::channel::<()>();
        let (end_server, server_ended) = oneshot::channel::<()>();
        let recovering = Arc::clone(&watched);
        let rotator = tokio::spawn(async move {
            // Recovery counts as a running task: the clock stands still until every volume was recovered.
            let recovered = publisher.recover().await;
            recovering.running_tasks.fetch_sub(1, Ordering::SeqCst);
            recovered.unwrap();
            rotator.run(async { drop(rotator_ended.await) }).await;
        });
        let server = tokio::spawn(server.run(async { drop(server_ended.await) }));
        let ends = [end_rotator, end_server];
        self.plugin =
            Some(RunningPlugin { volumes: watched, server, rotator, shutdown_senders: ends });
    }

    /// Waits until the kubelet has discovered the plugin.
    pub(crate) async fn wait_for_registration(&self) {
        for _ in 0..100_000 {
            self.kubelet.tick().await;
            if self.kubelet.registered_driver(DRIVER).is_some() {
                return self.wait_until_idle().await;
            }
            self.clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
            // Other threads do the file work of the plugin. This gives them a turn before time passes again.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        panic!("the plugin did not register");
    }

    pub(crate) fn add_pod(&self, number: usize) -> VolumeKey {
        let uid = format!("uid-{number}");
        let volume =
            InlineVolume::new("credentials", DRIVER).with_attribute("secretProviderClass", "cpo");
        let pod = PodSpec::new("clusters", format!("pod-{number}"), &uid).with_volume(volume);
        self.kubelet.add_pod(pod);
        VolumeKey::new(uid, "credentials")
    }

    pub(crate) fn delete_pod(&self, number: usize) {
        self.kubelet.delete_pod(&format!("uid-{number}"));
    }

    pub(crate) fn annotate(&self, key: &str, value: &str) {
        let mut class = self.class.0.lock();
        let annotations = class.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Advances the clock at once, and runs everything that is due.
    pub(crate) async fn advance(&self, time: Duration) -> Vec<KubeletEvent> {
        self.clock.advance(time);
        let events = self.kubelet.tick().await;
        self.wait_until_idle().await;
        events
    }

    /// Advances the clock in steps.
    pub(crate) async fn advance_in_steps(
        &self,
        time: Duration,
        step: Duration,
    ) -> Vec<KubeletEvent> {
        let mut events = Vec::new();
        let end = self.clock.monotonic() + time;
        while self.clock.monotonic() < end {
            events.extend(self.advance(step).await);
        }
        events
    }

    /// Waits until the plugin is idle. Other threads do its disk work, so only its own task counter shows
    /// that it is idle.
    async fn wait_until_idle(&self) {
        let Some(plugin) = &self.plugin else { return };
        let mut calm = 0;
        while calm < 20 {
            // A yield for every woken task, and one pass through the blocking thread pool: either alone may
            // finish before the other has run.
            tokio::task::yield_now().await;
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            let is_calm = plugin.volumes.running_tasks.load(Ordering::SeqCst) == 0;
            calm = if is_calm { calm + 1 } else { 0 };
        }
    }

    /// Stops the plugin and starts it again, as an upgrade does.
    pub(crate) async fn restart_plugin(&mut self) {
        self.stop_plugin().await;
        self.start_plugin();
        self.wait_for_registration().await;
    }

    /// Stops everything, as a reboot does: directories stay and mounts do not.
    pub(crate) async fn reboot(&mut self) {
        self.stop_plugin().await;
        for target in self.mounted_below_root() {
            rustix::mount::unmount(target.as_str(), UnmountFlags::empty()).unwrap();
        }
        self.kubelet.restart().await.unwrap();
        self.start_plugin();
        self.wait_for_registration().await;
    }

    async fn stop_plugin(&mut self) {
        let Some(RunningPlugin { server, rotator, shutdown_senders: ends, .. }) =
            self.plugin.take()
        else {
            return;
        };
        drop(ends);
        rotator.await.unwrap();
        server.await.unwrap().unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.stop_plugin().await;
        for target in self.mounted_below_root() {
            rustix::mount::unmount(target.as_str(), UnmountFlags::empty()).unwrap();
        }
    }

    pub(crate) fn content(&self, key: &VolumeKey) -> String {
        std::fs::read_to_string(self.kubelet.target_path(key).join("credential")).unwrap()
    }

    pub(crate) fn event_messages(&self, kind: PodEventKind) -> Vec<String> {
        let fake_reporter = self.reporter.0.lock();
        fake_reporter.iter().filter(|it| it.kind == kind).map(|it| it.message.clone()).collect()
    }

    /// Returns the lines of the audit trail.
    pub(crate) fn audit_log(&self) -> String {
        self.audit.flush();
        std::fs::read_to_string(self.root.path().join("audit.jsonl")).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<PodEvent> {
        self.reporter.0.lock().clone()
    }

    pub(crate) fn mount_count(&self) -> usize {
        self.mounted_below_root().len()
    }

    pub(crate) fn pod_directory_count(&self) -> usize {
        std::fs::read_dir(self.root.path().join("pods")).map_or(0, Iterator::count)
    }

    /// The fifth field of `/proc/self/mountinfo` (proc(5)).
    fn mounted_below_root(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let root = self.root.path().to_str().unwrap();
        points.filter(|point| point.starts_with(root)).map(str::to_owned).collect()
    }
}

impl Drop for KubeletFixture {
    /// Unmounts everything, so that a failed test leaves no mounts behind.
    fn drop(&mut self) {
        for target in self.mounted_below_root() {
            let _left = rustix::mount::unmount(target.as_str(), UnmountFlags::DETACH);
        }
    }
}

fn secret_provider_class(is_managed: bool) -> SecretProviderClass {
    let mut class = SecretProviderClass::default();
    class.metadata.namespace = Some("clusters".to_owned());
    class.metadata.name = Some("cpo".to_owned());
    class.spec.provider = Some("azure".to_owned());
    let identity = if is_managed {
        ("useVMManagedIdentity".to_owned(), "true".to_owned())
    } else {
        ("clientID".to_owned(), "6f1d1c1e-93c2-4a6e-8b3a-0f5a3f3e2d11".to_owned())
    };
    class.spec.parameters = Some(BTreeMap::from([identity]));
    class
}

pub(crate) fn count_published(events: &[KubeletEvent]) -> usize {
    events.iter().filter(|event| matches!(event, KubeletEvent::Published { .. })).count()
}
