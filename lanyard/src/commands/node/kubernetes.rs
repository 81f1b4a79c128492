//! Where classes come from and who is told: the Kubernetes API, or a file and nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_node::{
    ClassSource, InMemoryClassSource, KubeClassCache, KubeClassCacheSettings, KubeReporter,
    KubeReporterSettings, MeteredReporter, NodeKubernetesApi, NodeMetrics, NoopReporter,
    PodEventQueue, Reporter, SecretSync, SecretSyncSettings,
};
use lanyard_telemetry::{Readiness, ReadinessGate};
use lanyard_vocabulary::format_error_chain;

use super::flags::{KubernetesArgs, NodeArgs};
use super::settings::NodeSettings;
use crate::commands::cluster_access;
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// The node's side of the Kubernetes API.
pub(super) struct NodeKubernetes {
    pub(super) classes: Arc<dyn ClassSource>,
    pub(super) reporter: Arc<dyn Reporter>,
    /// Keeps Secrets in step, where that is wished.
    pub(super) sync: Option<SecretSync>,
    /// Opens the gate of the API, where there is one.
    pub(super) api: Option<(NodeKubernetesApi, ReadinessGate)>,
}

/// What the API's side needs of the rest.
pub(super) struct KubernetesOpenContext<'a> {
    pub(super) environment: &'a ProcessEnvironment,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a NodeMetrics,
}

impl NodeKubernetes {
    /// Opens the API, without asking it anything yet.
    pub(super) async fn open(
        args: &NodeArgs,
        settings: &NodeSettings,
        around: &KubernetesOpenContext<'_>,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        if let Some(path) = &args.kubernetes.classes {
            let classes = Arc::new(load_classes(path)?);
            return Ok(Self { classes, reporter: Arc::new(NoopReporter), sync: None, api: None });
        }
        let access = require_api_access(&args.kubernetes, around.environment)?;
        let api = KubernetesApi::connect(&access, USER_AGENT, SharedClock::clone(clock)).await;
        let api = api.map_err(|error| {
            CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
        })?;
        let api = NodeKubernetesApi::new(api).with_metrics(around.metrics.clone());
        let node = &settings.server.node_id;
        let classes = Arc::new(KubeClassCache::new(api.clone(), KubeClassCacheSettings::default()));
        let events = PodEventQueue::start(api.clone(), node);
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
            let reporter = count_notices_only(&reporter, around.metrics);
            let sync = SecretSync::new(api.clone(), Arc::clone(&classes), reporter, settings);
            around.metrics.watch_sync(sync.health());
            sync
        });
        let gate = around.readiness.add_gate("kubernetes", "the API server was not asked yet");
        Ok(Self { classes, reporter, sync, api: Some((api, gate)) })
    }
}

/// Counts what is told by somebody whose failures show nowhere else.
pub(super) fn count_notices_only(
    reporter: &Arc<dyn Reporter>,
    metrics: &NodeMetrics,
) -> Arc<dyn Reporter> {
    Arc::new(MeteredReporter::counting_every_failure(Arc::clone(reporter), metrics.clone()))
}

/// Opens the gate as soon as the API gives classes. It stays open: mounted volumes do without it.
pub(super) async fn wait_for_api(api: NodeKubernetesApi, gate: ReadinessGate, clock: SharedClock) {
    let mut pause = FIRST_RETRY_PAUSE;
    while let Err(error) = api.probe().await {
        let problem = format_error_chain(&error);
        tracing::warn!(hint = error.hint(), "{problem}; trying again");
        gate.close(problem);
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY_PAUSE);
    }
    gate.open();
}

fn require_api_access(
    args: &KubernetesArgs,
    environment: &ProcessEnvironment,
) -> Result<ApiAccess, CommandError> {
    let access = cluster_access::api_access(args.kubeconfig.as_deref(), environment)?;
    access.ok_or_else(|| {
        CommandError::invalid_input("there is no way to the Kubernetes API")
            .with_hint("give --kubeconfig outside of a cluster, or --classes to do without one")
    })
}

fn load_classes(path: &Path) -> Result<InMemoryClassSource, CommandError> {
    let refused = |error: &dyn std::error::Error| {
        CommandError::invalid_input(format!("--classes: {} cannot be used", path.display()))
            .with_cause(error)
            .with_hint("give a file of SecretProviderClass documents, with their namespaces")
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(&error))?;
    let classes: Vec<SecretProviderClass> =
        serde_saphyr::from_multiple(&text).map_err(|error| refused(&error))?;
    Ok(InMemoryClassSource::new(classes))
}

const USER_AGENT: UserAgent =
    UserAgent::from_static(concat!("lanyard-node/", env!("CARGO_PKG_VERSION")));
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(15);
