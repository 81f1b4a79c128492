//! The plugin, put together.

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
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Serves until a supervisor asks for the end.
pub(super) async fn run(args: KmsArgs, environment: ProcessEnvironment) -> CommandResult {
    if args.version.0 {
        output::print_stdout(&version_json())?;
        return Ok(CommandExit::Success);
    }
    let settings = KmsSettings::resolve(&args)?;
    let mut signals = TerminationSignals::listen()?;
    warn_ignored_flags(&args);
    let clock = SystemClock::shared();
    let pages = KmsHttpEndpoints::bind(&settings).await?;
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
    let asked = async {
        let asked = signals.wait().await;
        tracing::info!(?asked, "ending");
    };
    serve_until_stopped(server, pages, (health, &args.http.healthz_path), &metrics, asked).await
}

/// As the other plugins print it.
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
    let ways = identity_transports(&transport, environment, clock)?;
    let credential = lanyard_kms::build_credential(configuration, ways).await.map_err(|error| {
        let told = CommandError::invalid_input(format_error_chain(&error));
        match error.hint() {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
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
    let text = std::fs::read_to_string(path).map_err(|error| {
        CommandError::unavailable(format!("cannot read {}", path.display()))
            .with_cause(&error)
            .with_hint("--config-file-path names the cloud provider's configuration")
    })?;
    KmsConfiguration::parse(&text).map_err(|error| {
        CommandError::invalid_input(path.display().to_string())
            .with_cause(&error)
            .with_hint(error.hint())
    })
}

/// The plugin repeats requests itself: it knows how long the API server waits. For the same reason a
/// request waits its turn for a moment only, and a vault that fails is looked at again soon.
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

/// The plugin has its vault almost to itself, which takes 400 operations in a second; an API server that
/// starts with many seeds to read asks for all of them at once.
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

/// The pages for monitoring systems and for probes.
struct KmsHttpEndpoints {
    metrics: Option<BoundListener>,
    health: Option<BoundListener>,
}

impl KmsHttpEndpoints {
    async fn bind(settings: &KmsSettings) -> Result<Self, CommandError> {
        let listen = async |address: ListenAddress| {
            BoundListener::bind(address).await.map_err(|error| {
                CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
            })
        };
        Ok(Self {
            metrics: listen(settings.metrics_address).await?,
            health: listen(settings.health_address).await?,
        })
    }
}

/// Serves socket and pages until the end is asked for. Without one of them the process would look
/// alive and do half its work, so it ends. The end is the socket's: a page that somebody is slow to
/// ask for or to read holds it up no longer than [`HTTP_SHUTDOWN_TIMEOUT`].
async fn serve_until_stopped(
    server: KmsServer,
    pages: KmsHttpEndpoints,
    (health, health_path): (KmsHealthEndpoints, &str),
    metrics: &KmsMetrics,
    asked: impl Future<Output = ()>,
) -> CommandResult {
    let (end, _) = watch::channel(false);
    let ended = || {
        let mut end = end.subscribe();
        async move { drop(end.wait_for(|ended| *ended).await) }
    };
    let clock = Arc::clone(&server.clock);
    let rest = HTTP_SHUTDOWN_TIMEOUT.min(server.drain);
    let (mut socket, mut served) = (KmsTasks::new(), KmsTasks::new());
    let pages = [
        ("the metrics page", pages.metrics, metrics_routes(metrics_page(metrics))),
        ("the health pages", pages.health, health.routes(health_path)),
    ];
    for (part, listening, routes) in pages {
        let Some(listening) = listening else { continue };
        tracing::info!(address = %listening.address(), "serving {part}");
        let serving = listening.serve(routes, Arc::clone(&clock), ended());
        let broken = move |error| CommandError::unavailable(part).with_cause(&error);
        served.spawn(async move { serving.await.map_err(broken) });
    }
    let serving = server.run(ended());
    socket.spawn(async move {
        let ended = serving.await;
        ended.map_err(|error| {
            CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
        })
    });
    let early = |part| {
        let early = || CommandError::unavailable("a part of the process ended by itself");
        task_result(part).and_then(|()| Err(early()))
    };
    let first = tokio::select! {
        () = asked => Ok(()),
        Some(part) = socket.join_next() => early(part),
        Some(part) = served.join_next() => early(part),
    };
    end.send_replace(true);
    let outcome = first.and(join_all_tasks(&mut socket).await);
    let pages = tokio::select! {
        biased;
        ended = join_all_tasks(&mut served) => ended,
        () = clock.sleep(rest) => {
            tracing::info!(waited = ?rest, "connections to the pages are broken off");
            Ok(())
        }
    };
    outcome.and(pages).map(|()| CommandExit::Success)
}

/// How long connections to the pages may last when the socket is gone.
const HTTP_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A part of the process, until it ends.
type KmsTasks = JoinSet<Result<(), CommandError>>;

/// The outcome of all parts, when all have ended.
async fn join_all_tasks(parts: &mut KmsTasks) -> Result<(), CommandError> {
    let mut outcome = Ok(());
    while let Some(part) = parts.join_next().await {
        outcome = outcome.and(task_result(part));
    }
    outcome
}

fn task_result(part: Result<Result<(), CommandError>, JoinError>) -> Result<(), CommandError> {
    part.unwrap_or_else(|error| {
        Err(CommandError::unavailable("a part of the process broke off").with_cause(&error))
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
