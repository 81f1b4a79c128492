//! The local Azure of a run and the clients that connect to it.

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
use crate::scenario_run_error::ScenarioRunError;

/// The local Azure seeded for one cluster, with the transports that its clients use.
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
    /// Starts the local Azure, seeds it, and builds the transports.
    pub(crate) async fn start(
        options: Options,
        clock: SharedClock,
    ) -> Result<(Self, Emulator), ScenarioRunError> {
        let Options { cluster, fault, listen, state, seed, vault_reader, .. } = options;
        let cloud = cluster.azure.cloud;
        let endpoints = cloud.endpoints().ok_or(ScenarioRunError::Cloud(cloud))?;
        let reader_client_id = vault_reader.unwrap_or_else(|| DEFAULT_VAULT_READER.into());
        let plan = local_azure_plan(&cluster, Some(reader_client_id), fault.map(|fault| fault.0));
        let builder = Emulator::builder().clock(Arc::clone(&clock)).listen(listen);
        let builder = match seed {
            Some(seed) => builder.id_seed(&seed),
            None => builder,
        };
        let builder = match state {
            Some(directory) => builder.state_dir(directory).seed_if_new(plan),
            None => builder.seed(plan),
        };
        let emulator = builder.start().await?;
        let settings = AzureTransportSettings {
            https_proxy: Some(emulator.proxy_url()),
            trusted_roots_pem: Some(emulator.ca_pem().as_bytes().to_vec()),
            ..AzureTransportSettings::default()
        };
        let transport = AzureTransport::new(&settings, Arc::clone(&clock))?;
        let token_transport = TokenTransport::new(TokenTransportOptions::new(
            Some(transport.without_rate_limit()),
            &clock,
        ));
        let environment = Self {
            proof_calls: desired_proof_calls(&cluster),
            clock,
            cluster,
            endpoints,
            transport,
            token_transport,
            vault_reader_client_id: reader_client_id,
        };
        Ok((environment, emulator))
    }

    /// Options for fetching tokens through `transport`. `None` selects the default transport for IMDS, which
    /// never uses a proxy.
    pub(crate) fn token_options(&self, transport: Option<SdkTransport>) -> TokenTransportOptions {
        TokenTransportOptions::new(transport, &self.clock)
    }

    /// The proof calls of a component's role.
    pub(crate) fn proof_calls(&self, component: Component) -> Option<&ProofCalls> {
        self.proof_calls.get(&component)
    }

    /// The OAuth scope of vault tokens.
    pub(crate) fn vault_scope(&self) -> String {
        format!("{}/.default", self.endpoints.vault_audience())
    }
}
