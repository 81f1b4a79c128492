//! The local Azure of a run, and the clients that reach it.

use std::collections::BTreeMap;
use std::sync::Arc;

use azure_core::http::Transport as SdkTransport;
use lanyard_azure::{Transport, TransportSettings};
use lanyard_clock::SharedClock;
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_desired::{ProofCalls, ValidatedHostedCluster, desired_proofs};
use lanyard_emulator::Emulator;
use lanyard_vocabulary::cloud::Endpoints;
use lanyard_vocabulary::{ClientId, Component};

use crate::options::Options;
use crate::roadbed::RoadError;
use crate::world::{DEFAULT_VAULT_READER, world_plan};

/// The local Azure with the world of a cluster, as its clients see it.
#[derive(Debug)]
pub(crate) struct AzureEnd {
    pub(crate) clock: SharedClock,
    pub(crate) cluster: ValidatedHostedCluster,
    pub(crate) endpoints: &'static Endpoints,
    pub(crate) transport: Transport,
    pub(crate) token_transport: TokenTransport,
    pub(crate) reader_client_id: ClientId,
    proofs: BTreeMap<Component, ProofCalls>,
}

impl AzureEnd {
    /// Starts the local Azure and everything that leads to it.
    pub(crate) async fn start(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), RoadError> {
        let Options { cluster, broken, listen, vault_reader, .. } = options;
        let cloud = cluster.azure.cloud;
        let endpoints = cloud.endpoints().ok_or(RoadError::Cloud(cloud))?;
        let reader_client_id = vault_reader.unwrap_or_else(|| DEFAULT_VAULT_READER.into());
        let plan = world_plan(&cluster, Some(reader_client_id), broken.map(|broken| broken.0));
        let emulator =
            Emulator::builder().clock(Arc::clone(&clock)).listen(listen).seed(plan).start().await?;
        let way = TransportSettings {
            https_proxy: Some(emulator.proxy_url()),
            only_roots: Some(emulator.ca_pem().as_bytes().to_vec()),
            ..TransportSettings::default()
        };
        let transport = Transport::new(&way, Arc::clone(&clock))?;
        let token_transport = TokenTransport::new(token_options(Some(transport.unpaced()), &clock));
        let end = Self {
            proofs: desired_proofs(&cluster),
            clock,
            cluster,
            endpoints,
            transport,
            token_transport,
            reader_client_id,
        };
        Ok((end, emulator))
    }

    /// How tokens are fetched through a transport; without one it is the way to IMDS, which never
    /// leads through a proxy.
    pub(crate) fn token_options(&self, transport: Option<SdkTransport>) -> TokenTransportOptions {
        token_options(transport, &self.clock)
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

fn token_options(transport: Option<SdkTransport>, clock: &SharedClock) -> TokenTransportOptions {
    let mut options = TokenTransportOptions::default();
    options.clock = Arc::clone(clock);
    options.client.transport = transport;
    options
}
