//! `lanyard canary`: a small pod that continuously proves an identity.

mod settings;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use lanyard_azure::AzureTransportSettings;
use lanyard_canary::{
    CanaryDependencies, CanaryMetrics, FactsPublisher, IdentityCanary, PodAnnotation,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_kubernetes::{KubernetesApi, UserAgent};
use lanyard_telemetry::{
    BoundListener, ListenAddress, MetricsPage, Readiness, serve_process_endpoints,
};
use lanyard_vocabulary::{ArmResourceId, Cloud, Component};

use super::go_duration::GoDuration;
use super::{azure_transport, cluster_access};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

const EXAMPLE: &str = "\
Examples:
  lanyard canary --component disk --credential-file /mnt/certs/harbour-disk --no-annotation";

/// Continuously prove an identity in place of the component that uses it
///
/// Finds the credential file as the component would, keeps a token, and makes one call that the component's
/// role grants, at every interval and after each rotation. Reports the results as metrics and, on changes, in
/// an annotation of its own pod. Runs until SIGTERM, regardless of the state of the identity.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The component whose identity is proven, by its field in the HostedCluster API, such as `disk`
    #[arg(long, value_name = "NAME")]
    component: Component,
    #[command(flatten)]
    credential_source: CredentialFileArgs,
    /// The request that the role grants, such as `GET
    /// https://management.azure.com/subscriptions/ID?api-version=2021-04-01`; without it, the canary only
    /// requests a token
    #[arg(long, value_name = "'METHOD URL'")]
    call: Option<String>,
    /// The cloud, as the HostedCluster API names it
    #[arg(long, default_value = "AzurePublicCloud", value_name = "NAME")]
    cloud: Cloud,
    /// The time between two calls
    #[arg(long, default_value = "60s", value_name = "DURATION")]
    interval: GoDuration,
    /// The time after which the canary requests a new token although the current one is still valid, so that
    /// it detects a revoked identity
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    token_interval: GoDuration,
    #[command(flatten)]
    probes: CanaryProbeArgs,
    /// The address of metrics, /healthz and /readyz; 0 disables them
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    metrics_addr: ListenAddress,
    #[command(flatten)]
    pod: CanaryPodArgs,
}

/// The flags that locate the credential file.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct CredentialFileArgs {
    /// The credential file
    #[arg(long, value_name = "PATH")]
    credential_file: Option<PathBuf>,
    /// The environment variable that contains the path of the credential file
    #[arg(long, value_name = "VARIABLE")]
    credential_file_from_env: Option<String>,
    /// The cloud configuration (cloud.conf, azure.json) whose key aadMSIDataPlaneIdentityPath contains the
    /// path of the credential file
    #[arg(long, value_name = "PATH")]
    cloud_config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Probes")]
struct CanaryProbeArgs {
    /// An additional probe; may be given twice
    #[arg(long, value_enum, value_name = "PROBE")]
    probe: Vec<CanaryProbeArg>,
    /// The virtual network (for `network`)
    #[arg(long, value_name = "ID")]
    vnet_id: Option<ArmResourceId>,
    /// The network security group (for `network`)
    #[arg(long, value_name = "ID")]
    security_group_id: Option<ArmResourceId>,
    /// The resource group of the cluster (for `network`)
    #[arg(long, value_name = "ID")]
    resource_group_id: Option<ArmResourceId>,
    /// The key, `https://VAULT/keys/NAME/VERSION` (for `encryption`)
    #[arg(long, value_name = "URL")]
    key_url: Option<String>,
    /// The credential file to encrypt with, if it is not the component's own (for `encryption`)
    #[arg(long, value_name = "PATH")]
    encryption_credential_file: Option<PathBuf>,
    /// The time between two successful probes
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    probe_interval: GoDuration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CanaryProbeArg {
    /// The virtual network, the security group and the resource group exist in the same region
    Network,
    /// The key encrypts
    Encryption,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
struct CanaryPodArgs {
    /// The name of this pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,
    /// The namespace of this pod
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pod_namespace: Option<String>,
    /// The kubeconfig file for the Kubernetes API [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Do not write the annotation; report to metrics and the log only
    #[arg(long)]
    no_annotation: bool,
}

/// Runs the canary until a termination signal.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let settings = settings::resolve_settings(&args)?;
    let mut signals = TerminationSignals::listen()?;
    let clock = SystemClock::shared();
    let metrics = CanaryMetrics::new(args.component, SharedClock::clone(&clock));
    let listening = BoundListener::bind(args.metrics_addr).await?;
    let parts = canary_parts(&environment, &metrics, &clock)?;
    let mut canary = IdentityCanary::new(settings, parts);
    if let Some(annotation) = pod_annotation(&args.pod, &environment, &clock).await? {
        let annotation = Arc::new(annotation);
        canary = canary.with_publisher(FactsPublisher::new(
            annotation,
            SharedClock::clone(&clock),
            metrics.clone(),
        ));
    }
    let page = MetricsPage::of_process(env!("CARGO_PKG_VERSION"), |registry| {
        metrics.register(registry);
    });
    // The probes succeed as long as the process responds: a broken identity must neither restart the pod nor remove it
    // from its endpoints.
    let http = serve_process_endpoints(listening, page, Readiness::default(), clock);
    tokio::select! {
        () = canary.run() => {
            Err(CommandError::unavailable("the canary ended unexpectedly")
                .with_hint("report this bug"))
        }
        error = http => Err(CommandError::endpoints_failed(error)),
        end = signals.wait() => {
            tracing::info!(?end, "ending");
            Ok(CommandExit::Success)
        }
    }
}

fn canary_parts(
    environment: &ProcessEnvironment,
    metrics: &CanaryMetrics,
    clock: &SharedClock,
) -> Result<CanaryDependencies, CommandError> {
    let settings = AzureTransportSettings {
        retry: CanaryDependencies::RETRY,
        ..azure_transport::transport_settings(environment)?
    };
    let transport = azure_transport::build_transport(&settings, clock)?;
    let mut options = TokenTransportOptions::new(Some(transport.without_rate_limit()), clock);
    options.retry = Some(CanaryDependencies::token_retry());
    Ok(CanaryDependencies {
        clock: SharedClock::clone(clock),
        token_transport: TokenTransport::new(options),
        transport,
        metrics: metrics.clone(),
    })
}

/// The annotation of this pod, if the pod's name is known and the API is reachable.
async fn pod_annotation(
    pod: &CanaryPodArgs,
    environment: &ProcessEnvironment,
    clock: &SharedClock,
) -> Result<Option<PodAnnotation>, CommandError> {
    if pod.no_annotation {
        return Ok(None);
    }
    let access = cluster_access::api_access(pod.kubeconfig.as_deref(), environment)?;
    let (Some(access), Some(name), Some(namespace)) = (access, &pod.pod_name, &pod.pod_namespace)
    else {
        let hint = "set POD_NAME and POD_NAMESPACE in a cluster, or give --no-annotation";
        tracing::warn!(hint, "the canary reports to metrics and the log only");
        return Ok(None);
    };
    let agent = UserAgent::from_static(concat!("lanyard-canary/", env!("CARGO_PKG_VERSION")));
    let api = KubernetesApi::connect(&access, agent, SharedClock::clone(clock)).await;
    let api = api?;
    Ok(Some(PodAnnotation::new(api, namespace, name)))
}
