//! What a crowd of nodes asks of a vault that throttles: hours in virtual time.
//!
//! It is the storm that fleets of the Secrets Store CSI driver have reported
//! (kubernetes-sigs/secrets-store-csi-driver issue 1483): a vault's limit was used up, every volume
//! read each of its objects again every ten seconds, which used it up for good, and no pod started
//! for hours.

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::SecretProviderClass;
use lanyard_azure::{BreakerPolicy, Rate};
use lanyard_clock::{Clock as _, SharedClock};
use lanyard_keyvault::testing::{FakeAzure, VaultLimit};
use lanyard_keyvault::{NodeVaultSettings, NodeVaults, Pod, Proofs};
use lanyard_node::rotation::{
    ClassWishes, IntervalBounds, PollInterval, RotatingVolume, Rotator, RotatorSettings,
    VolumeClock, Volumes,
};
use lanyard_node::{
    AzureProvider, AzureProviderSettings, FillRequest, Filling, MemoryClasses, NoReporter,
    Provider, PublishError, Refusal, Stamps, Urgency,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

const VAULT: &str = "kv1";
const NODES: usize = 4;
const VOLUMES: usize = 12;
/// One that all volumes of the fleet mount, and others of the volume's own.
const OBJECTS: usize = 4;
/// The limit of a vault: reads in ten seconds.
const LIMIT: usize = 4_000;
const WINDOW: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_mins(2);

/// A node of the fleet: its volumes, without the disk.
#[derive(Debug)]
struct Node {
    provider: AzureProvider,
    clock: SharedClock,
    volumes: Mutex<BTreeMap<PathBuf, SimulatedVolume>>,
    classes: BTreeMap<String, SecretProviderClass>,
}

#[derive(Debug, Clone)]
struct SimulatedVolume {
    clock: VolumeClock,
    class: String,
    stamps: BTreeMap<String, Stamps>,
}

impl Node {
    fn new(azure: &FakeAzure, number: usize) -> Arc<Self> {
        // A node's share of the vault's limit.
        let rate = Rate { per_second: 25, burst: 100 };
        let ways = azure.ways(rate, Some(BreakerPolicy::default()));
        let settings = NodeVaultSettings::default();
        let vaults = NodeVaults::new(settings, ways, None, azure.shared_clock());
        let provider = AzureProvider::new(Arc::new(vaults), AzureProviderSettings::default());
        let names = (0..VOLUMES).map(|volume| format!("n{number}-v{volume}"));
        let classes = names.map(|name| (name.clone(), class(azure, &name)));
        Arc::new(Self {
            provider,
            clock: azure.shared_clock(),
            volumes: Mutex::default(),
            classes: classes.collect(),
        })
    }

    /// Rotates what is mounted, for as long as the test runs.
    fn rotate_always(self: &Arc<Self>) {
        let classes = Arc::new(MemoryClasses::new(self.classes.values().cloned()));
        let volumes: Arc<dyn Volumes> = Arc::<Self>::clone(self);
        let (clock, settings) = (Arc::clone(&self.clock), RotatorSettings::default());
        let rotator = Rotator::new(volumes, classes, Arc::new(NoReporter), clock, settings);
        drop(tokio::spawn(rotator.run(std::future::pending())));
    }

    /// What the kubelet does for a new pod: publish until it is done, ever more seldom. Says how
    /// long it took.
    async fn mount(self: Arc<Self>, class: String) -> Duration {
        let began = self.clock.monotonic();
        let mut pause = Duration::from_millis(500);
        loop {
            let now = self.clock.now();
            if let Ok(filling) = self.fill(&class, Urgency::Mount).await {
                let mut clock = VolumeClock::default();
                clock.succeeded(now, &ClassWishes::default(), []);
                let stamps = filling.stamps;
                let volume = SimulatedVolume { clock, class: class.clone(), stamps };
                self.volumes.lock().insert(target(&class), volume);
                return self.clock.monotonic().saturating_sub(began);
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(122));
        }
    }

    async fn fill(&self, class: &str, urgency: Urgency) -> Result<Filling, Refusal> {
        let (pod, proofs, attributes) = (pod(class), Proofs::default(), BTreeMap::new());
        let request = FillRequest {
            class: &self.classes[class],
            pod: &pod,
            attributes: &attributes,
            proofs: &proofs,
            target: class,
            urgency,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        self.provider.fill(&request).await
    }

    /// How many volumes are mounted and were looked at with success since then.
    fn looked_at_since(&self, since: Timestamp) -> usize {
        let volumes = self.volumes.lock();
        volumes.values().filter(|volume| volume.clock.checked() >= Some(since)).count()
    }
}

#[async_trait]
impl Volumes for Node {
    fn volumes(&self) -> Vec<RotatingVolume> {
        let volumes = self.volumes.lock();
        let rotating = volumes.iter().map(|(target, volume)| RotatingVolume {
            volume_id: volume.class.clone(),
            target: target.clone(),
            pod: pod(&volume.class),
            class_name: volume.class.clone(),
            clock: volume.clock.clone(),
            stamps: volume.stamps.clone(),
            proofs: Some(Proofs::default()),
            generation: 1,
        });
        rotating.collect()
    }

    async fn rotate(&self, target: &Path, urgency: Urgency, _looked: Option<Timestamp>) {
        let Some(class) = self.volumes.lock().get(target).map(|volume| volume.class.clone()) else {
            return;
        };
        let began = self.clock.now();
        let outcome = self.fill(&class, urgency).await;
        let mut volumes = self.volumes.lock();
        let Some(volume) = volumes.get_mut(target) else { return };
        match outcome {
            Ok(filling) => {
                volume.clock.succeeded(began, &ClassWishes::default(), []);
                volume.stamps = filling.stamps;
            }
            Err(Refusal { turned_away: Some(pause), .. }) => {
                volume.clock.turned_away(began, pause);
            }
            Err(refusal) => volume.clock.failed(began, refusal.retry),
        }
    }

    async fn scrub(&self, _target: &Path) -> Result<Option<Timestamp>, PublishError> {
        Ok(None)
    }
}

fn pod(class: &str) -> Pod {
    Pod {
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
fn class(azure: &FakeAzure, name: &str) -> SecretProviderClass {
    azure.put(VAULT, "common");
    let own = (1..OBJECTS).map(|object| format!("{name}-o{object}"));
    let objects: Vec<String> = std::iter::once("common".to_owned()).chain(own).collect();
    let entry = |name: &String| {
        azure.put(VAULT, name);
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

fn limit(neighbours: usize, retry_after: Option<Duration>) -> VaultLimit {
    VaultLimit { requests: LIMIT, window: WINDOW, neighbours, retry_after }
}

/// Mounts the first `count` volumes of every node.
async fn mount_all(azure: &FakeAzure, fleet: &[Arc<Node>], count: usize) {
    let mounts = fleet.iter().flat_map(|node| {
        let classes = node.classes.keys().take(count).cloned();
        classes.map(|class| Arc::clone(node).mount(class)).collect::<Vec<_>>()
    });
    azure.drive(futures::future::join_all(mounts)).await;
}

async fn storm(retry_after: Option<Duration>) {
    let azure = FakeAzure::new();
    azure.limit(Some(limit(1_000, retry_after)));
    let fleet: Vec<_> = (0..NODES).map(|number| Node::new(&azure, number)).collect();
    let late = 2;
    mount_all(&azure, &fleet, VOLUMES - late).await;
    let distinct = NODES * ((VOLUMES - late) * (OBJECTS - 1) + 1);
    assert_eq!(azure.reads(), distinct, "the common object once for each node");
    for node in &fleet {
        node.rotate_always();
    }
    azure.pass(INTERVAL * 2).await;
    azure.forget_calls();
    azure.pass(INTERVAL * 5).await;
    let calm = azure.reads();
    assert!((distinct * 4..=distinct * 6).contains(&calm), "{calm} of {distinct} in an interval");

    // The neighbours use the vault up, and on each node two pods want to start.
    azure.forget_calls();
    azure.limit(Some(limit(LIMIT, retry_after)));
    let mut starting = Vec::new();
    for node in &fleet {
        for class in node.classes.keys().skip(VOLUMES - late) {
            starting.push(tokio::spawn(Arc::clone(node).mount(class.clone())));
        }
    }
    let hour = Duration::from_hours(1);
    azure.pass(hour).await;
    let asked = azure.calls().len();
    assert_eq!(azure.reads(), 0);
    // Upstream: every object of every volume, every ten seconds.
    let upstream = NODES * VOLUMES * OBJECTS * 360;
    assert!(asked * 20 < upstream, "{asked} requests while nothing was to be had");
    assert!(azure.busiest(WINDOW) * 20 < LIMIT, "{}", azure.busiest(WINDOW));
    assert!(starting.iter().all(|pod| !pod.is_finished()));

    // It ends.
    azure.forget_calls();
    azure.limit(Some(limit(1_000, retry_after)));
    let end = azure.clock().now();
    azure.pass(INTERVAL * 2).await;
    assert!(starting.iter().all(JoinHandle::is_finished), "every pod has started");
    for node in &fleet {
        assert_eq!(node.looked_at_since(end), VOLUMES);
    }
    assert!(azure.calls().iter().all(|call| call.status == 200), "nobody was throttled again");
    assert!(azure.busiest(WINDOW) + 1_000 <= LIMIT, "{}", azure.busiest(WINDOW));
}

#[tokio::test]
async fn a_storm_of_throttling_is_sat_out_and_ends_within_two_intervals() {
    storm(Some(Duration::from_secs(10))).await;
}

#[tokio::test]
async fn so_is_one_in_which_the_vault_does_not_say_for_how_long() {
    storm(None).await;
}

/// The bounds that classes have, so that the simulation and the node agree about them.
#[test]
fn the_interval_of_the_simulation_is_the_default() {
    assert_eq!(PollInterval::DEFAULT.duration(), INTERVAL);
    assert!(IntervalBounds::CLASS.least.duration() < INTERVAL);
}
