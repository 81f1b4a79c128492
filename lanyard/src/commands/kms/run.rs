//! Assembles and runs the KMS plugin.

use std::path::Path;
use std::sync::Arc;

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_kms::{
    IdentitySources, KeyVaultKeyClient, KmsConfiguration, KmsHealthEndpoints, KmsHttpListeners,
    KmsMetrics, KmsPlugin, KmsPluginParts, KmsServer, PinnedKey, build_credential,
    transport_settings,
};
use lanyard_telemetry::Readiness;

use super::flags::KmsArgs;
use super::settings::KmsSettings;
use crate::commands::azure_transport;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
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
    let listeners =
        KmsHttpListeners::bind(settings.metrics_address, settings.health_address).await?;
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
    listeners.serve(server, (health, &args.http.healthz_path), &metrics, stop_requested).await?;
    Ok(CommandExit::Success)
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
    let transport = transport_settings(azure_transport::transport_settings(&environment)?);
    let transport = azure_transport::build_transport(&transport, clock)?;
    let (host, workload) =
        (environment.managed_identity_host.clone(), environment.workload_identity());
    let sources = IdentitySources::new(&transport, host, workload, clock)?;
    let credential = build_credential(configuration, sources).await.mark_invalid()?;
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
    KmsConfiguration::parse(&text).context(path.display()).mark_invalid()
}
