//! The Key Vault provider of this process: how it reaches Azure, and what stands before it.

use std::path::Path;
use std::sync::Arc;

use azure_core::http::{ClientOptions, Transport as SdkTransport};
use lanyard_azure::{BreakerPolicy, Rate, Transport, TransportSettings};
use lanyard_clock::SharedClock;
use lanyard_credential::{
    ManagedIdentityTransport, TokenProxy, TokenProxySettings, TokenTransport, TokenTransportOptions,
};
use lanyard_keyvault::{
    CacheMemory, CertificateOptions, FileOptions, NodeVaultSettings, NodeVaults, NodeWays,
    ParseUserAgentError, StaleCache, UserAgentSuffix,
};
use lanyard_kubernetes::ApiAccess;
use lanyard_node::audit::AuditTrail;
use lanyard_node::policy::{GuardedProvider, PolicyKeeper, PolicyMode};
use lanyard_node::{AzureProvider, AzureProviderSettings, NodeMemory, NodeMetrics, Provider};
use lanyard_vocabulary::causes;

use super::counted_client::CountedClient;
use super::flags::{AzureArgs, NodeArgs, PolicyModeName};
use crate::commands::azure_way;
use crate::exit::CommandError;
use crate::settings::Environment;

/// Who looks at what the provider does.
pub(super) struct Before<'a> {
    pub(super) policy: &'a Arc<PolicyKeeper>,
    pub(super) audit: &'a AuditTrail,
    pub(super) metrics: &'a NodeMetrics,
}

/// The provider behind its policy.
pub(super) fn provider(
    args: &NodeArgs,
    environment: &Environment,
    before: &Before<'_>,
    (memory, clock): (&NodeMemory, &SharedClock),
) -> Result<Arc<dyn Provider>, CommandError> {
    let certificates = CertificateOptions {
        construct_pem_chain: args.azure.construct_pem_chain.0,
        separate: args.azure.write_cert_and_key_in_separate_files.0,
    };
    let interval = args.rotation.rotation_poll_interval;
    let settings = NodeVaultSettings {
        cloud: args.azure.cloud_name,
        cloud_env_dir: args.azure.cloud_env_dir.clone(),
        files: FileOptions { certificates, ..FileOptions::default() },
        keep: interval.duration(),
        content_limit: args.volumes.volume_content.bytes(),
    };
    let ways = ways(&args.azure, environment, before.metrics, clock)?;
    let stale = stale_cache(&args.azure, clock)?;
    let vaults = NodeVaults::new(settings, ways, Some(stale), SharedClock::clone(clock));
    let vaults = vaults_within(memory, vaults);
    let settings = AzureProviderSettings { interval, ..AzureProviderSettings::default() };
    let provider = AzureProvider::new(vaults, settings);
    let mode = match args.policy.policy_mode {
        PolicyModeName::Audit => PolicyMode::Audit,
        PolicyModeName::Enforce => PolicyMode::Enforce,
    };
    let policy = Arc::clone(before.policy);
    let guarded = GuardedProvider::new(Arc::new(provider), policy, mode, before.audit.clone());
    Ok(Arc::new(guarded.counted_by(before.metrics.clone())))
}

/// Counts what the vaults cache in the memory of the node, and evicts it where volumes need that.
fn vaults_within(memory: &NodeMemory, vaults: NodeVaults) -> Arc<NodeVaults> {
    let reads: Arc<dyn CacheMemory> = Arc::new(memory.cache());
    let vaults = Arc::new(vaults.caching_in(&reads, Arc::new(memory.cache())));
    let cached = Arc::downgrade(&vaults);
    memory.evict_with(move |bytes| {
        if let Some(vaults) = cached.upgrade() {
            vaults.evict(bytes);
        }
    });
    vaults
}

fn ways(
    args: &AzureArgs,
    environment: &Environment,
    metrics: &NodeMetrics,
    clock: &SharedClock,
) -> Result<NodeWays, CommandError> {
    let settings = TransportSettings {
        rate: Rate { per_second: args.vault_requests_per_second, burst: args.vault_request_burst },
        breaker: Some(BreakerPolicy::default()),
        ..azure_way::settings(environment)?
    };
    let counted =
        |client| CountedClient::around(client, metrics.clone(), SharedClock::clone(clock));
    let transport = Transport::wrapped(&settings, SharedClock::clone(clock), counted);
    let transport = transport.map_err(|error| azure_way::explain(&error))?;
    let managed_identity = ManagedIdentityTransport::new(token_options(None, clock))
        .map_err(|error| CommandError::unavailable(causes(&error)))?;
    Ok(NodeWays {
        entra: TokenTransport::new(token_options(Some(transport.unpaced()), clock)),
        token_proxy: TokenTransport::new(token_options(Some(token_proxy(args)?), clock)),
        transport,
        managed_identity,
        managed_identity_host: environment.managed_identity_host.clone(),
        user_agent: user_agent(args)?,
    })
}

/// Charts give an empty text for none.
fn user_agent(args: &AzureArgs) -> Result<Option<UserAgentSuffix>, CommandError> {
    let text = args.custom_user_agent.as_deref().unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: ParseUserAgentError| {
        CommandError::invalid("--custom-user-agent").because(&error)
    })
}

fn token_options(transport: Option<SdkTransport>, clock: &SharedClock) -> TokenTransportOptions {
    let mut options = TokenTransportOptions::default();
    options.client = ClientOptions { transport, ..ClientOptions::default() };
    options.clock = SharedClock::clone(clock);
    options
}

fn token_proxy(args: &AzureArgs) -> Result<SdkTransport, CommandError> {
    let mut settings = TokenProxySettings::default();
    settings.url.clone_from(&args.token_proxy_url);
    settings.server_name.clone_from(&args.sni_name);
    settings.ca_file = Some(Path::new(ApiAccess::SERVICE_ACCOUNT).join("ca.crt"));
    let proxy = TokenProxy::parse(settings).map_err(|error| {
        CommandError::invalid("--token-proxy-url and --sni-name").because(&error)
    })?;
    Ok(SdkTransport::new(proxy.into_client()))
}

fn stale_cache(args: &AzureArgs, clock: &SharedClock) -> Result<StaleCache, CommandError> {
    let cache = match (&args.stale_cache_key_file, &args.stale_cache_dir) {
        (Some(key), Some(directory)) => StaleCache::on_disk(key, directory, clock),
        _ => StaleCache::in_memory(),
    };
    cache.map_err(|error| CommandError::unavailable(causes(&error)).hint(error.hint()))
}
