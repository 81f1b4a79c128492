//! The context that all components of a run share: the local Azure, the rendered objects, the vault reader,
//! the transport and the directories.

use std::sync::Arc;

use lanyard_azure::AzureTransportError;
use lanyard_clock::SharedClock;
use lanyard_credential::{ManagedIdentitySettingsError, ManagedIdentityTransport};
use lanyard_desired::{DesiredState, RenderContext, desired_state};
use lanyard_emulator::{Emulator, StartError};
use lanyard_keyvault::{NodeTransports, NodeVaultSettings, NodeVaults};
use lanyard_node::{
    AzureProvider, AzureProviderSettings, ClassSource, InMemoryClassSource, Provider,
};
use lanyard_vocabulary::Cloud;

use crate::azure_environment::AzureEnvironment;
use crate::options::Options;
use crate::run_directory::{CloseRunError, RunDirectory, RunDirectoryError};

/// The scenario run could not be started or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioRunError {
    /// The cloud has no fixed endpoints.
    #[error("the endpoints of {0} are not known")]
    Cloud(Cloud),
    /// The local Azure could not be started.
    #[error("the local Azure did not start")]
    Azure(#[from] StartError),
    /// The directory for the volumes cannot be used.
    #[error(transparent)]
    Directory(#[from] RunDirectoryError),
    /// The transport cannot be built.
    #[error("the transport to the local Azure cannot be built")]
    Transport(#[from] AzureTransportError),
    /// The client of the managed identity endpoint cannot be built.
    #[error("the client of the managed identity endpoint cannot be built")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// Volumes or directories of the run could not be removed.
    #[error("not all volumes and directories of the run could be removed")]
    Close(#[from] CloseRunError),
}

impl ScenarioRunError {
    /// Whether the HostedCluster or the fault is invalid.
    pub const fn is_invalid_input(&self) -> bool {
        match self {
            Self::Cloud(_) => true,
            Self::Azure(error) => error.is_invalid_plan(),
            _ => false,
        }
    }

    /// The next step for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Cloud(_) => "set spec.platform.azure.cloud to a cloud with known endpoints",
            // `lanyard azure serve` is the command for sharing a local Azure; a scenario run serves one
            // machine.
            Self::Azure(StartError::AddressReachableRemotely { .. }) => {
                "give --listen a loopback address, or use `lanyard azure serve --allow-remote`"
            }
            Self::Azure(error) => error.hint().unwrap_or("see the cause"),
            Self::Directory(RunDirectoryError::InUse { .. }) => {
                "end that run, or choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::LeftoverVolumes { .. }) => {
                "unmount and remove them, or choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::NotOwned { .. }) => {
                "choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::Io(_)) => {
                "set TMPDIR to a directory that you may write to, or choose another --directory"
            }
            Self::Transport(error) => error.hint(),
            Self::ManagedIdentity(_) => "run again with --log debug and report the log",
            Self::Close(_) => "the next `lanyard up` tries again; by hand: umount <directory>",
        }
    }
}

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
