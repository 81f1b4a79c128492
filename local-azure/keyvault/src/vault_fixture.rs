//! A seeded state for tests of vaults, and requests to them.

use lanyard_emulator::FaultPlan;
use lanyard_emulator::testing::seeded_state::{
    SEED_TIME, issue_access_token_for, nine_identity_plan, seeded_nine_identities,
};
use lanyard_emulator::testing::{EngineFixture, reply_json};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::authorization::RoleAssignment;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{Component, EntraClientId};
use serde_json::Value;

pub(super) const VAULT: &str = "https://platform-kv.vault.azure.net";
/// The test clients' vault.
pub(super) const TEST_CLIENT_VAULT: &str = "https://test-demo-abcde.vault.azure.net";
pub(super) const AUDIENCE: &str = "https://vault.azure.net";
pub(super) const VERSION: &str = "api-version=7.4";

/// A seeded state, and requests to its vault as a principal.
pub(super) struct KeyVaultFixture {
    pub(super) probe: EngineFixture,
    pub(super) reader: EntraClientId,
    /// The test client, which has all permissions in [`Self::as_administrator`].
    pub(super) test_client: EntraClientId,
}

impl KeyVaultFixture {
    pub(super) fn new() -> Self {
        let (azure, _) = seeded_nine_identities();
        let test_client = azure.registry.test_clients.clone().unwrap().certificate_client;
        let reader = nine_identity_plan().vault_reader_client_id;
        Self { probe: EngineFixture::new(azure), reader, test_client }
    }

    /// A fixture with a principal that has all permissions in the vault.
    pub(super) fn as_administrator() -> Self {
        let visit = Self::new();
        {
            let state = &mut *visit.probe.engine.state();
            let object = state
                .azure
                .directory
                .service_principal_by_client_id(visit.test_client)
                .unwrap()
                .object_id;
            let vaults = ["platform-kv.vault.azure.net", "test-demo-abcde.vault.azure.net"];
            let scopes = vaults
                .map(|host| state.azure.vaults.vault_at_host(host).unwrap().resource_id.clone());
            let administrator = lanyard_vocabulary::RoleDefinitionId(uuid::uuid!(
                "00482a5a-887f-4fb3-b363-3b7fe8e74483"
            ));
            let assignments = scopes.map(|scope| {
                let name = state.ids.next_uuid();
                RoleAssignment::new(name, scope, administrator, object, SEED_TIME)
            });
            for assignment in assignments {
                state.azure.authorization.assign(assignment).unwrap();
            }
        }
        visit
    }

    pub(super) fn send_request(
        &self,
        who: EntraClientId,
        method: &str,
        path: &str,
        given: &str,
    ) -> ServiceReply {
        self.send_request_to_vault(VAULT, who, method, path, given)
    }

    pub(super) fn send_request_to_vault(
        &self,
        vault: &str,
        who: EntraClientId,
        method: &str,
        path: &str,
        given: &str,
    ) -> ServiceReply {
        let bearer = format!("Bearer {}", issue_access_token_for(&self.probe, who, AUDIENCE));
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = if path.contains("api-version=") {
            format!("{vault}{path}")
        } else {
            format!("{vault}{path}{separator}{VERSION}")
        };
        let headers = [("authorization", bearer.as_str())];
        self.probe.send_request(Ingress::Tunnel, &method.parse().unwrap(), &url, &headers, given)
    }

    pub(super) fn get(&self, who: EntraClientId, path: &str) -> ServiceReply {
        self.send_request(who, "GET", path, "")
    }

    /// Sends a request as the test client, and returns the status and the body.
    pub(super) fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.send_request(self.test_client, method, path, &text);
        let status = reply.status.as_u16();
        (status, if reply.body.is_empty() { Value::Null } else { reply_json(&reply) })
    }

    /// Like [`Self::ask`], for a request that succeeds.
    pub(super) fn succeed(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, reply) = self.ask(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {reply}");
        reply
    }

    /// Like [`Self::ask`], for an error: returns the status, `error.code` and `innererror.code`.
    pub(super) fn fail(&self, method: &str, path: &str, body: &Value) -> (u16, String, String) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        status_and_codes(&self.send_request(self.test_client, method, path, &text))
    }

    pub(super) fn client(&self, component: Component) -> EntraClientId {
        self.probe.engine.state().azure.registry.component_identity(component).unwrap().client_id
    }

    pub(super) fn apply_fault(&self, fault: IdentityFault, component: Component) {
        let state = &mut *self.probe.engine.state();
        FaultPlan { fault, component }.apply(&mut state.azure, &mut state.ids, SEED_TIME).unwrap();
    }
}

pub(super) fn secret_path(component: Component) -> String {
    format!("/secrets/demo-{}", component.definition().secret_suffix)
}

pub(super) fn status_and_codes(reply: &ServiceReply) -> (u16, String, String) {
    let error = &reply_json(reply)["error"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (reply.status.as_u16(), text(&error["code"]), text(&error["innererror"]["code"]))
}

pub(super) fn expected_error(status: u16, code: &str, inner: &str) -> (u16, String, String) {
    (status, code.to_owned(), inner.to_owned())
}
