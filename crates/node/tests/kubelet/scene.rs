//! A node, its kubelet and its vault in virtual time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_clock::{Clock, ManualClock, SharedClock};
use lanyard_keyvault::SecretBytes;
use lanyard_kubelet::{DriverObject, Event, InlineVolume, Kubelet, PodSpec, VolumeKey};
use lanyard_node::audit::{AuditSink, AuditTrail};
use lanyard_node::rotation::{RotatingVolume, Rotator, RotatorSettings, Volumes};
use lanyard_node::{
    ClassError, ClassSource, FillRequest, FilledFile, Filling, NodeMetrics, NodeServer,
    NodeServerParts, NodeServerSettings, Notice, NoticeKind, ObjectVersion, Provider, PublishError,
    Publisher, PublisherParts, PublisherSettings, Refusal, RegistrationSettings, ReportError,
    Reporter, ServeError, Stamps, Urgency, VolumeReport,
};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::OutcomeCode;
use parking_lot::Mutex;
use rustix::mount::UnmountFlags;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const DRIVER: &str = "secrets-store.csi.k8s.io";

/// How the node and its class are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SceneSettings {
    pub(crate) requires_republish: bool,
    pub(crate) interval: &'static str,
    /// Whether the class reads as the node's identity, which needs nothing of the pod.
    pub(crate) managed: bool,
    pub(crate) audience: Option<&'static str>,
}

impl Default for SceneSettings {
    fn default() -> Self {
        Self { requires_republish: true, interval: "1h", managed: true, audience: None }
    }
}

/// Gives every pod a file of its own that tells the version, which is a number; a credential is
/// valid from so many seconds on.
#[derive(Debug)]
pub(crate) struct Vault {
    clock: ManualClock,
    version: Mutex<String>,
    fails: Mutex<bool>,
    fills: AtomicUsize,
    expired: AtomicUsize,
}

impl Vault {
    pub(crate) fn give(&self, version: &str) {
        version.clone_into(&mut self.version.lock());
    }

    pub(crate) fn fail(&self, fails: bool) {
        *self.fails.lock() = fails;
    }

    /// How often anybody asked.
    pub(crate) fn fills(&self) -> usize {
        self.fills.load(Ordering::SeqCst)
    }

    pub(crate) fn expired_tokens(&self) -> usize {
        self.expired.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Provider for Vault {
    async fn fill(&self, request: &FillRequest<'_>) -> Result<Filling, Refusal> {
        self.fills.fetch_add(1, Ordering::SeqCst);
        let now = self.clock.now();
        let expired = request.proofs.tokens.0.values().filter(|token| token.expires <= now);
        self.expired.fetch_add(expired.count(), Ordering::SeqCst);
        if *self.fails.lock() {
            return Err(Refusal::new(OutcomeCode::VaultUnavailable, "the vault is down"));
        }
        let (id, version) = ("secret/credential".to_owned(), self.version.lock().clone());
        let not_before = Timestamp::from_second(version.parse().unwrap()).unwrap();
        let stamps =
            Stamps { not_before: Some(not_before), is_credential: true, ..Stamps::default() };
        Ok(Filling {
            files: vec![FilledFile {
                path: "credential".parse().unwrap(),
                mode: None,
                content: SecretBytes::from(format!("{} holds {version}", request.pod.name)),
                object: Some(id.clone()),
            }],
            versions: vec![ObjectVersion { id: id.clone(), version }],
            stamps: BTreeMap::from([(id, stamps)]),
            stale: None,
        })
    }
}

/// One class, whose annotations change.
#[derive(Debug)]
struct Class(Mutex<SecretProviderClass>);

#[async_trait]
impl ClassSource for Class {
    async fn class(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Result<Arc<SecretProviderClass>, ClassError> {
        Ok(Arc::new(self.0.lock().clone()))
    }
}

#[derive(Debug, Default)]
struct Ears(Mutex<Vec<Notice>>);

#[async_trait]
impl Reporter for Ears {
    async fn report(&self, _report: &VolumeReport) -> Result<(), ReportError> {
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        self.0.lock().push(notice);
    }

    fn forget(&self, _target: &Path) {}
}

/// A publisher of whose work it is known whether it is done.
#[derive(Debug)]
struct Watched {
    publisher: Publisher,
    at_work: AtomicUsize,
}

#[async_trait]
impl Volumes for Watched {
    fn volumes(&self) -> Vec<RotatingVolume> {
        self.publisher.volumes()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, looked: Option<Timestamp>) {
        self.at_work.fetch_add(1, Ordering::SeqCst);
        self.publisher.rotate(target, urgency, looked).await;
        self.at_work.fetch_sub(1, Ordering::SeqCst);
    }

    async fn scrub(&self, target: &Path) -> Result<Option<Timestamp>, PublishError> {
        self.at_work.fetch_add(1, Ordering::SeqCst);
        let scrubbed = self.publisher.scrub(target).await;
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        scrubbed
    }
}

/// The plugin: ends with its process in a real node.
struct Plugin {
    watched: Arc<Watched>,
    server: JoinHandle<Result<(), ServeError>>,
    rotator: JoinHandle<()>,
    ends: [oneshot::Sender<()>; 2],
}

pub(crate) struct Scene {
    root: tempfile::TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) kubelet: Kubelet,
    pub(crate) vault: Arc<Vault>,
    class: Arc<Class>,
    ears: Arc<Ears>,
    audit: AuditTrail,
    settings: SceneSettings,
    plugin: Option<Plugin>,
}

impl Scene {
    /// A node whose plugin serves, and whose kubelet has not looked for it yet.
    pub(crate) fn open(settings: SceneSettings) -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("plugins_registry")).unwrap();
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let kubelet = Kubelet::new(root.path(), Arc::new(clock.clone()));
        let object = DriverObject {
            requires_republish: settings.requires_republish,
            ..DriverObject::new(DRIVER)
        };
        kubelet.apply(match settings.audience {
            Some(audience) => object.with_audience(audience),
            None => object,
        });
        let vault = Arc::new(Vault {
            clock: clock.clone(),
            version: Mutex::new("1".to_owned()),
            fails: Mutex::default(),
            fills: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
        });
        let class = Arc::new(Class(Mutex::new(class(settings.managed))));
        let ears = Arc::default();
        let sink = AuditSink::File(root.path().join("audit.jsonl"));
        let audit = AuditTrail::begin(&sink, Arc::new(clock.clone())).unwrap();
        let mut scene =
            Self { root, clock, kubelet, vault, class, ears, audit, settings, plugin: None };
        scene.start_plugin();
        scene
    }

    fn start_plugin(&mut self) {
        let clock: SharedClock = Arc::new(self.clock.clone());
        let root = self.root.path();
        let provider: Arc<dyn Provider> = Arc::<Vault>::clone(&self.vault);
        let interval = self.settings.interval.parse().unwrap();
        let publisher = Publisher::new(
            PublisherSettings {
                interval: Some(interval),
                audit: self.audit.clone(),
                ..PublisherSettings::new(root, DRIVER)
            },
            PublisherParts {
                classes: Arc::<Class>::clone(&self.class),
                provider: Arc::clone(&provider),
                reporter: Arc::<Ears>::clone(&self.ears),
                clock: Arc::clone(&clock),
            },
        );
        let watched =
            Arc::new(Watched { publisher: publisher.clone(), at_work: AtomicUsize::new(1) });
        let rotator = Rotator::new(
            Arc::<Watched>::clone(&watched),
            Arc::<Class>::clone(&self.class),
            Arc::<Ears>::clone(&self.ears),
            Arc::clone(&clock),
            RotatorSettings { interval: Some(interval), ..RotatorSettings::default() },
        );
        let server = NodeServer::new(
            NodeServerSettings {
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
            NodeServerParts {
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
            // It counts as work: time stands still until every volume was looked at.
            let recovered = publisher.recover().await;
            recovering.at_work.fetch_sub(1, Ordering::SeqCst);
            recovered.unwrap();
            rotator.run(async { drop(rotator_ended.await) }).await;
        });
        let server = tokio::spawn(server.run(async { drop(server_ended.await) }));
        let ends = [end_rotator, end_server];
        self.plugin = Some(Plugin { watched, server, rotator, ends });
    }

    /// Lets the kubelet find the plugin.
    pub(crate) async fn registered(&self) {
        for _ in 0..100_000 {
            self.kubelet.tick().await;
            if self.kubelet.registered(DRIVER).is_some() {
                return self.settle().await;
            }
            self.clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        panic!("the plugin did not register");
    }

    pub(crate) fn add_pod(&self, number: usize) -> VolumeKey {
        let uid = format!("uid-{number}");
        let volume =
            InlineVolume::new("credentials", DRIVER).with_attribute("secretProviderClass", "cpo");
        let pod = PodSpec::new("clusters", format!("pod-{number}"), &uid).with_volume(volume);
        self.kubelet.add(pod);
        VolumeKey::new(uid, "credentials")
    }

    pub(crate) fn delete_pod(&self, number: usize) {
        self.kubelet.delete(&format!("uid-{number}"));
    }

    pub(crate) fn annotate(&self, key: &str, value: &str) {
        let mut class = self.class.0.lock();
        let annotations = class.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    /// Lets time pass at once, and what is due be done.
    pub(crate) async fn step(&self, time: Duration) -> Vec<Event> {
        self.clock.advance(time);
        let events = self.kubelet.tick().await;
        self.settle().await;
        events
    }

    /// Lets time pass in steps.
    pub(crate) async fn pass(&self, time: Duration, step: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        let end = self.clock.monotonic() + time;
        while self.clock.monotonic() < end {
            events.extend(self.step(step).await);
        }
        events
    }

    /// Waits until the plugin is at rest. Its disk work is done by other threads, so nothing but
    /// its own word tells.
    async fn settle(&self) {
        let Some(plugin) = &self.plugin else { return };
        let mut calm = 0;
        while calm < 20 {
            // A turn for every task that was woken, and one through the pool of those threads:
            // either alone may be over before the other had one.
            tokio::task::yield_now().await;
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            let is_calm = plugin.watched.at_work.load(Ordering::SeqCst) == 0;
            calm = if is_calm { calm + 1 } else { 0 };
        }
    }

    /// Ends the plugin and starts it again, as an upgrade does.
    pub(crate) async fn restart_node(&mut self) {
        self.end_plugin().await;
        self.start_plugin();
        self.registered().await;
    }

    /// Ends everything, as a reboot does: directories stay and mounts do not.
    pub(crate) async fn reboot(&mut self) {
        self.end_plugin().await;
        for target in self.mounted_below_root() {
            rustix::mount::unmount(target.as_str(), UnmountFlags::empty()).unwrap();
        }
        self.kubelet.restart().await.unwrap();
        self.start_plugin();
        self.registered().await;
    }

    async fn end_plugin(&mut self) {
        let Some(Plugin { server, rotator, ends, .. }) = self.plugin.take() else { return };
        drop(ends);
        rotator.await.unwrap();
        server.await.unwrap().unwrap();
    }

    pub(crate) async fn end(mut self) {
        self.end_plugin().await;
        for target in self.mounted_below_root() {
            rustix::mount::unmount(target.as_str(), UnmountFlags::empty()).unwrap();
        }
    }

    pub(crate) fn content(&self, key: &VolumeKey) -> String {
        std::fs::read_to_string(self.kubelet.target(key).join("credential")).unwrap()
    }

    pub(crate) fn told(&self, kind: NoticeKind) -> Vec<String> {
        let ears = self.ears.0.lock();
        ears.iter().filter(|it| it.kind == kind).map(|it| it.message.clone()).collect()
    }

    /// The lines of the audit trail.
    pub(crate) fn audited(&self) -> String {
        self.audit.flush();
        std::fs::read_to_string(self.root.path().join("audit.jsonl")).unwrap()
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.ears.0.lock().clone()
    }

    pub(crate) fn mounts(&self) -> usize {
        self.mounted_below_root().len()
    }

    pub(crate) fn directories_of_pods(&self) -> usize {
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

impl Drop for Scene {
    /// A test that failed leaves no mounts behind.
    fn drop(&mut self) {
        for target in self.mounted_below_root() {
            let _left = rustix::mount::unmount(target.as_str(), UnmountFlags::DETACH);
        }
    }
}

fn class(is_managed: bool) -> SecretProviderClass {
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

pub(crate) fn published(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Published { .. })).count()
}
