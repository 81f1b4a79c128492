//! A node in virtual time: its publisher, rotator, provider and reporter, on real tmpfs mounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_azure::{CircuitBreakerPolicy, RequestRate};
use lanyard_clock::{Clock as _, SharedClock};
use lanyard_keyvault::testing::FakeAzure;
use lanyard_keyvault::{NodeVaultSettings, NodeVaults, PodCredentials, StaleCache, VolumePod};
use lanyard_kubernetes::KubernetesApi;
use lanyard_node::rotation::{Rotator, RotatorSettings};
use lanyard_node::{
    KubeReporter, KubeReporterSettings, MeteredProvider, MeteredReporter, NodeKubernetesApi,
    NodeMetrics, PodEventQueue, PublishFailure, PublishRequest, Publisher, PublisherParts,
    PublisherSettings, Reporter,
};
use lanyard_provider::{AzureProvider, AzureProviderSettings, InMemoryClassSource};
use lanyard_telemetry::MetricsPage;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::api::{FakeStatusApi, NAMESPACE};

pub(crate) const VAULT: &str = "kv1";

/// A class of some objects, and the serve-stale limit it opts in to, if any.
#[derive(Debug)]
pub(crate) struct OutageClass {
    pub(crate) name: String,
    pub(crate) objects: Vec<String>,
    pub(crate) serve_stale: Option<&'static str>,
}

/// A node. Dropping it unmounts its volumes.
#[derive(Debug)]
pub(crate) struct OutageFixture {
    pub(crate) azure: FakeAzure,
    pub(crate) api: FakeStatusApi,
    publisher: Publisher,
    page: MetricsPage,
    dir: TempDir,
}

impl OutageFixture {
    /// Starts a node that rotates its volumes until the end of the test.
    pub(crate) fn start(classes: &[OutageClass]) -> Self {
        let (azure, api) = (FakeAzure::new(), FakeStatusApi::default());
        let dir = tempfile::tempdir().unwrap();
        let clock = azure.shared_clock();
        for object in classes.iter().flat_map(|class| &class.objects) {
            azure.add_secret_value(VAULT, object, format!("{object} 1"));
        }

        let metrics = NodeMetrics::new(Arc::clone(&clock));
        let ways = azure.node_transports(
            RequestRate { per_second: 25, burst: 100 },
            Some(CircuitBreakerPolicy::default()),
        );
        let sealed = StaleCache::in_memory().unwrap();
        let settings = NodeVaultSettings::default();
        let vaults = NodeVaults::new(settings, ways, Some(sealed), Arc::clone(&clock));
        let provider = AzureProvider::new(Arc::new(vaults), AzureProviderSettings::default());
        let kubernetes =
            NodeKubernetesApi::new(KubernetesApi::from_client(api.client(), Arc::clone(&clock)))
                .with_metrics(metrics.clone());
        let events = PodEventQueue::start(kubernetes.clone(), "node-1");
        let settings = KubeReporterSettings::default();
        let reporter: Arc<dyn Reporter> =
            Arc::new(KubeReporter::new(kubernetes, "node-1", events, settings));
        let classes = Arc::new(InMemoryClassSource::new(classes.iter().map(secret_provider_class)));
        let parts = PublisherParts {
            classes: Arc::<InMemoryClassSource>::clone(&classes),
            provider: Arc::new(MeteredProvider::new(Arc::new(provider), metrics.clone())),
            reporter: Arc::new(MeteredReporter::new(Arc::clone(&reporter), metrics.clone())),
            clock: Arc::clone(&clock),
        };
        let driver = "secrets-store.csi.k8s.io";
        let publisher = Publisher::new(PublisherSettings::new(dir.path(), driver), parts);
        metrics.watch_volumes(&publisher);
        let page = MetricsPage::build(|registry| metrics.register(registry));

        let alone = MeteredReporter::counting_every_failure(reporter, metrics);
        let volumes = Arc::new(publisher.clone());
        let settings = RotatorSettings::default();
        let rotator = Rotator::new(volumes, classes, Arc::new(alone), clock, settings);
        drop(tokio::spawn(rotator.run(std::future::pending())));
        Self { azure, api, publisher, page, dir }
    }

    /// Publishes the volume of a new pod as the kubelet does: repeatedly, with a growing back-off, until it
    /// succeeds. Returns the elapsed time.
    pub(crate) fn start_mount(&self, pod: &str, class: &str) -> JoinHandle<Duration> {
        let (publisher, clock) = (self.publisher.clone(), self.azure.shared_clock());
        let request = self.publish_request(pod, class);
        tokio::spawn(publish_until_success(publisher, clock, request))
    }

    /// Publishes the volume of a new pod until it succeeds, advancing the clock.
    pub(crate) async fn mount(&self, pod: &str, class: &str) -> Duration {
        let mounting = self.start_mount(pod, class);
        self.drive_to_completion(mounting).await
    }

    /// Calls publish once.
    pub(crate) async fn publish(&self, pod: &str, class: &str) -> Result<(), PublishFailure> {
        let (publisher, request) = (self.publisher.clone(), self.publish_request(pod, class));
        self.drive_to_completion(tokio::spawn(async move { publisher.publish(request).await }))
            .await
    }

    fn publish_request(&self, pod: &str, class: &str) -> PublishRequest {
        let target = self.target(pod);
        // The kubelet creates the parent directory of the target before the call.
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        PublishRequest {
            volume_id: format!("csi-{pod}"),
            target,
            pod: VolumePod {
                namespace: NAMESPACE.to_owned(),
                name: pod.to_owned(),
                uid: format!("uid-{pod}"),
                service_account: "sa".to_owned(),
            },
            class_name: class.to_owned(),
            attributes: BTreeMap::new(),
            pod_credentials: PodCredentials::default(),
            group: None,
        }
    }

    fn target(&self, pod: &str) -> PathBuf {
        self.dir.path().join(format!("pods/uid-{pod}/volumes/kubernetes.io~csi/v/mount"))
    }

    /// Returns the files of a pod by name; empty if the volume is not mounted.
    pub(crate) fn read_files(&self, pod: &str) -> BTreeMap<String, String> {
        let Ok(entries) = std::fs::read_dir(self.target(pod)) else { return BTreeMap::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let observed = paths.filter(|path| !name(path).starts_with(".."));
        observed.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
    }

    /// Returns the generation that a pod reads.
    pub(crate) fn generation(&self, pod: &str) -> PathBuf {
        std::fs::read_link(self.target(pod).join("..data")).unwrap()
    }

    /// Returns the value of a metric with these labels, or `None` if it is absent.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let page = self.page.render();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|number| number.parse().unwrap())
    }

    /// Runs a task to its end, advancing the clock whenever every task waits.
    async fn drive_to_completion<T>(&self, work: JoinHandle<T>) -> T {
        loop {
            run_until_idle().await;
            if work.is_finished() {
                return work.await.unwrap();
            }
            if let Some(due) = self.azure.clock().time_until_next_deadline() {
                self.azure.clock().advance(due);
            }
        }
    }

    /// Advances the clock by `duration`, from one sleeper to the next.
    pub(crate) async fn advance(&self, duration: Duration) {
        let clock = self.azure.clock();
        let end = clock.monotonic().saturating_add(duration);
        loop {
            run_until_idle().await;
            let left = end.saturating_sub(clock.monotonic());
            let step = clock.time_until_next_deadline().map_or(left, |due| due.min(left));
            if step.is_zero() && left.is_zero() {
                return;
            }
            clock.advance(step);
        }
    }
}

impl Drop for OutageFixture {
    fn drop(&mut self) {
        let dir = self.dir.path().canonicalize().unwrap();
        let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        for point in points.filter(|point| point.starts_with(&dir)) {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

async fn publish_until_success(
    publisher: Publisher,
    clock: SharedClock,
    request: PublishRequest,
) -> Duration {
    let began = clock.monotonic();
    let mut pause = Duration::from_millis(500);
    while publisher.publish(request.clone()).await.is_err() {
        clock.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(122));
    }
    clock.monotonic().saturating_sub(began)
}

fn secret_provider_class(class: &OutageClass) -> SecretProviderClass {
    let entry = |name: &String| format!("  - |\n    objectName: {name}\n    objectType: secret\n");
    let objects = format!("array:\n{}", class.objects.iter().map(entry).collect::<String>());
    let parameters = [
        ("useVMManagedIdentity", "true"),
        ("keyvaultName", VAULT),
        ("tenantId", "contoso"),
        ("objects", &objects),
    ];
    let own = |(key, text): (&str, &str)| (key.to_owned(), text.to_owned());
    let mut object = SecretProviderClass::default();
    object.metadata.name = Some(class.name.clone());
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    let annotation = class.serve_stale.map(|age| own(("lanyard.dev/serve-stale", age)));
    object.metadata.annotations = Some(annotation.into_iter().collect());
    object.spec.provider = Some("azure".to_owned());
    object.spec.parameters = Some(parameters.map(own).into());
    object
}

/// Runs every task until it waits for the clock.
///
/// Blocking calls run on one thread, one after the other ([`runtime`]): when the latest one has finished, so
/// have all earlier ones.
async fn run_until_idle() {
    for _ in 0..MAX_BLOCKING_CALLS {
        for _ in 0..YIELDS_PER_BLOCKING_CALL {
            tokio::task::yield_now().await;
        }
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

/// A runtime on which [`OutageFixture`] knows when every task waits.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build()
}

/// More yields than any task needs between two blocking calls.
const YIELDS_PER_BLOCKING_CALL: usize = 64;
/// More blocking calls than any task makes before it waits for the clock.
const MAX_BLOCKING_CALLS: usize = 16;
