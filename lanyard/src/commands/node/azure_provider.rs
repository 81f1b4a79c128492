//! Builds the Key Vault provider of this process: its transports, caches, policy and audit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use azure_core::http::Transport as SdkTransport;
use lanyard_azure::{AzureTransport, AzureTransportSettings, CircuitBreakerPolicy, RequestRate};
use lanyard_clock::SharedClock;
use lanyard_credential::{
    ManagedIdentityTransport, TokenProxy, TokenProxySettings, TokenTransport, TokenTransportOptions,
};
use lanyard_keyvault::{
    CacheMemory, CertificateFileOptions, NodeTransports, NodeVaultSettings, NodeVaults, StaleCache,
    UserAgentSuffix, VolumeFileOptions,
};
use lanyard_kubernetes::ApiAccess;
use lanyard_node::audit::AuditTrail;
use lanyard_node::policy::{PolicyCheckedProvider, PolicyMode, ReloadablePolicy};
use lanyard_node::{MemoryAccount, NodeMetrics};
use lanyard_provider::{AzureProvider, AzureProviderSettings, Provider};
use lanyard_vocabulary::format_error_chain;

use super::flags::{KeyVaultArgs, NodeArgs, PolicyModeArg};
use super::vault_request_counter::VaultRequestCounter;
use crate::commands::azure_transport;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The policy, the audit trail and the metrics that apply to every read of the provider.
pub(super) struct ProviderControls<'a> {
    pub(super) policy: &'a Arc<ReloadablePolicy>,
    pub(super) audit: &'a AuditTrail,
    pub(super) metrics: &'a NodeMetrics,
}

/// Builds the built-in provider, whose reads the policy checks and the audit trail records.
pub(super) fn build_provider(
    args: &NodeArgs,
    environment: &ProcessEnvironment,
    controls: &ProviderControls<'_>,
    (memory, clock): (&MemoryAccount, &SharedClock),
) -> Result<Arc<dyn Provider>, CommandError> {
    let certificates = CertificateFileOptions {
        construct_pem_chain: args.key_vault.construct_pem_chain.0,
        write_separate_files: args.key_vault.write_cert_and_key_in_separate_files.0,
    };
    let interval = args.rotation.rotation_poll_interval;
    let settings = NodeVaultSettings {
        cloud: args.key_vault.cloud_name,
        cloud_env_dir: args.key_vault.cloud_env_dir.clone(),
        files: VolumeFileOptions { certificates, ..VolumeFileOptions::default() },
        cache_retention: interval.duration(),
        max_content_bytes: args.volumes.volume_content.bytes(),
    };
    let transports = vault_transports(&args.key_vault, environment, controls.metrics, clock)?;
    let stale = open_stale_cache(&args.key_vault, clock)?;
    let vaults = NodeVaults::new(settings, transports, Some(stale), SharedClock::clone(clock));
    let vaults = share_node_memory(memory, vaults);
    let settings = AzureProviderSettings { interval, ..AzureProviderSettings::default() };
    let provider = AzureProvider::new(vaults, settings);
    let mode = match args.policy.policy_mode {
        PolicyModeArg::Audit => PolicyMode::Audit,
        PolicyModeArg::Enforce => PolicyMode::Enforce,
    };
    let policy = Arc::clone(controls.policy);
    let guarded =
        PolicyCheckedProvider::new(Arc::new(provider), policy, mode, controls.audit.clone());
    Ok(Arc::new(guarded.with_metrics(controls.metrics.clone())))
}

/// Accounts the caches of the vault clients in the node's memory account, and evicts them when volumes need
/// the memory.
fn share_node_memory(memory: &MemoryAccount, vaults: NodeVaults) -> Arc<NodeVaults> {
    let reads: Arc<dyn CacheMemory> = Arc::new(memory.cache_memory());
    let vaults = Arc::new(vaults.with_cache_memory(&reads, Arc::new(memory.cache_memory())));
    let cached = Arc::downgrade(&vaults);
    memory.set_evictor(move |bytes| {
        if let Some(vaults) = cached.upgrade() {
            vaults.evict(bytes);
        }
    });
    vaults
}

fn vault_transports(
    args: &KeyVaultArgs,
    environment: &ProcessEnvironment,
    metrics: &NodeMetrics,
    clock: &SharedClock,
) -> Result<NodeTransports, CommandError> {
    let settings = AzureTransportSettings {
        rate: RequestRate {
            per_second: args.vault_requests_per_second,
            burst: args.vault_request_burst,
        },
        breaker: Some(CircuitBreakerPolicy::default()),
        ..azure_transport::transport_settings(environment)?
    };
    let counted =
        |client| VaultRequestCounter::wrap(client, metrics.clone(), SharedClock::clone(clock));
    let transport =
        AzureTransport::with_wrapped_client(&settings, SharedClock::clone(clock), counted);
    let transport = transport.context("Azure cannot be reached")?;
    let managed_identity =
        ManagedIdentityTransport::new(TokenTransportOptions::new(None, clock))
            .map_err(|error| CommandError::unavailable(format_error_chain(&error)))?;
    Ok(NodeTransports {
        entra_transport: TokenTransport::new(TokenTransportOptions::new(
            Some(transport.without_rate_limit()),
            clock,
        )),
        token_proxy: TokenTransport::new(TokenTransportOptions::new(
            Some(token_proxy_transport(args)?),
            clock,
        )),
        vault_transport: transport,
        managed_identity,
        managed_identity_host: environment.managed_identity_host.clone(),
        user_agent: parse_user_agent(args)?,
    })
}

/// Parses the user agent suffix. Charts pass an empty text to omit it.
fn parse_user_agent(args: &KeyVaultArgs) -> Result<Option<UserAgentSuffix>, CommandError> {
    let text = args.custom_user_agent.as_deref().unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).or_invalid("--custom-user-agent")
}

fn token_proxy_transport(args: &KeyVaultArgs) -> Result<SdkTransport, CommandError> {
    let mut settings = TokenProxySettings::default();
    settings.url.clone_from(&args.token_proxy_url);
    settings.server_name.clone_from(&args.sni_name);
    settings.ca_file = cluster_ca_file(Path::new(ApiAccess::SERVICE_ACCOUNT));
    let proxy = TokenProxy::parse(settings).or_invalid("--token-proxy-url and --sni-name")?;
    Ok(SdkTransport::new(proxy.into_client()))
}

/// The CA file of the cluster in the ServiceAccount volume. Outside of a pod the volume does not exist, and
/// the token proxy is trusted by the system roots.
fn cluster_ca_file(service_account: &Path) -> Option<PathBuf> {
    service_account.is_dir().then(|| service_account.join("ca.crt"))
}

fn open_stale_cache(args: &KeyVaultArgs, clock: &SharedClock) -> Result<StaleCache, CommandError> {
    let cache = match (&args.stale_cache_key_file, &args.stale_cache_dir) {
        (Some(key), Some(directory)) => StaleCache::on_disk(key, directory, clock),
        _ => StaleCache::in_memory(),
    };
    cache.map_err(CommandError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_file_of_the_cluster_is_required_in_a_pod() {
        let service_account = tempfile::tempdir().unwrap();
        // The file is missing: the token proxy fails instead of trusting the roots of the system.
        let expected = service_account.path().join("ca.crt");
        assert_eq!(cluster_ca_file(service_account.path()), Some(expected));
        assert_eq!(cluster_ca_file(&service_account.path().join("absent")), None);
    }
}
