//! The Kubernetes integration of the node plugin: classes and reports through the Kubernetes API, or classes
//! from a file without reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_clock::{Backoff, ErrorHint as _, SharedClock};
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use lanyard_node::{
    KubeClassCache, KubeClassCacheSettings, KubeReporter, KubeReporterSettings, MeteredReporter,
    NodeKubernetesApi, NodeMetrics, NoopReporter, PodEventQueue, Reporter, SecretSync,
    SecretSyncSettings,
};
use lanyard_provider::{ClassSource, InMemoryClassSource};
use lanyard_telemetry::{Readiness, ReadinessGate};
use lanyard_vocabulary::format_error_chain;

use super::flags::{KubernetesArgs, NodeArgs};
use super::settings::NodeSettings;
use crate::commands::cluster_access;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The Kubernetes integration of the node plugin.
pub(super) struct NodeKubernetes {
    pub(super) classes: Arc<dyn ClassSource>,
    pub(super) reporter: Arc<dyn Reporter>,
    /// Synchronizes Secrets, if it is enabled.
    pub(super) sync: Option<SecretSync>,
    /// The API client and the readiness gate that it opens, if there is an API.
    pub(super) api: Option<(NodeKubernetesApi, ReadinessGate)>,
}

/// The dependencies of [`NodeKubernetes::open`].
pub(super) struct KubernetesOpenContext<'a> {
    pub(super) environment: &'a ProcessEnvironment,
    pub(super) readiness: &'a Readiness,
    pub(super) metrics: &'a NodeMetrics,
}

impl NodeKubernetes {
    /// Creates the API client without sending a request.
    pub(super) async fn open(
        args: &NodeArgs,
        settings: &NodeSettings,
        context: &KubernetesOpenContext<'_>,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        if let Some(path) = &args.kubernetes.classes {
            // The driver of a provider socket sends the content of its classes.
            let may_be_empty = args.providers.provider_socket.is_some();
            let classes = Arc::new(load_classes(path, may_be_empty)?);
            return Ok(Self { classes, reporter: Arc::new(NoopReporter), sync: None, api: None });
        }
        let access = require_api_access(&args.kubernetes, context.environment)?;
        let api = KubernetesApi::connect(&access, USER_AGENT, SharedClock::clone(clock)).await;
        let api = api?;
        let api = NodeKubernetesApi::new(api).with_metrics(context.metrics.clone());
        let node = &settings.server.node_id;
        let classes = Arc::new(KubeClassCache::new(api.clone(), KubeClassCacheSettings::default()));
        let events = PodEventQueue::start(api.clone(), node);
        context.metrics.watch_events(events.clone());
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
            let reporter = count_notices_only(&reporter, context.metrics);
            let sync = SecretSync::new(api.clone(), Arc::clone(&classes), reporter, settings);
            context.metrics.watch_sync(sync.health());
            sync
        });
        let gate = context
            .readiness
            .add_gate("kubernetes", "no request to the API server has succeeded yet");
        Ok(Self { classes, reporter, sync, api: Some((api, gate)) })
    }
}

/// A reporter that only counts notices, for sources whose failures have no other report.
pub(super) fn count_notices_only(
    reporter: &Arc<dyn Reporter>,
    metrics: &NodeMetrics,
) -> Arc<dyn Reporter> {
    Arc::new(MeteredReporter::counting_every_failure(Arc::clone(reporter), metrics.clone()))
}

/// Opens the readiness gate after the first successful list of classes. The gate stays open, because mounted
/// volumes do not need the API.
pub(super) async fn wait_for_api(api: NodeKubernetesApi, gate: ReadinessGate, clock: SharedClock) {
    let mut failures = 0;
    while let Err(error) = api.probe().await {
        let problem = format_error_chain(&error);
        tracing::warn!(hint = error.hint().as_deref(), "{problem}; trying again");
        gate.close(problem);
        failures += 1;
        clock.sleep(BACKOFF.delay(failures)).await;
    }
    gate.open();
}

fn require_api_access(
    args: &KubernetesArgs,
    environment: &ProcessEnvironment,
) -> Result<ApiAccess, CommandError> {
    let access = cluster_access::api_access(args.kubeconfig.as_deref(), environment)?;
    access.ok_or_else(|| {
        CommandError::invalid_input("cannot connect to the Kubernetes API")
            .with_hint("give --kubeconfig outside of a cluster, or --classes to do without one")
    })
}

fn load_classes(path: &Path, may_be_empty: bool) -> Result<InMemoryClassSource, CommandError> {
    let refused = format!("--classes: {} cannot be used", path.display());
    let hint = "give a file of SecretProviderClass documents, with their namespaces";
    let text = std::fs::read_to_string(path).or_invalid(&refused).hint(hint)?;
    let classes: Vec<SecretProviderClass> =
        serde_saphyr::from_multiple(&text).or_invalid(&refused).hint(hint)?;
    if classes.is_empty() && !may_be_empty {
        let message = format!("{refused}: it contains no SecretProviderClass");
        return Err(CommandError::invalid_input(message).with_hint(hint));
    }
    Ok(InMemoryClassSource::new(classes))
}

const USER_AGENT: UserAgent =
    UserAgent::from_static(concat!("lanyard-node/", env!("CARGO_PKG_VERSION")));
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
