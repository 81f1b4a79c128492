//! A seeded state whose resources clients read and write.

use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{Component, EntraClientId};

use super::EngineFixture;
use super::seeded_state::{issue_access_token_for, seeded_nine_identities};

const ARM: &str = "https://management.azure.com";
const AUDIENCE: &str = "https://management.azure.com/";

/// A seeded state, and an engine to send requests to.
#[derive(Debug)]
pub struct ArmFixture {
    pub probe: EngineFixture,
    pub owner: EntraClientId,
    pub reader: EntraClientId,
}

impl Default for ArmFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl ArmFixture {
    pub fn new() -> Self {
        let (azure, _) = seeded_nine_identities();
        let test_clients = azure.registry.test_clients.clone().unwrap();
        let (owner, reader) = (test_clients.secret_client, test_clients.certificate_client);
        Self { probe: EngineFixture::new(azure), owner, reader }
    }

    pub fn client(&self, component: Component) -> EntraClientId {
        self.probe.engine.state().azure.registry.component_identity(component).unwrap().client_id
    }

    pub fn send_request(
        &self,
        who: EntraClientId,
        method: &str,
        path: &str,
        body: &str,
    ) -> ServiceReply {
        let bearer = format!("Bearer {}", issue_access_token_for(&self.probe, who, AUDIENCE));
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("{ARM}{path}{separator}api-version=2024-01-01");
        let headers = [("authorization", bearer.as_str())];
        self.probe.send_request(Ingress::Tunnel, &method.parse().unwrap(), &url, &headers, body)
    }

    pub fn get(&self, who: EntraClientId, path: &str) -> ServiceReply {
        self.send_request(who, "GET", path, "")
    }
}
