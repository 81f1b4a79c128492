//! Requests to Microsoft Graph as clients send them.

mod applications;
mod directory;
mod filtered_values;
mod permissions;

use std::sync::LazyLock;

use jiff::Timestamp;
use lanyard_emulator::testing::{
    APP, DOMAIN, EngineFixture, TENANT, USER_OBJECT_ID, azure_with_test_principals, reply_json,
    start_time, test_user,
};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_core::token::{
    AccessTokenVersion, ClientAuthMethod, OptionalClaims, TokenGrant, TokenSubject,
    issue_access_token,
};
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{
    AppRoleAssignment, DirectoryRole, DirectoryRoleAssignment, GraphPermission, User,
    graph_principal_id,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::EntraClientId;
use serde_json::Value;
use uuid::Uuid;

const GRAPH: &str = "https://graph.microsoft.com";
const AZURE_CLI: &str = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";

/// A user of the tests' tenant, by the last digits of the object id.
#[derive(Debug, Clone, Copy)]
enum Caller {
    /// A global administrator.
    Administrator,
    /// A user without a directory role.
    Member,
    /// The global administrator, with delegated permissions.
    AdministratorWith(&'static str),
    /// The application of the tests, with the permissions that a test assigns.
    Application,
}

const ADMINISTRATOR: Uuid = USER_OBJECT_ID;
const MEMBER: Uuid = Uuid::from_u128(0xa2);

struct GraphFixture {
    probe: EngineFixture,
}

/// The state with an administrator and a member. Key generation is slow, so all tests clone it.
fn state_with_users() -> AzureState {
    static STATE: LazyLock<AzureState> = LazyLock::new(|| {
        let mut azure = azure_with_test_principals();
        let member = test_user(&format!("bob@{DOMAIN}"), MEMBER);
        azure.directory.insert_user(User { display_name: "Bob".to_owned(), ..member });
        azure.directory.insert_directory_role_assignment(DirectoryRoleAssignment {
            id: Uuid::from_u128(1),
            tenant: TENANT.parse().unwrap(),
            principal_id: ADMINISTRATOR,
            role: DirectoryRole::GlobalAdministrator,
        });
        azure
    });
    STATE.clone()
}

impl GraphFixture {
    fn new() -> Self {
        Self { probe: EngineFixture::new(state_with_users()) }
    }

    /// Assigns permissions of Microsoft Graph to the application of the tests.
    fn with_permissions(permissions: &[GraphPermission]) -> Self {
        let fixture = Self::new();
        fixture.assign_permissions(permissions);
        fixture
    }

    fn assign_permissions(&self, permissions: &[GraphPermission]) {
        let directory = &mut self.probe.engine.state().azure.directory;
        let app: EntraClientId = APP.parse().unwrap();
        let principal_id = directory.service_principal_by_client_id(app).unwrap().object_id;
        let tenant: lanyard_vocabulary::EntraTenantId = TENANT.parse().unwrap();
        for permission in permissions {
            directory.insert_app_role_assignment(AppRoleAssignment {
                id: permission.value().to_owned(),
                tenant: tenant.clone(),
                principal_id,
                resource_id: graph_principal_id(&tenant),
                app_role_id: permission.id(),
                created: start_time(),
            });
        }
    }

    /// Issues a token for a caller, like the token service.
    fn token(&self, caller: Caller, audience: &str) -> String {
        let state = &mut *self.probe.engine.state();
        let directory = &state.azure.directory;
        let user = |id, scopes| TokenSubject::User {
            user: directory.user(id).unwrap(),
            client: AZURE_CLI.parse().unwrap(),
            scopes,
        };
        let mut roles = Vec::new();
        let subject = match caller {
            Caller::Application => {
                let client = APP.parse().unwrap();
                let principal = directory.service_principal_by_client_id(client).unwrap();
                let graph = graph_principal_id(&principal.tenant);
                roles = directory.app_role_values(principal, graph);
                TokenSubject::ServicePrincipal(principal)
            }
            Caller::Administrator => user(ADMINISTRATOR, "Directory.AccessAsUser.All"),
            Caller::Member => user(MEMBER, "Directory.AccessAsUser.All"),
            Caller::AdministratorWith(scopes) => user(ADMINISTRATOR, scopes),
        };
        let clouds = AzureClouds::new(None, 443);
        let grant = TokenGrant {
            subject,
            audience,
            version: AccessTokenVersion::V1,
            auth_method: ClientAuthMethod::Secret,
            cloud: clouds.public(),
            optional: OptionalClaims { roles, ..OptionalClaims::default() },
        };
        let tenant = directory.tenant(TENANT).unwrap();
        let now = start_time();
        issue_access_token(*state.azure.tokens, tenant, grant, now, &mut state.ids)
            .unwrap()
            .token
            .expose()
            .to_owned()
    }

    fn send_with_headers(
        &self,
        caller: Caller,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> ServiceReply {
        let bearer = format!("Bearer {}", self.token(caller, GRAPH));
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend(headers);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("{GRAPH}/v1.0{path}");
        self.probe.send_request(Ingress::Tunnel, &method.parse().unwrap(), &url, &all, &body)
    }

    fn send(&self, caller: Caller, method: &str, path: &str, body: &Value) -> ServiceReply {
        self.send_with_headers(caller, method, path, body, &[])
    }

    /// Sends a request of the administrator; panics unless it succeeds.
    fn succeed(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.send(Caller::Administrator, method, path, body);
        assert!(reply.status.is_success(), "{method} {path}: {} {}", reply.status, text(&reply));
        if reply.body.is_empty() { Value::Null } else { reply_json(&reply) }
    }

    fn get(&self, path: &str) -> Value {
        self.succeed("GET", path, &Value::Null)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.succeed("POST", path, body)
    }

    fn patch(&self, path: &str, body: &Value) -> Value {
        self.succeed("PATCH", path, body)
    }

    fn delete(&self, path: &str) {
        self.succeed("DELETE", path, &Value::Null);
    }

    /// Status, code and message of a request of the administrator that fails.
    fn fail(&self, method: &str, path: &str, body: &Value) -> (u16, String, String) {
        error_of(&self.send(Caller::Administrator, method, path, body))
    }

    /// The value of a property of every item of a list.
    fn list(&self, path: &str, property: &str) -> Vec<String> {
        values_of(&self.get(path), property)
    }
}

fn values_of(list: &Value, property: &str) -> Vec<String> {
    let items = list["value"].as_array().unwrap().iter();
    items.map(|item| item[property].as_str().unwrap().to_owned()).collect()
}

fn text(reply: &ServiceReply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

fn error_of(reply: &ServiceReply) -> (u16, String, String) {
    let json = if reply.body.is_empty() { Value::Null } else { reply_json(reply) };
    let field = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
    (reply.status.as_u16(), field("code"), field("message"))
}

fn id_of(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

fn not_found(key: &str) -> (u16, String, String) {
    let message = format!(
        "Resource '{key}' does not exist or one of its queried reference-property objects are not present."
    );
    (404, "Request_ResourceNotFound".to_owned(), message)
}

fn bad_request(message: &str) -> (u16, String, String) {
    (400, "Request_BadRequest".to_owned(), message.to_owned())
}

fn denied() -> (u16, String, String) {
    let message = "Insufficient privileges to complete the operation.";
    (403, "Authorization_RequestDenied".to_owned(), message.to_owned())
}

fn reference(id: &str) -> Value {
    serde_json::json!({ "@odata.id": format!("{GRAPH}/v1.0/directoryObjects/{id}") })
}

fn advance_days(fixture: &GraphFixture, days: i64) {
    let by = std::time::Duration::from_secs(u64::try_from(days).unwrap() * 86_400);
    fixture.probe.clock.advance(by);
}

fn text_of_time(time: Timestamp) -> String {
    super::entity::time_text(time)
}
