//! The context that all components of a run share: the local Azure, the rendered objects, the vault reader,
//! the transport and the directories.

use std::sync::Arc;

use lanyard_clock::SharedClock;
use lanyard_credential::ManagedIdentityTransport;
use lanyard_desired::{DesiredState, RenderContext, desired_state};
use lanyard_emulator::Emulator;
use lanyard_keyvault::{NodeTransports, NodeVaultSettings, NodeVaults};
use lanyard_provider::{
    AzureProvider, AzureProviderSettings, ClassSource, InMemoryClassSource, Provider,
};

use crate::azure_environment::AzureEnvironment;
use crate::options::Options;
use crate::run_directory::RunDirectory;
use crate::scenario_run_error::ScenarioRunError;

/// The context that all components share.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) azure: AzureEnvironment,
    pub(crate) desired: DesiredState,
    pub(crate) classes: Box<dyn ClassSource>,
    pub(crate) vaults: Arc<NodeVaults>,
    pub(crate) provider: Box<dyn Provider>,
    pub(crate) directory: RunDirectory,
}

impl RunContext {
    /// Starts the local Azure and builds its clients.
    pub(crate) async fn start(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), ScenarioRunError> {
        let place = std::env::temp_dir();
        RunDirectory::remove_abandoned(&place, &clock);
        let chosen = options.directory.as_deref();
        let directory = RunDirectory::create(&place, chosen, SharedClock::clone(&clock))?;
        let (azure, emulator) =
            AzureEnvironment::start(options, SharedClock::clone(&clock)).await?;
        let settings =
            NodeVaultSettings { cloud: azure.cluster.azure.cloud, ..NodeVaultSettings::default() };
        let transports = NodeTransports {
            vault_transport: azure.transport.clone(),
            entra_transport: azure.token_transport.clone(),
            managed_identity: ManagedIdentityTransport::new(azure.token_options(None))?,
            managed_identity_host: Some(emulator.proxy_url()),
            token_proxy: azure.token_transport.clone(),
            user_agent: None,
        };
        let vaults = Arc::new(NodeVaults::new(settings, transports, None, clock));
        let provider = AzureProvider::new(Arc::clone(&vaults), AzureProviderSettings::default());
        let names = RenderContext {
            vault_reader: Some(azure.vault_reader_client_id),
            ..RenderContext::default()
        };
        let desired = desired_state(&azure.cluster, &names);
        let context = Self {
            classes: Box::new(InMemoryClassSource::new(desired.secret_provider_classes.clone())),
            provider: Box::new(provider),
            vaults,
            directory,
            desired,
            azure,
        };
        Ok((context, emulator))
    }
}
