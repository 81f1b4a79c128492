//! What all components share: the local Azure, the rendered objects, the vault reader, the
//! transport, the directory.

use std::borrow::Cow;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_azure::TransportError;
use lanyard_clock::SharedClock;
use lanyard_credential::{
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentitySettingsError,
};
use lanyard_desired::{Desired, Names, desired};
use lanyard_emulator::{Emulator, StartError};
use lanyard_keyvault::{KeyVault, VaultError};
use lanyard_node::{ClassSource, MemoryClasses};
use lanyard_vocabulary::Cloud;

use crate::azure_end::AzureEnd;
use crate::mounts::{CloseError, RunDirectory};
use crate::options::Options;

/// The road could not be built, or not be cleared away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoadError {
    /// The cloud has no fixed endpoints.
    #[error("the endpoints of {0} are not known")]
    Cloud(Cloud),
    /// The local Azure did not start.
    #[error("the local Azure did not start")]
    Azure(#[from] StartError),
    /// The directory for the volumes cannot be used.
    #[error("the directory for the volumes cannot be used")]
    Directory(#[source] std::io::Error),
    /// The transport cannot be built.
    #[error("the transport to the local Azure cannot be built")]
    Transport(#[from] TransportError),
    /// The client of the control API cannot be built.
    #[error("the client of the control API cannot be built")]
    Control(#[source] reqwest::Error),
    /// The vault reader's credential cannot be built.
    #[error("the vault reader's credential cannot be built")]
    Reader(#[from] ManagedIdentitySettingsError),
    /// The client of the vault cannot be built.
    #[error("the client of the vault cannot be built")]
    Vault(#[from] VaultError),
    /// A volume could not be taken away.
    #[error("a volume was left behind")]
    Volume(#[from] lanyard_node::PublishError),
    /// The directory of the volumes could not be cleared.
    #[error("the directory of the volumes was not cleared")]
    Clear(#[from] CloseError),
}

impl RoadError {
    /// Whether the HostedCluster or the fault asks for what cannot be.
    pub const fn is_invalid_input(&self) -> bool {
        match self {
            Self::Cloud(_) => true,
            Self::Azure(error) => error.is_invalid_plan(),
            _ => false,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Cloud(_) => "set spec.platform.azure.cloud to a cloud with known endpoints",
            // Whoever wants to share a local Azure serves one; a road is for one machine.
            Self::Azure(StartError::Remote { .. }) => {
                "give --listen a loopback address, or use `lanyard azure serve --allow-remote`"
            }
            Self::Azure(error) => error.hint().unwrap_or("see the cause"),
            Self::Directory(_) => "choose another directory with --directory",
            Self::Transport(error) => error.hint(),
            Self::Control(_) | Self::Reader(_) | Self::Vault(_) => {
                "run again with --log debug and report what it says"
            }
            Self::Volume(_) | Self::Clear(_) => "unmount it by hand: umount <directory>",
        };
        fixed.into()
    }
}

/// What all components share.
#[derive(Debug)]
pub(crate) struct Roadbed {
    pub(crate) azure: AzureEnd,
    pub(crate) desired: Desired,
    pub(crate) classes: Box<dyn ClassSource>,
    pub(crate) reader: Arc<ManagedIdentityCredential>,
    pub(crate) vault: KeyVault,
    pub(crate) directory: RunDirectory,
}

impl Roadbed {
    /// Starts the local Azure and everything that leads to it.
    pub(crate) async fn build(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), RoadError> {
        let directory = options.directory.clone();
        let (azure, emulator) = AzureEnd::start(options, clock).await?;
        let mut identity = ManagedIdentitySettings::default();
        identity.identity = Some(ManagedIdentityId::ClientId(azure.reader_client_id.to_string()));
        identity.imds_host = Some(emulator.proxy_url());
        let reader = ManagedIdentityCredential::new(identity, azure.token_options(None))?;
        let tokens: Arc<dyn TokenCredential> = Arc::<ManagedIdentityCredential>::clone(&reader);
        let vault = KeyVault::new(
            &KeyVault::url_of(&azure.cluster.vault.name, azure.endpoints),
            tokens,
            azure.transport.client_options(),
        )?;
        let names = Names { vault_reader: Some(azure.reader_client_id), ..Names::default() };
        let desired = desired(&azure.cluster, &names);
        let bed = Self {
            classes: Box::new(MemoryClasses::new(desired.secret_provider_classes.clone())),
            directory: RunDirectory::open(directory.as_deref()).map_err(RoadError::Directory)?,
            desired,
            azure,
            reader,
            vault,
        };
        Ok((bed, emulator))
    }
}
