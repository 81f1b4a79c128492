//! A fleet of nodes and a vault that throttles: hours in virtual time.
//!
//! The test reproduces a throttling storm that fleets of the Secrets Store CSI driver have reported
//! (kubernetes-sigs/secrets-store-csi-driver issue 1483): the limit of a vault was exceeded, every volume
//! repeated the read of each of its objects every ten seconds, which kept the limit exceeded, and no pod
//! started for hours.

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_azure::{CircuitBreakerPolicy, RequestRate};
use lanyard_clock::{Clock as _, SharedClock};
use lanyard_keyvault::testing::{FakeAzure, FakeVaultLimit};
use lanyard_keyvault::{NodeVaultSettings, NodeVaults, PodCredentials, VolumePod};
use lanyard_node::NoopReporter;
use lanyard_node::rotation::{
    PollHistory, RotatableVolumes, RotationTarget, Rotator, RotatorSettings,
};
use lanyard_provider::{
    AzureProvider, AzureProviderSettings, InMemoryClassSource, IntervalBounds, ObjectTimestamps,
    PollInterval, Provider, ProviderError, ProviderRequest, ProviderResponse, RotationPolicy,
    Urgency,
};
use lanyard_volume::PublishError;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

const VAULT: &str = "kv1";
const NODES: usize = 4;
const VOLUMES: usize = 12;
/// One object that all volumes of the fleet mount, and the others of the volume alone.
const OBJECTS: usize = 4;
/// The limit of a vault: reads in ten seconds.
const LIMIT: usize = 4_000;
const WINDOW: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_mins(2);

/// A node of the fleet: its volumes, without the disk.
#[derive(Debug)]
struct SimulatedNode {
    provider: AzureProvider,
    clock: SharedClock,
    volumes: Mutex<BTreeMap<PathBuf, SimulatedVolume>>,
    classes: BTreeMap<String, SecretProviderClass>,
}

#[derive(Debug, Clone)]
struct SimulatedVolume {
    clock: PollHistory,
    class: String,
    timestamps: BTreeMap<String, ObjectTimestamps>,
}

impl SimulatedNode {
    fn new(azure: &FakeAzure, number: usize) -> Arc<Self> {
        // The node's share of the vault's limit.
        let rate = RequestRate { per_second: 25, burst: 100 };
        let ways = azure.node_transports(rate, Some(CircuitBreakerPolicy::default()));
        let settings = NodeVaultSettings::default();
        let vaults = NodeVaults::new(settings, ways, None, azure.shared_clock());
        let provider = AzureProvider::new(Arc::new(vaults), AzureProviderSettings::default());
        let names = (0..VOLUMES).map(|volume| format!("n{number}-v{volume}"));
        let classes = names.map(|name| (name.clone(), secret_provider_class(azure, &name)));
        Arc::new(Self {
            provider,
            clock: azure.shared_clock(),
            volumes: Mutex::default(),
            classes: classes.collect(),
        })
    }

    /// Rotates the mounted volumes until the end of the test.
    fn spawn_rotator(self: &Arc<Self>) {
        let classes = Arc::new(InMemoryClassSource::new(self.classes.values().cloned()));
        let volumes: Arc<dyn RotatableVolumes> = Arc::<Self>::clone(self);
        let (clock, settings) = (Arc::clone(&self.clock), RotatorSettings::default());
        let rotator = Rotator::new(volumes, classes, Arc::new(NoopReporter), clock, settings);
        drop(tokio::spawn(rotator.run(std::future::pending())));
    }

    /// Publishes the volume of a new pod as the kubelet does: repeatedly, with a growing back-off, until it
    /// succeeds. Returns the elapsed time.
    async fn mount(self: Arc<Self>, class: String) -> Duration {
        let began = self.clock.monotonic();
        let mut pause = Duration::from_millis(500);
        loop {
            let now = self.clock.now();
            if let Ok(response) = self.fetch(&class, Urgency::Mount).await {
                let mut clock = PollHistory::default();
                clock.record_success(now, &RotationPolicy::default(), []);
                let timestamps = response.timestamps;
                let volume = SimulatedVolume { clock, class: class.clone(), timestamps };
                self.volumes.lock().insert(target(&class), volume);
                return self.clock.monotonic().saturating_sub(began);
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(122));
        }
    }

    async fn fetch(
        &self,
        class: &str,
        urgency: Urgency,
    ) -> Result<ProviderResponse, ProviderError> {
        let (pod, pod_credentials, attributes) =
            (pod(class), PodCredentials::default(), BTreeMap::new());
        let request = ProviderRequest {
            class: &self.classes[class],
            pod: &pod,
            attributes: &attributes,
            pod_credentials: &pod_credentials,
            target: class,
            urgency,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        self.provider.fetch(&request).await
    }

    /// Returns the number of mounted volumes with a successful poll since then.
    fn polled_since(&self, since: Timestamp) -> usize {
        let volumes = self.volumes.lock();
        volumes
            .values()
            .filter(|volume| volume.clock.last_success_started_at() >= Some(since))
            .count()
    }
}

#[async_trait]
impl RotatableVolumes for SimulatedNode {
    fn volumes(&self) -> Vec<RotationTarget> {
        let volumes = self.volumes.lock();
        let rotating = volumes.iter().map(|(target, volume)| RotationTarget {
            volume_id: volume.class.clone(),
            target: target.clone(),
            pod: pod(&volume.class),
            class_name: volume.class.clone(),
            history: volume.clock.clone(),
            timestamps: volume.timestamps.clone(),
            pod_credentials: Some(PodCredentials::default()),
            generation: 1,
        });
        rotating.collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, _looked: Option<Timestamp>) {
        let Some(class) = self.volumes.lock().get(target).map(|volume| volume.class.clone()) else {
            return;
        };
        let began = self.clock.now();
        let outcome = self.fetch(&class, urgency).await;
        let mut volumes = self.volumes.lock();
        let Some(volume) = volumes.get_mut(target) else { return };
        match outcome {
            Ok(response) => {
                volume.clock.record_success(began, &RotationPolicy::default(), []);
                volume.timestamps = response.timestamps;
            }
            Err(ProviderError { suppressed_for: Some(pause), .. }) => {
                volume.clock.record_suppressed(began, pause);
            }
            Err(error) => volume.clock.record_failure(began, error.retry),
        }
    }

    async fn scrub(&self, _target: &Path) -> Result<Option<Timestamp>, PublishError> {
        Ok(None)
    }
}

fn pod(class: &str) -> VolumePod {
    VolumePod {
        namespace: "ns".to_owned(),
        name: class.to_owned(),
        uid: class.to_owned(),
        service_account: "sa".to_owned(),
    }
}

fn target(class: &str) -> PathBuf {
    PathBuf::from("/var/lib/kubelet/pods").join(class)
}

/// A class of one volume; its secrets are in the vault.
fn secret_provider_class(azure: &FakeAzure, name: &str) -> SecretProviderClass {
    azure.add_secret_version(VAULT, "common");
    let own = (1..OBJECTS).map(|object| format!("{name}-o{object}"));
    let objects: Vec<String> = std::iter::once("common".to_owned()).chain(own).collect();
    let entry = |name: &String| {
        azure.add_secret_version(VAULT, name);
        format!("  - |\n    objectName: {name}\n    objectType: secret\n")
    };
    let objects = format!("array:\n{}", objects.iter().map(entry).collect::<String>());
    let parameters = [
        ("useVMManagedIdentity", "true"),
        ("keyvaultName", VAULT),
        ("tenantId", "contoso"),
        ("objects", &objects),
    ];
    let mut class = SecretProviderClass::default();
    class.metadata.name = Some(name.to_owned());
    class.metadata.namespace = Some("ns".to_owned());
    let parameters = parameters.map(|(key, text)| (key.to_owned(), text.to_owned()));
    class.spec.parameters = Some(parameters.into());
    class
}

fn limit(neighbours: usize, retry_after: Option<Duration>) -> FakeVaultLimit {
    FakeVaultLimit {
        requests: LIMIT,
        window: WINDOW,
        other_client_requests: neighbours,
        retry_after,
    }
}

/// Mounts the first `count` volumes of every node.
async fn mount_all(azure: &FakeAzure, fleet: &[Arc<SimulatedNode>], count: usize) {
    let mounts = fleet.iter().flat_map(|node| {
        let classes = node.classes.keys().take(count).cloned();
        classes.map(|class| Arc::clone(node).mount(class)).collect::<Vec<_>>()
    });
    azure.run_advancing_clock(futures::future::join_all(mounts)).await;
}

async fn run_throttling_storm(retry_after: Option<Duration>) {
    let azure = FakeAzure::new();
    azure.set_vault_limit(Some(limit(1_000, retry_after)));
    let fleet: Vec<_> = (0..NODES).map(|number| SimulatedNode::new(&azure, number)).collect();
    let late = 2;
    mount_all(&azure, &fleet, VOLUMES - late).await;
    let distinct = NODES * ((VOLUMES - late) * (OBJECTS - 1) + 1);
    assert_eq!(azure.reads(), distinct, "the common object once for each node");
    for node in &fleet {
        node.spawn_rotator();
    }
    azure.advance_clock(INTERVAL * 2).await;
    azure.clear_calls();
    azure.advance_clock(INTERVAL * 5).await;
    let calm = azure.reads();
    assert!((distinct * 4..=distinct * 6).contains(&calm), "{calm} of {distinct} in an interval");

    // Other clients exhaust the vault's limit, and two pods start on each node.
    azure.clear_calls();
    azure.set_vault_limit(Some(limit(LIMIT, retry_after)));
    let mut starting = Vec::new();
    for node in &fleet {
        for class in node.classes.keys().skip(VOLUMES - late) {
            starting.push(tokio::spawn(Arc::clone(node).mount(class.clone())));
        }
    }
    let hour = Duration::from_hours(1);
    azure.advance_clock(hour).await;
    let requests = azure.calls().len();
    assert_eq!(azure.reads(), 0);
    // Upstream: every object of every volume, every ten seconds.
    let upstream = NODES * VOLUMES * OBJECTS * 360;
    assert!(requests * 20 < upstream, "{requests} requests during the throttling");
    assert!(azure.max_calls_within(WINDOW) * 20 < LIMIT, "{}", azure.max_calls_within(WINDOW));
    assert!(starting.iter().all(|pod| !pod.is_finished()));

    // The throttling ends.
    azure.clear_calls();
    azure.set_vault_limit(Some(limit(1_000, retry_after)));
    let end = azure.clock().now();
    azure.advance_clock(INTERVAL * 2).await;
    assert!(starting.iter().all(JoinHandle::is_finished), "every pod has started");
    for node in &fleet {
        assert_eq!(node.polled_since(end), VOLUMES);
    }
    assert!(azure.calls().iter().all(|call| call.status == 200), "no call was throttled again");
    assert!(azure.max_calls_within(WINDOW) + 1_000 <= LIMIT, "{}", azure.max_calls_within(WINDOW));
}

#[tokio::test]
async fn fleet_recovers_from_throttling_within_two_intervals() {
    run_throttling_storm(Some(Duration::from_secs(10))).await;
}

#[tokio::test]
async fn fleet_recovers_from_throttling_without_retry_after() {
    run_throttling_storm(None).await;
}

/// Checks that the simulation uses the default interval of the node.
#[test]
fn the_interval_of_the_simulation_is_the_default() {
    assert_eq!(PollInterval::DEFAULT.duration(), INTERVAL);
    assert!(IntervalBounds::CLASS.min.duration() < INTERVAL);
}
