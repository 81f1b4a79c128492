//! The local Azure of a run, and the clients that reach it.

use std::collections::BTreeMap;
use std::sync::Arc;

use azure_core::http::Transport as SdkTransport;
use lanyard_azure::{AzureTransport, AzureTransportSettings};
use lanyard_clock::SharedClock;
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_desired::{ProofCalls, ValidatedHostedCluster, desired_proof_calls};
use lanyard_emulator::Emulator;
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{Component, EntraClientId};

use crate::local_azure_plan::{DEFAULT_VAULT_READER, local_azure_plan};
use crate::options::Options;
use crate::run_context::ScenarioRunError;

/// The local Azure with the world of a cluster, as its clients see it.
#[derive(Debug)]
pub(crate) struct AzureEnvironment {
    pub(crate) clock: SharedClock,
    pub(crate) cluster: ValidatedHostedCluster,
    pub(crate) endpoints: &'static CloudEndpoints,
    pub(crate) transport: AzureTransport,
    pub(crate) token_transport: TokenTransport,
    pub(crate) vault_reader_client_id: EntraClientId,
    proof_calls: BTreeMap<Component, ProofCalls>,
}

impl AzureEnvironment {
    /// Starts the local Azure and everything that leads to it.
    pub(crate) async fn start(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), ScenarioRunError> {
        let Options { cluster, fault: broken, listen, vault_reader, .. } = options;
        let cloud = cluster.azure.cloud;
        let endpoints = cloud.endpoints().ok_or(ScenarioRunError::Cloud(cloud))?;
        let reader_client_id = vault_reader.unwrap_or_else(|| DEFAULT_VAULT_READER.into());
        let plan =
            local_azure_plan(&cluster, Some(reader_client_id), broken.map(|broken| broken.0));
        let emulator =
            Emulator::builder().clock(Arc::clone(&clock)).listen(listen).seed(plan).start().await?;
        let way = AzureTransportSettings {
            https_proxy: Some(emulator.proxy_url()),
            trusted_roots_pem: Some(emulator.ca_pem().as_bytes().to_vec()),
            ..AzureTransportSettings::default()
        };
        let transport = AzureTransport::new(&way, Arc::clone(&clock))?;
        let token_transport =
            TokenTransport::new(token_options(Some(transport.without_rate_limit()), &clock));
        let end = Self {
            proof_calls: desired_proof_calls(&cluster),
            clock,
            cluster,
            endpoints,
            transport,
            token_transport,
            vault_reader_client_id: reader_client_id,
        };
        Ok((end, emulator))
    }

    /// How tokens are fetched through a transport; without one it is the way to IMDS, which never
    /// leads through a proxy.
    pub(crate) fn token_options(&self, transport: Option<SdkTransport>) -> TokenTransportOptions {
        token_options(transport, &self.clock)
    }

    /// The calls that prove a component's role.
    pub(crate) fn proof_calls(&self, component: Component) -> Option<&ProofCalls> {
        self.proof_calls.get(&component)
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
