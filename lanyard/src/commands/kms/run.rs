//! Assembles and runs the KMS plugin.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::ClientOptions;
use lanyard_azure::{
    AzureTransport, AzureTransportSettings, CircuitBreakerPolicy, RequestRate, RetryPolicy,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_credential::{
    FederatedTokenSettings, ManagedIdentityTransport, TokenTransport, TokenTransportOptions,
};
use lanyard_kms::{
    IdentitySources, KeyVaultKeyClient, KmsConfiguration, KmsHealthEndpoints, KmsMetrics,
    KmsPlugin, KmsPluginParts, KmsServer, PinnedKey,
};
use lanyard_telemetry::{
    BoundListener, BuildInfo, ListenAddress, MetricsPage, ProcessMetrics, Readiness, metrics_routes,
};
use lanyard_vocabulary::format_error_chain;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::flags::KmsArgs;
use super::settings::KmsSettings;
use crate::commands::azure_transport;
use crate::exit::{CommandError, CommandExit, CommandResult, ForeignResult as _, ResultExt as _};
use crate::output;
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Serves until a termination signal.
pub(super) async fn run(args: KmsArgs, environment: ProcessEnvironment) -> CommandResult {
    if args.version.0 {
        output::print_stdout(&version_json())?;
        return Ok(CommandExit::Success);
    }
    let settings = KmsSettings::resolve(&args)?;
    let mut signals = TerminationSignals::listen()?;
    warn_ignored_flags(&args);
    let clock = SystemClock::shared();
    let endpoints = KmsHttpEndpoints::bind(&settings).await?;
    let metrics = KmsMetrics::default();
    let plugin = build_plugin(&args, &settings, environment, &metrics, &clock).await?;
    tracing::info!(
        key = plugin.key().url(),
        key_id = plugin.key().id(),
        layout = ?args.key.ciphertext_layout,
        "one version of one key"
    );
    let readiness = Readiness::default();
    let gate = readiness.add_gate("socket", "not there yet");
    let health = KmsHealthEndpoints {
        socket: settings.socket.clone(),
        readiness,
        key_id: plugin.key().id().to_owned(),
        timeout: args.http.healthz_timeout.0,
        clock: Arc::clone(&clock),
    };
    let server = KmsServer {
        socket: settings.socket.clone(),
        plugin,
        gate,
        drain: args.socket.drain_timeout.0,
        clock: Arc::clone(&clock),
    };
    let stop_requested = async {
        let stop_requested = signals.wait().await;
        tracing::info!(?stop_requested, "ending");
    };
    serve_until_stopped(
        server,
        endpoints,
        (health, &args.http.healthz_path),
        &metrics,
        stop_requested,
    )
    .await
}

/// The version in the JSON format of the upstream plugins.
fn version_json() -> String {
    let version = env!("CARGO_PKG_VERSION");
    serde_json::json!({ "BuildVersion": version, "GitCommit": "", "BuildDate": "" }).to_string()
}

fn warn_ignored_flags(args: &KmsArgs) {
    let others = &args.ignored;
    let given = [
        ("--configFilePath", others.deprecated_config_file_path.is_some()),
        ("--proxy-address", others.proxy_address.is_some()),
        ("--proxy-port", others.proxy_port.is_some()),
    ];
    for (flag, _) in given.into_iter().filter(|(_, given)| *given) {
        tracing::warn!(flag, "this flag has no effect here");
    }
}

async fn build_plugin(
    args: &KmsArgs,
    settings: &KmsSettings,
    environment: ProcessEnvironment,
    metrics: &KmsMetrics,
    clock: &SharedClock,
) -> Result<KmsPlugin, CommandError> {
    let configuration = load_configuration(&args.key.config_file_path)?;
    let key = PinnedKey::new(
        configuration.endpoints,
        settings.vault_kind,
        settings.vault.clone(),
        settings.key.clone(),
        settings.version.clone(),
    );
    let transport = kms_transport(&environment, clock)?;
    let transports = identity_transports(&transport, environment, clock)?;
    let credential =
        lanyard_kms::build_credential(configuration, transports).await.map_err(|error| {
            CommandError::invalid_input(format_error_chain(&error)).with_hint_of(&error)
        })?;
    let vault = KeyVaultKeyClient::new(&key, credential, &transport);
    Ok(KmsPlugin::new(KmsPluginParts {
        key,
        layout: args.key.ciphertext_layout.into(),
        vault: Arc::new(vault),
        metrics: metrics.clone(),
        clock: Arc::clone(clock),
    }))
}

fn load_configuration(path: &Path) -> Result<KmsConfiguration, CommandError> {
    let text = std::fs::read_to_string(path)
        .or_unavailable(format_args!("cannot read {}", path.display()))
        .hint("--config-file-path names the cloud provider's configuration")?;
    KmsConfiguration::parse(&text).context(path.display()).as_invalid_input()
}

/// The transport does not retry, because the plugin retries by itself, within the API server's timeout. For
/// the same reason, requests wait only shortly for the rate limiter, and the circuit breaker of a failing
/// vault half-opens soon.
fn kms_transport(
    environment: &ProcessEnvironment,
    clock: &SharedClock,
) -> Result<AzureTransport, CommandError> {
    let retry = RetryPolicy { retries: 0, cap: Duration::from_secs(1), ..RetryPolicy::default() };
    let breaker = CircuitBreakerPolicy {
        initial_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(8),
        ..CircuitBreakerPolicy::default()
    };
    let breaker = Some(breaker);
    let settings = AzureTransportSettings {
        rate: VAULT_RATE,
        retry,
        breaker,
        ..azure_transport::transport_settings(environment)?
    };
    azure_transport::build_transport(&settings, clock)
}

/// A vault allows 400 operations per second, and the plugin is almost its only client. A starting API server
/// with many seeds requests all of them at once.
const VAULT_RATE: RequestRate = RequestRate { per_second: 200, burst: 512 };

fn identity_transports(
    transport: &AzureTransport,
    environment: ProcessEnvironment,
    clock: &SharedClock,
) -> Result<IdentitySources, CommandError> {
    let options = || {
        let mut options = TokenTransportOptions::default();
        options.clock = Arc::clone(clock);
        options
    };
    let mut entra = options();
    entra.client = ClientOptions {
        transport: Some(transport.without_rate_limit()),
        ..ClientOptions::default()
    };
    let managed_identity = ManagedIdentityTransport::new(options())
        .map_err(|error| CommandError::unavailable(format_error_chain(&error)))?;
    let mut workload = FederatedTokenSettings::default();
    workload.client_id = environment.azure_client_id;
    workload.tenant_id = environment.azure_tenant_id;
    workload.token_file = environment.azure_federated_token_file;
    workload.authority_host = environment.azure_authority_host;
    let managed_identity_host = environment.managed_identity_host;
    Ok(IdentitySources {
        entra: TokenTransport::new(entra),
        managed_identity,
        managed_identity_host,
        workload,
    })
}

/// The HTTP endpoints for monitoring systems and probes.
struct KmsHttpEndpoints {
    metrics: Option<BoundListener>,
    health: Option<BoundListener>,
}

impl KmsHttpEndpoints {
    async fn bind(settings: &KmsSettings) -> Result<Self, CommandError> {
        let listen = async |address: ListenAddress| {
            BoundListener::bind(address).await.map_err(CommandError::from)
        };
        Ok(Self {
            metrics: listen(settings.metrics_address).await?,
            health: listen(settings.health_address).await?,
        })
    }
}

/// Serves the socket and the HTTP endpoints until shutdown is requested. Ends the process if one of them
/// fails, because a partially working process would look alive. The socket determines the end: slow HTTP
/// connections delay it by at most [`HTTP_SHUTDOWN_TIMEOUT`].
async fn serve_until_stopped(
    server: KmsServer,
    endpoints: KmsHttpEndpoints,
    (health, health_path): (KmsHealthEndpoints, &str),
    metrics: &KmsMetrics,
    stop_requested: impl Future<Output = ()>,
) -> CommandResult {
    let (end, _) = watch::channel(false);
    let ended = || {
        let mut end = end.subscribe();
        async move { drop(end.wait_for(|ended| *ended).await) }
    };
    let clock = Arc::clone(&server.clock);
    let timeout = HTTP_SHUTDOWN_TIMEOUT.min(server.drain);
    let (mut socket, mut served) = (KmsTasks::new(), KmsTasks::new());
    let endpoints = [
        ("the metrics endpoint", endpoints.metrics, metrics_routes(metrics_page(metrics))),
        ("the health endpoints", endpoints.health, health.routes(health_path)),
    ];
    for (task, listening, routes) in endpoints {
        let Some(listening) = listening else { continue };
        tracing::info!(address = %listening.address(), "serving {task}");
        let serving = listening.serve(routes, Arc::clone(&clock), ended());
        let broken = move |error| CommandError::unavailable(task).with_cause(&error);
        served.spawn(async move { serving.await.map_err(broken) });
    }
    let serving = server.run(ended());
    socket.spawn(async move {
        let ended = serving.await;
        ended.map_err(CommandError::from)
    });
    let unexpected_end = |task| {
        let error = || CommandError::unavailable("a task of the process ended unexpectedly");
        task_result(task).and_then(|()| Err(error()))
    };
    let first = tokio::select! {
        () = stop_requested => Ok(()),
        Some(task) = socket.join_next() => unexpected_end(task),
        Some(task) = served.join_next() => unexpected_end(task),
    };
    end.send_replace(true);
    let outcome = first.and(join_all_tasks(&mut socket).await);
    let http_result = tokio::select! {
        biased;
        ended = join_all_tasks(&mut served) => ended,
        () = clock.sleep(timeout) => {
            tracing::info!(waited = ?timeout, "closing the remaining HTTP connections");
            Ok(())
        }
    };
    outcome.and(http_result).map(|()| CommandExit::Success)
}

/// How long HTTP connections may continue after the socket has closed.
const HTTP_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks of the process.
type KmsTasks = JoinSet<Result<(), CommandError>>;

/// Waits for all tasks and returns the first error.
async fn join_all_tasks(tasks: &mut KmsTasks) -> Result<(), CommandError> {
    let mut outcome = Ok(());
    while let Some(task) = tasks.join_next().await {
        outcome = outcome.and(task_result(task));
    }
    outcome
}

fn task_result(task: Result<Result<(), CommandError>, JoinError>) -> Result<(), CommandError> {
    task.unwrap_or_else(|error| {
        Err(CommandError::unavailable("a task of the process panicked").with_cause(&error))
    })
}

fn metrics_page(metrics: &KmsMetrics) -> MetricsPage {
    MetricsPage::build(|registry| {
        metrics.register(registry);
        ProcessMetrics.register(registry);
        BuildInfo { version: env!("CARGO_PKG_VERSION") }.register(registry);
    })
}

#[cfg(test)]
mod tests;
