//! A fixture for tests of authorization, and the ids of roles.

use http::StatusCode;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::authorization::RoleAssignment;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::EntraClientId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::seeded_state::{SEED_TIME, issue_access_token_for, seeded_nine_identities};
use super::{EngineFixture, reply_json};

const ARM: &str = "https://management.azure.com";
const AUDIENCE: &str = "https://management.azure.com/";
pub const SUB: &str = "/subscriptions/sub";
pub const GROUP: &str = "/subscriptions/sub/resourceGroups/platform";
pub const VAULT: &str =
    "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.KeyVault/vaults/platform-kv";
pub const DEFINITIONS: &str = "providers/Microsoft.Authorization/roleDefinitions";
pub const ASSIGNMENTS: &str = "providers/Microsoft.Authorization/roleAssignments";

pub const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";
pub const READER: &str = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
pub const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";
pub const ACCESS_ADMINISTRATOR: &str = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9";
pub const SECRETS_USER: &str = "4633458b-17de-408a-b874-0445c86b69e6";
pub const UNKNOWN: &str = "00000000-0000-4000-8000-0000000000ff";

/// Returns the GUID number `n` for a test.
pub fn guid(n: u128) -> String {
    Uuid::from_u128(0xa000 + n).to_string()
}

/// A seeded state with an owner of the subscription and a client whose only roles are those of the test.
#[derive(Debug)]
pub struct AuthorizationFixture {
    pub probe: EngineFixture,
    pub owner: EntraClientId,
    pub client: EntraClientId,
}

impl Default for AuthorizationFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl AuthorizationFixture {
    pub fn new() -> Self {
        let (mut azure, _) = seeded_nine_identities();
        let clients = azure.registry.test_clients.clone().unwrap();
        let (owner, client) = (clients.secret_client, clients.certificate_client);
        let client_id = azure.directory.service_principal_by_client_id(client).unwrap().object_id;
        azure.authorization.revoke_of_principal(client_id);
        Self { probe: EngineFixture::new(azure), owner, client }
    }

    pub fn object_id(&self, client: EntraClientId) -> Uuid {
        let state = self.probe.engine.state();
        state.azure.directory.service_principal_by_client_id(client).unwrap().object_id
    }

    pub fn tenant(&self) -> String {
        self.probe.engine.state().azure.directory.tenants[0].id.to_string()
    }

    pub fn grant(&self, role: &str, scope: &str) {
        let principal = self.object_id(self.client);
        let role = lanyard_vocabulary::RoleDefinitionId(role.parse().unwrap());
        let mut state = self.probe.engine.state();
        let name = state.ids.next_uuid();
        let scope = scope.parse().unwrap();
        let assignment = RoleAssignment::new(name, scope, role, principal, SEED_TIME);
        state.azure.authorization.assign(assignment).unwrap();
    }

    /// Sends a request to ARM. `url` is a path; an api-version is added unless it has one.
    pub fn send(&self, who: EntraClientId, method: &str, url: &str, body: &Value) -> ServiceReply {
        let bearer = format!("Bearer {}", issue_access_token_for(&self.probe, who, AUDIENCE));
        let url = if url.contains("api-version=") {
            format!("{ARM}{url}")
        } else {
            let separator = if url.contains('?') { '&' } else { '?' };
            format!("{ARM}{url}{separator}api-version=2022-04-01")
        };
        let headers = [("authorization", bearer.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.probe.send_request(Ingress::Tunnel, &method.parse().unwrap(), &url, &headers, &body)
    }

    pub fn get(&self, who: EntraClientId, url: &str) -> ServiceReply {
        self.send(who, "GET", url, &Value::Null)
    }

    /// Returns the items of a list that the subscription's Owner reads.
    pub fn list(&self, url: &str) -> Vec<Value> {
        let reply = self.get(self.owner, url);
        assert_eq!(reply.status, StatusCode::OK, "{url}: {reply:?}");
        reply_json(&reply)["value"].as_array().unwrap().clone()
    }
}

pub fn code(reply: &ServiceReply) -> String {
    reply_json(reply)["error"]["code"].as_str().unwrap_or_default().to_owned()
}

pub fn message(reply: &ServiceReply) -> String {
    reply_json(reply)["error"]["message"].as_str().unwrap_or_default().to_owned()
}

pub fn assignment_body(role: &str, principal: impl std::fmt::Display, extra: &Value) -> Value {
    let mut properties = json!({
        "roleDefinitionId": format!("{SUB}/{DEFINITIONS}/{role}"),
        "principalId": principal.to_string(),
    });
    for (name, value) in extra.as_object().unwrap() {
        properties[name] = value.clone();
    }
    json!({ "properties": properties })
}

pub fn custom_role_body(name: &str, scopes: &[&str], permission: &Value) -> Value {
    json!({ "properties": {
        "roleName": name,
        "description": "for a test",
        "type": "CustomRole",
        "assignableScopes": scopes,
        "permissions": [permission],
    } })
}
