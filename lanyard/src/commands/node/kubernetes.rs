//! Where classes come from and who is told: the Kubernetes API, or a file and nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_node::{
    ClassSource, CountedReporter, EventQueue, KubeClasses, KubeClassesSettings, KubeReporter,
    KubeReporterSettings, MemoryClasses, NoReporter, NodeApi, NodeMetrics, Reporter, SecretSync,
    SecretSyncSettings,
};
use lanyard_telemetry::{Gate, Readiness};
use lanyard_vocabulary::causes;

use super::flags::{KubernetesArgs, NodeArgs};
use super::settings::NodeSettings;
use crate::commands::cluster_access;
use crate::exit::CommandError;
use crate::settings::Environment;

/// The node's side of the Kubernetes API.
pub(super) struct Cluster {
    pub(super) classes: Arc<dyn ClassSource>,
    pub(super) reporter: Arc<dyn Reporter>,
    /// Keeps Secrets in step, where that is wished.
    pub(super) sync: Option<SecretSync>,
    /// Opens the gate of the API, where there is one.
    pub(super) api: Option<(NodeApi, Gate)>,
}

/// What the API's side needs of the rest.
pub(super) struct Surroundings<'a> {
    pub(super) environment: &'a Environment,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a NodeMetrics,
}

impl Cluster {
    /// Opens the API, without asking it anything yet.
    pub(super) async fn open(
        args: &NodeArgs,
        settings: &NodeSettings,
        around: &Surroundings<'_>,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        if let Some(path) = &args.kubernetes.classes {
            let classes = Arc::new(load_classes(path)?);
            return Ok(Self { classes, reporter: Arc::new(NoReporter), sync: None, api: None });
        }
        let access = access(&args.kubernetes, around.environment)?;
        let api = KubernetesApi::connect(&access, USER_AGENT, SharedClock::clone(clock)).await;
        let api =
            api.map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))?;
        let api = NodeApi::new(api).counted_by(around.metrics.clone());
        let node = &settings.server.node_id;
        let classes = Arc::new(KubeClasses::new(api.clone(), KubeClassesSettings::default()));
        let events = EventQueue::start(api.clone(), node);
        around.metrics.watch_events(events.clone());
        let reporter =
            KubeReporter::new(api.clone(), node, events, KubeReporterSettings::default());
        let reporter: Arc<dyn Reporter> = Arc::new(reporter);
        let sync = args.kubernetes.sync_secrets.0.then(|| {
            let settings = SecretSyncSettings {
                node: node.clone(),
                driver: settings.server.driver.to_string(),
                kubelet_directory: settings.server.kubelet_dir.clone(),
                interval: settings.rotator.interval.unwrap_or_default(),
            };
            let reporter = alone(&reporter, around.metrics);
            let sync = SecretSync::new(api.clone(), Arc::clone(&classes), reporter, settings);
            around.metrics.watch_sync(sync.problem());
            sync
        });
        let gate = around.readiness.gate("kubernetes", "the API server was not asked yet");
        Ok(Self { classes, reporter, sync, api: Some((api, gate)) })
    }
}

/// Counts what is told by somebody whose failures show nowhere else.
pub(super) fn alone(reporter: &Arc<dyn Reporter>, metrics: &NodeMetrics) -> Arc<dyn Reporter> {
    Arc::new(CountedReporter::of_notices_alone(Arc::clone(reporter), metrics.clone()))
}

/// Opens the gate as soon as the API gives classes. It stays open: mounted volumes do without it.
pub(super) async fn reach(api: NodeApi, gate: Gate, clock: SharedClock) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = api.probe().await {
        let problem = causes(&error);
        tracing::warn!(hint = error.hint(), "{problem}; trying again");
        gate.close(problem);
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    gate.open();
}

fn access(args: &KubernetesArgs, environment: &Environment) -> Result<ApiAccess, CommandError> {
    let access = cluster_access::access(args.kubeconfig.as_deref(), environment)?;
    access.ok_or_else(|| {
        CommandError::invalid("there is no way to the Kubernetes API")
            .hint("give --kubeconfig outside of a cluster, or --classes to do without one")
    })
}

fn load_classes(path: &Path) -> Result<MemoryClasses, CommandError> {
    let refused = |error: &dyn std::error::Error| {
        CommandError::invalid(format!("--classes: {} cannot be used", path.display()))
            .because(error)
            .hint("give a file of SecretProviderClass documents, with their namespaces")
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(&error))?;
    let classes: Vec<SecretProviderClass> =
        serde_saphyr::from_multiple(&text).map_err(|error| refused(&error))?;
    Ok(MemoryClasses::new(classes))
}

const USER_AGENT: UserAgent =
    UserAgent::from_static(concat!("lanyard-node/", env!("CARGO_PKG_VERSION")));
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
