//! What all components share: the local Azure, the rendered objects, the vault reader, the
//! transport, the directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{Transport, TransportError, TransportSettings};
use lanyard_clock::SharedClock;
use lanyard_credential::{
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentitySettingsError, TokenTransport, TokenTransportOptions,
};
use lanyard_desired::{
    Desired, Names, ProofCalls, ValidatedHostedCluster, desired, desired_proofs,
};
use lanyard_emulator::{Emulator, StartError};
use lanyard_keyvault::{KeyVault, VaultError};
use lanyard_node::{ClassSource, MemoryClasses};
use lanyard_vocabulary::cloud::Endpoints;
use lanyard_vocabulary::{ClientId, Cloud, Component};

use crate::mounts::{CloseError, RunDirectory};
use crate::options::Options;
use crate::world::{DEFAULT_VAULT_READER, world_plan};

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
    pub fn hint(&self) -> &'static str {
        match self {
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
        }
    }
}

/// What all components share.
#[derive(Debug)]
pub(crate) struct Roadbed {
    pub(crate) clock: SharedClock,
    pub(crate) cluster: ValidatedHostedCluster,
    pub(crate) desired: Desired,
    pub(crate) classes: Box<dyn ClassSource>,
    pub(crate) endpoints: &'static Endpoints,
    pub(crate) transport: Transport,
    pub(crate) token_transport: TokenTransport,
    pub(crate) reader: Arc<ManagedIdentityCredential>,
    pub(crate) reader_client_id: ClientId,
    pub(crate) vault: KeyVault,
    pub(crate) directory: RunDirectory,
    proofs: BTreeMap<Component, ProofCalls>,
}

impl Roadbed {
    /// Starts the local Azure and everything that leads to it.
    pub(crate) async fn build(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), RoadError> {
        let Options { cluster, broken, listen, directory, vault_reader } = options;
        let cloud = cluster.azure.cloud;
        let endpoints = cloud.endpoints().ok_or(RoadError::Cloud(cloud))?;
        let reader_client_id = vault_reader.unwrap_or_else(|| DEFAULT_VAULT_READER.into());
        let plan = world_plan(&cluster, Some(reader_client_id), broken.map(|broken| broken.0));
        let emulator =
            Emulator::builder().clock(Arc::clone(&clock)).listen(listen).seed(plan).start().await?;

        let settings = TransportSettings {
            https_proxy: Some(emulator.proxy_url()),
            only_roots: Some(emulator.ca_pem().as_bytes().to_vec()),
            ..TransportSettings::default()
        };
        let transport = Transport::new(&settings, Arc::clone(&clock))?;
        let mut token_options = TokenTransportOptions::default();
        token_options.clock = Arc::clone(&clock);
        token_options.client.transport = Some(transport.unpaced());
        let mut identity = ManagedIdentitySettings::default();
        identity.identity = Some(ManagedIdentityId::ClientId(reader_client_id.to_string()));
        identity.imds_host = Some(emulator.proxy_url());
        let reader = ManagedIdentityCredential::new(identity, token_options.clone())?;
        let tokens: Arc<dyn TokenCredential> = Arc::<ManagedIdentityCredential>::clone(&reader);
        let vault = KeyVault::new(
            &KeyVault::url_of(&cluster.vault.name, endpoints),
            tokens,
            transport.client_options(),
        )?;

        let names = Names { vault_reader: Some(reader_client_id), ..Names::default() };
        let desired = desired(&cluster, &names);
        let bed = Self {
            clock,
            classes: Box::new(MemoryClasses::new(desired.secret_provider_classes.clone())),
            proofs: desired_proofs(&cluster),
            directory: RunDirectory::open(directory.as_deref()).map_err(RoadError::Directory)?,
            token_transport: TokenTransport::new(token_options),
            cluster,
            desired,
            endpoints,
            transport,
            reader,
            reader_client_id,
            vault,
        };
        Ok((bed, emulator))
    }

    /// The calls that prove a component's role.
    pub(crate) fn proofs(&self, component: Component) -> Option<&ProofCalls> {
        self.proofs.get(&component)
    }

    /// The scope of tokens for vaults.
    pub(crate) fn vault_scope(&self) -> String {
        format!("{}/.default", self.endpoints.vault_audience())
    }
}
