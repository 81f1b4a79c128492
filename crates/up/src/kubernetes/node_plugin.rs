//! The node plugin, put together as `lanyard node` does it, on the directory of the stand-in kubelet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_credential::{ManagedIdentityTransport, TokenTransport};
use lanyard_keyvault::{NodeVaultSettings, NodeVaults, NodeWays};
use lanyard_kubernetes::KubernetesApi;
use lanyard_node::rotation::{PollInterval, Rotator, RotatorSettings};
use lanyard_node::{
    AzureProvider, AzureProviderSettings, ClassSource, CountedReporter, DriverName, EventQueue,
    KubeClasses, KubeClassesSettings, KubeReporter, KubeReporterSettings, NodeApi, NodeMetrics,
    NodeServer, NodeServerParts, NodeServerSettings, PodOverrides, Provider, ProviderRegistry,
    Publisher, PublisherParts, PublisherSettings, RegistrationSettings, Reporter, SocketProviders,
    SocketSettings,
};
use lanyard_telemetry::Readiness;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::KubernetesRoadError;
use crate::azure_end::AzureEnd;

/// The driver that the volumes of control planes name.
pub(super) const DRIVER: &str = "secrets-store.csi.k8s.io";

/// How often a mounted volume is compared with the vault: the shortest that an owner of a node may
/// choose, so that a rotation can be watched.
const POLL: &str = "1s";
/// How long calls in flight may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Where the node plugin works.
#[derive(Debug)]
pub(super) struct NodeSite<'a> {
    /// The kubelet's directory.
    pub(super) kubelet: &'a Path,
    /// The name of the node.
    pub(super) node: &'a str,
    /// The stand-in for the instance metadata service.
    pub(super) imds: String,
}

/// Starts the node plugin; it ends when `end` says so.
pub(super) fn start(
    site: &NodeSite<'_>,
    azure: &AzureEnd,
    api: KubernetesApi,
    end: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Result<(), KubernetesRoadError> {
    let clock = &azure.clock;
    let interval: PollInterval = POLL.parse().map_err(|error| unfit(&error))?;
    let driver: DriverName = DRIVER.parse().map_err(|error| unfit(&error))?;
    let metrics = NodeMetrics::new(SharedClock::clone(clock));
    let api = NodeApi::new(api).counted_by(metrics.clone());
    let classes: Arc<dyn ClassSource> =
        Arc::new(KubeClasses::new(api.clone(), KubeClassesSettings::default()));
    let events = EventQueue::start(api.clone(), site.node);
    let reporter: Arc<dyn Reporter> =
        Arc::new(KubeReporter::new(api, site.node, events, KubeReporterSettings::default()));
    let sockets = SocketSettings { directories: Vec::new(), largest_answer: LARGEST_ANSWER };
    let sockets = Arc::new(SocketProviders::new(sockets, SharedClock::clone(clock)));
    let provider = provider(site, azure, interval)?;
    let registry = ProviderRegistry::new(Some(provider), sockets, PodOverrides::Refused);
    let parts = PublisherParts {
        classes: Arc::clone(&classes),
        provider: Arc::new(registry),
        reporter: Arc::new(CountedReporter::new(Arc::clone(&reporter), metrics.clone())),
        clock: SharedClock::clone(clock),
    };
    let mut settings = PublisherSettings::new(site.kubelet, DRIVER);
    settings.interval = Some(interval);
    let publisher = Publisher::new(settings, parts);
    let parts = NodeServerParts {
        publisher: publisher.clone(),
        provider: None,
        metrics: metrics.clone(),
        readiness: Readiness::default(),
        clock: SharedClock::clone(clock),
    };
    let server = NodeServer::new(server(site, driver), parts);
    let rotator = Rotator::new(
        Arc::new(publisher),
        classes,
        Arc::new(CountedReporter::of_notices_alone(reporter, metrics)),
        SharedClock::clone(clock),
        RotatorSettings { interval: Some(interval), ..RotatorSettings::default() },
    );
    tasks.spawn(rotator.run(ended(end.clone())));
    let ended = ended(end.clone());
    tasks.spawn(async move {
        if let Err(error) = server.run(ended).await {
            let hint = error.hint();
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, hint, "the node plugin could not go on");
        }
    });
    Ok(())
}

/// Where the kubelet's calls come in.
fn csi_socket(kubelet: &Path) -> PathBuf {
    kubelet.join("plugins").join(DRIVER).join("csi.sock")
}

fn server(site: &NodeSite<'_>, driver: DriverName) -> NodeServerSettings {
    let csi_socket = csi_socket(site.kubelet);
    NodeServerSettings {
        driver,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: site.node.to_owned(),
        kubelet_dir: site.kubelet.to_owned(),
        registration: Some(RegistrationSettings {
            directory: site.kubelet.join("plugins_registry"),
            endpoint: csi_socket.clone(),
        }),
        csi_socket,
        drain: DRAIN,
    }
}

/// Makes the directories in which sockets appear.
pub(super) fn make_directories(kubelet: &Path) -> std::io::Result<()> {
    for directory in [kubelet.join("plugins").join(DRIVER), kubelet.join("plugins_registry")] {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::create_dir_all(kubelet.join("pods"))
}

/// Our provider with the ways that lead to the local Azure.
fn provider(
    site: &NodeSite<'_>,
    azure: &AzureEnd,
    interval: PollInterval,
) -> Result<Arc<dyn Provider>, KubernetesRoadError> {
    let transport = azure.transport_of_node().map_err(|error| unfit(&error))?;
    let entra = TokenTransport::new(azure.token_options(Some(transport.unpaced())));
    let managed_identity =
        ManagedIdentityTransport::new(azure.token_options(None)).map_err(|error| unfit(&error))?;
    let ways = NodeWays {
        // No class here has an identity binding.
        token_proxy: entra.clone(),
        entra,
        transport,
        managed_identity,
        managed_identity_host: Some(site.imds.clone()),
        user_agent: None,
    };
    let settings = NodeVaultSettings {
        cloud: azure.cluster.azure.cloud,
        keep: interval.duration(),
        ..NodeVaultSettings::default()
    };
    let vaults = NodeVaults::new(settings, ways, None, SharedClock::clone(&azure.clock));
    let settings = AzureProviderSettings { interval, ..AzureProviderSettings::default() };
    Ok(Arc::new(AzureProvider::new(Arc::new(vaults), settings)))
}

fn unfit(error: &dyn std::error::Error) -> KubernetesRoadError {
    KubernetesRoadError::Node { problem: lanyard_vocabulary::causes(error) }
}

/// Ready when the end begins.
pub(super) async fn ended(mut end: watch::Receiver<bool>) {
    // Without a sender nobody is left who would wait for more.
    drop(end.wait_for(|ended| *ended).await);
}

const LARGEST_ANSWER: usize = 4 << 20;
