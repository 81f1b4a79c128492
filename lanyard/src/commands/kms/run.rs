//! The plugin, put together.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::ClientOptions;
use lanyard_azure::{BreakerPolicy, Rate, RetryPolicy, Transport, TransportSettings};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_credential::{
    FederatedTokenSettings, ManagedIdentityTransport, TokenTransport, TokenTransportOptions,
};
use lanyard_kms::{
    Configuration, Health, IdentityWays, KmsMetrics, KmsServer, PinnedKey, Plugin, PluginParts,
    VaultKey,
};
use lanyard_telemetry::{
    BuildInfo, ListenAddress, Listening, MetricsPage, ProcessMetrics, Readiness, metrics_routes,
};
use lanyard_vocabulary::causes;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::flags::KmsArgs;
use super::settings::KmsSettings;
use crate::commands::azure_way;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output;
use crate::settings::Environment;
use crate::signals::Signals;

/// Serves until a supervisor asks for the end.
pub(super) async fn run(args: KmsArgs, environment: Environment) -> CommandResult {
    if args.version.0 {
        output::print(&version())?;
        return Ok(Exit::Good);
    }
    let settings = KmsSettings::resolve(&args)?;
    let mut signals = Signals::listen()?;
    tell_odd(&args);
    let clock = SystemClock::shared();
    let pages = Pages::bind(&settings).await?;
    let metrics = KmsMetrics::default();
    let plugin = plugin(&args, &settings, environment, &metrics, &clock).await?;
    tracing::info!(
        key = plugin.key().url(),
        key_id = plugin.key().id(),
        layout = ?args.key.ciphertext_layout,
        "one version of one key"
    );
    let readiness = Readiness::default();
    let gate = readiness.gate("socket", "not there yet");
    let health = Health {
        socket: settings.socket.clone(),
        readiness,
        key_id: plugin.key().id().to_owned(),
        limit: args.pages.healthz_timeout.0,
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
        let asked = signals.end().await;
        tracing::info!(?asked, "ending");
    };
    serve(server, pages, (health, &args.pages.healthz_path), &metrics, asked).await
}

/// As the other plugins print it.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    serde_json::json!({ "BuildVersion": version, "GitCommit": "", "BuildDate": "" }).to_string()
}

fn tell_odd(args: &KmsArgs) {
    let others = &args.without_meaning;
    let given = [
        ("--configFilePath", others.deprecated_config_file_path.is_some()),
        ("--proxy-address", others.proxy_address.is_some()),
        ("--proxy-port", others.proxy_port.is_some()),
    ];
    for (flag, _) in given.into_iter().filter(|(_, given)| *given) {
        tracing::warn!(flag, "this flag has no effect here");
    }
}

async fn plugin(
    args: &KmsArgs,
    settings: &KmsSettings,
    environment: Environment,
    metrics: &KmsMetrics,
    clock: &SharedClock,
) -> Result<Plugin, CommandError> {
    let configuration = configuration(&args.key.config_file_path)?;
    let key = PinnedKey::new(
        configuration.endpoints,
        settings.kind,
        settings.vault.clone(),
        settings.key.clone(),
        settings.version.clone(),
    );
    let transport = transport(&environment, clock)?;
    let ways = ways(&transport, environment, clock)?;
    let credential = lanyard_kms::credential(configuration, ways).await.map_err(|error| {
        let told = CommandError::invalid(causes(&error));
        match error.hint() {
            Some(hint) => told.hint(hint),
            None => told,
        }
    })?;
    let vault = VaultKey::new(&key, credential, &transport);
    Ok(Plugin::new(PluginParts {
        key,
        layout: args.key.ciphertext_layout.into(),
        vault: Arc::new(vault),
        metrics: metrics.clone(),
        clock: Arc::clone(clock),
    }))
}

fn configuration(path: &Path) -> Result<Configuration, CommandError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CommandError::unavailable(format!("cannot read {}", path.display()))
            .because(&error)
            .hint("--config-file-path names the cloud provider's configuration")
    })?;
    Configuration::parse(&text).map_err(|error| {
        CommandError::invalid(path.display().to_string()).because(&error).hint(error.hint())
    })
}

/// The plugin repeats requests itself: it knows how long the API server waits. For the same reason a
/// request waits its turn for a moment only, and a vault that fails is looked at again soon.
fn transport(environment: &Environment, clock: &SharedClock) -> Result<Transport, CommandError> {
    let retry = RetryPolicy { retries: 0, cap: Duration::from_secs(1), ..RetryPolicy::default() };
    let breaker = BreakerPolicy {
        first_pause: Duration::from_secs(1),
        longest_pause: Duration::from_secs(8),
        ..BreakerPolicy::default()
    };
    let breaker = Some(breaker);
    let settings =
        TransportSettings { rate: RATE, retry, breaker, ..azure_way::settings(environment)? };
    azure_way::transport(&settings, clock)
}

/// The plugin has its vault almost to itself, which takes 400 operations in a second; an API server that
/// starts with many seeds to read asks for all of them at once.
const RATE: Rate = Rate { per_second: 200, burst: 512 };

fn ways(
    transport: &Transport,
    environment: Environment,
    clock: &SharedClock,
) -> Result<IdentityWays, CommandError> {
    let options = || {
        let mut options = TokenTransportOptions::default();
        options.clock = Arc::clone(clock);
        options
    };
    let mut entra = options();
    entra.client =
        ClientOptions { transport: Some(transport.unpaced()), ..ClientOptions::default() };
    let managed_identity = ManagedIdentityTransport::new(options())
        .map_err(|error| CommandError::unavailable(causes(&error)))?;
    let mut workload = FederatedTokenSettings::default();
    workload.client_id = environment.azure_client_id;
    workload.tenant_id = environment.azure_tenant_id;
    workload.token_file = environment.azure_federated_token_file;
    workload.authority_host = environment.azure_authority_host;
    let managed_identity_host = environment.managed_identity_host;
    Ok(IdentityWays {
        entra: TokenTransport::new(entra),
        managed_identity,
        managed_identity_host,
        workload,
    })
}

/// The pages for monitoring systems and for probes.
struct Pages {
    metrics: Option<Listening>,
    health: Option<Listening>,
}

impl Pages {
    async fn bind(settings: &KmsSettings) -> Result<Self, CommandError> {
        let listen = async |address: ListenAddress| {
            Listening::bind(address)
                .await
                .map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))
        };
        Ok(Self {
            metrics: listen(settings.metrics).await?,
            health: listen(settings.health).await?,
        })
    }
}

/// Serves socket and pages until the end is asked for. Without one of them the process would look
/// alive and do half its work, so it ends. The end is the socket's: a page that somebody is slow to
/// ask for or to read holds it up no longer than [`PAGES_REST`].
async fn serve(
    server: KmsServer,
    pages: Pages,
    (health, health_path): (Health, &str),
    metrics: &KmsMetrics,
    asked: impl Future<Output = ()>,
) -> CommandResult {
    let (end, _) = watch::channel(false);
    let ended = || {
        let mut end = end.subscribe();
        async move { drop(end.wait_for(|ended| *ended).await) }
    };
    let clock = Arc::clone(&server.clock);
    let rest = PAGES_REST.min(server.drain);
    let (mut socket, mut served) = (Parts::new(), Parts::new());
    let pages = [
        ("the metrics page", pages.metrics, metrics_routes(metrics_page(metrics))),
        ("the health pages", pages.health, health.routes(health_path)),
    ];
    for (part, listening, routes) in pages {
        let Some(listening) = listening else { continue };
        tracing::info!(address = %listening.address(), "serving {part}");
        let serving = listening.serve(routes, Arc::clone(&clock), ended());
        let broken = move |error| CommandError::unavailable(part).because(&error);
        served.spawn(async move { serving.await.map_err(broken) });
    }
    let serving = server.run(ended());
    socket.spawn(async move {
        let ended = serving.await;
        ended.map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))
    });
    let early = |part| {
        let early = || CommandError::unavailable("a part of the process ended by itself");
        judged(part).and_then(|()| Err(early()))
    };
    let first = tokio::select! {
        () = asked => Ok(()),
        Some(part) = socket.join_next() => early(part),
        Some(part) = served.join_next() => early(part),
    };
    end.send_replace(true);
    let outcome = first.and(joined(&mut socket).await);
    let pages = tokio::select! {
        biased;
        ended = joined(&mut served) => ended,
        () = clock.sleep(rest) => {
            tracing::info!(waited = ?rest, "connections to the pages are broken off");
            Ok(())
        }
    };
    outcome.and(pages).map(|()| Exit::Good)
}

/// How long connections to the pages may last when the socket is gone.
const PAGES_REST: Duration = Duration::from_secs(1);

/// A part of the process, until it ends.
type Parts = JoinSet<Result<(), CommandError>>;

/// The outcome of all parts, when all have ended.
async fn joined(parts: &mut Parts) -> Result<(), CommandError> {
    let mut outcome = Ok(());
    while let Some(part) = parts.join_next().await {
        outcome = outcome.and(judged(part));
    }
    outcome
}

fn judged(part: Result<Result<(), CommandError>, JoinError>) -> Result<(), CommandError> {
    part.unwrap_or_else(|error| {
        Err(CommandError::unavailable("a part of the process broke off").because(&error))
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
