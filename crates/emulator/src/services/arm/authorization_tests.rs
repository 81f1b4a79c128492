use http::StatusCode;
use lanyard_vocabulary::EntraClientId;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::authorization::{PropagationDelay, RoleAssignment};
use crate::engine::Ingress;
use crate::request::ServiceReply;
use crate::seed::tests::{SEED_TIME, issue_access_token_for, seeded_nine_identities};
use crate::testing::{EngineFixture, reply_json};

const ARM: &str = "https://management.azure.com";
const AUDIENCE: &str = "https://management.azure.com/";
const SUB: &str = "/subscriptions/sub";
const GROUP: &str = "/subscriptions/sub/resourceGroups/platform";
const VAULT: &str =
    "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.KeyVault/vaults/platform-kv";
const DEFINITIONS: &str = "providers/Microsoft.Authorization/roleDefinitions";
const ASSIGNMENTS: &str = "providers/Microsoft.Authorization/roleAssignments";
const DENIALS: &str = "providers/Microsoft.Authorization/denyAssignments";

const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";
const READER: &str = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";
const ACCESS_ADMINISTRATOR: &str = "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9";
const SECRETS_USER: &str = "4633458b-17de-408a-b874-0445c86b69e6";
const UNKNOWN: &str = "00000000-0000-4000-8000-0000000000ff";

/// The n-th GUID of a test.
fn guid(n: u128) -> String {
    Uuid::from_u128(0xa000 + n).to_string()
}

/// A seeded state with an owner of the subscription and a client whose only roles are those of the test.
struct Fixture {
    probe: EngineFixture,
    owner: EntraClientId,
    guest: EntraClientId,
}

impl Fixture {
    fn new() -> Self {
        let (mut azure, _) = seeded_nine_identities();
        let clients = azure.registry.test_clients.clone().unwrap();
        let (owner, guest) = (clients.secret_client, clients.certificate_client);
        let guest_id = azure.directory.service_principal_by_client_id(guest).unwrap().object_id;
        azure.authorization.revoke_of_principal(guest_id);
        Self { probe: EngineFixture::new(azure), owner, guest }
    }

    fn object_id(&self, client: EntraClientId) -> Uuid {
        let state = self.probe.engine.state();
        state.azure.directory.service_principal_by_client_id(client).unwrap().object_id
    }

    fn grant(&self, role: &str, scope: &str) {
        let principal = self.object_id(self.guest);
        let role = lanyard_vocabulary::RoleDefinitionId(role.parse().unwrap());
        let mut state = self.probe.engine.state();
        let name = state.ids.next_uuid();
        let scope = scope.parse().unwrap();
        let assignment = RoleAssignment::new(name, scope, role, principal, SEED_TIME);
        state.azure.authorization.assign(assignment).unwrap();
    }

    /// Sends a request; `url` may have an api-version.
    fn send(&self, who: EntraClientId, method: &str, url: &str, body: &Value) -> ServiceReply {
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

    fn get(&self, who: EntraClientId, url: &str) -> ServiceReply {
        self.send(who, "GET", url, &Value::Null)
    }

    /// The items of a list that the owner reads.
    fn list(&self, url: &str) -> Vec<Value> {
        let reply = self.get(self.owner, url);
        assert_eq!(reply.status, StatusCode::OK, "{url}: {reply:?}");
        reply_json(&reply)["value"].as_array().unwrap().clone()
    }
}

fn code(reply: &ServiceReply) -> String {
    reply_json(reply)["error"]["code"].as_str().unwrap_or_default().to_owned()
}

fn message(reply: &ServiceReply) -> String {
    reply_json(reply)["error"]["message"].as_str().unwrap_or_default().to_owned()
}

fn assignment_body(role: &str, principal: impl std::fmt::Display, extra: &Value) -> Value {
    let mut properties = json!({
        "roleDefinitionId": format!("{SUB}/{DEFINITIONS}/{role}"),
        "principalId": principal.to_string(),
    });
    for (name, value) in extra.as_object().unwrap() {
        properties[name] = value.clone();
    }
    json!({ "properties": properties })
}

fn custom_role_body(name: &str, scopes: &[&str], permission: &Value) -> Value {
    json!({ "properties": {
        "roleName": name,
        "description": "for a test",
        "type": "CustomRole",
        "assignableScopes": scopes,
        "permissions": [permission],
    } })
}

#[test]
fn built_in_roles_are_listed_and_found() {
    let azure = Fixture::new();
    assert_eq!(azure.list(&format!("{SUB}/{DEFINITIONS}")).len(), 928);
    let found =
        azure.list(&format!("{SUB}/{DEFINITIONS}?$filter=roleName eq 'key vault secrets user'"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["id"], format!("{SUB}/{DEFINITIONS}/{SECRETS_USER}"));
    assert_eq!(found[0]["properties"]["type"], "BuiltInRole");
    assert_eq!(found[0]["properties"]["assignableScopes"], json!(["/"]));
    let both = format!("{SUB}/{DEFINITIONS}?$filter=atScopeAndBelow() and type eq 'CustomRole'");
    assert!(azure.list(&both).is_empty());
    // Without a subscription, every caller reads the roles.
    let reply = azure.get(azure.guest, &format!("/{DEFINITIONS}/{READER}"));
    assert_eq!(reply_json(&reply)["id"], format!("/{DEFINITIONS}/{READER}"));
    let denied = azure.get(azure.guest, &format!("{SUB}/{DEFINITIONS}/{READER}"));
    assert_eq!(code(&denied), "AuthorizationFailed");
    let unknown = azure.get(azure.owner, &format!("{SUB}/{DEFINITIONS}/{UNKNOWN}"));
    assert_eq!(
        (unknown.status, code(&unknown).as_str()),
        (StatusCode::NOT_FOUND, "RoleDefinitionDoesNotExist")
    );
    // HyperShift uses a display name in place of a GUID.
    let named = "Azure%20Red%20Hat%20OpenShift%20NodePool%20Management%20Role";
    let named = azure.get(azure.owner, &format!("{SUB}/{DEFINITIONS}/{named}"));
    assert_eq!(
        (named.status, code(&named).as_str()),
        (StatusCode::BAD_REQUEST, "InvalidRoleDefinitionId")
    );
}

#[test]
fn conditions_and_data_actions_of_roles_are_shown() {
    let azure = Fixture::new();
    let delegate = format!("{SUB}/{DEFINITIONS}/8b54135c-b56d-4d72-a534-26097cfdc8d8");
    let permission =
        reply_json(&azure.get(azure.owner, &delegate))["properties"]["permissions"][0].clone();
    assert_eq!(permission["conditionVersion"], "2.0");
    let role = format!("{SUB}/{DEFINITIONS}/{SECRETS_USER}");
    for (version, has_data_actions) in [("2015-07-01", false), ("2018-01-01-preview", true)] {
        let reply = azure.get(azure.owner, &format!("{role}?api-version={version}"));
        let permission = reply_json(&reply)["properties"]["permissions"][0].clone();
        assert_eq!(permission.get("dataActions").is_some(), has_data_actions, "{version}");
    }
}

#[test]
fn custom_role_is_created_assigned_and_deleted() {
    let azure = Fixture::new();
    let role = format!("{SUB}/{DEFINITIONS}/{}", guid(1));
    let body = custom_role_body(
        "Secret lister",
        &[GROUP],
        &json!({ "actions": ["Microsoft.KeyVault/vaults/read"], "notActions": [] }),
    );
    let created = azure.send(azure.owner, "PUT", &role, &body);
    assert_eq!(created.status, StatusCode::CREATED);
    let created = reply_json(&created);
    assert_eq!(created["properties"]["type"], "CustomRole");
    assert_eq!(created["properties"]["createdBy"], azure.object_id(azure.owner).to_string());
    assert_eq!(reply_json(&azure.get(azure.owner, &role)), created);
    // The role is available in the group, not in the subscription.
    let custom = |scope: &str, filter: &str| {
        azure.list(&format!("{scope}/{DEFINITIONS}?$filter={filter}type eq 'CustomRole'")).len()
    };
    assert_eq!(
        (custom(SUB, ""), custom(SUB, "atScopeAndBelow() and "), custom(GROUP, "")),
        (0, 1, 1)
    );

    let at_subscription = format!("{SUB}/{ASSIGNMENTS}/{}", guid(2));
    let given = assignment_body(&guid(1), azure.object_id(azure.guest), &json!({}));
    let refused = azure.send(azure.owner, "PUT", &at_subscription, &given);
    assert_eq!(code(&refused), "RoleDefinitionDoesNotExist");
    let assignment = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(2));
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");
    assert_eq!(azure.send(azure.owner, "PUT", &assignment, &given).status, StatusCode::CREATED);
    assert_eq!(azure.get(azure.guest, VAULT).status, StatusCode::OK);

    // An update takes effect at once.
    let other = custom_role_body("Secret lister", &[GROUP], &json!({ "actions": ["*/write"] }));
    assert_eq!(azure.send(azure.owner, "PUT", &role, &other).status, StatusCode::CREATED);
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");

    let delete = |url: &str| azure.send(azure.owner, "DELETE", url, &Value::Null);
    assert_eq!(code(&delete(&role)), "RoleDefinitionHasAssignments");
    assert_eq!(delete(&assignment).status, StatusCode::OK);
    assert_eq!(reply_json(&delete(&role))["properties"]["roleName"], "Secret lister");
    assert_eq!(delete(&role).status, StatusCode::NO_CONTENT);
    assert_eq!(code(&delete(&format!("{SUB}/{DEFINITIONS}/{READER}"))), "BadRequest");
}

#[test]
fn each_invalid_custom_role_has_its_error_code() {
    let azure = Fixture::new();
    let put = |name: &str, scopes: &[&str], permission: Value| {
        let url = format!("{SUB}/{DEFINITIONS}/{}", guid(1));
        azure.send(azure.owner, "PUT", &url, &custom_role_body(name, scopes, &permission))
    };
    let read = || json!({ "actions": ["Microsoft.Compute/*/read"] });
    for (scopes, permission, expected) in [
        (&[SUB][..], json!({}), "InvalidRoleDefinition"),
        (&[], read(), "InvalidRoleDefinition"),
        (&["/"], read(), "InvalidRoleDefinition"),
        (&["/subscriptions/*"], read(), "InvalidRoleDefinition"),
        (&[VAULT], read(), "InvalidRoleDefinition"),
        (
            &[
                "/providers/Microsoft.Management/managementGroups/a",
                "/providers/Microsoft.Management/managementGroups/b",
            ],
            read(),
            "InvalidRoleDefinition",
        ),
        (&[SUB], json!({ "actions": ["Microsoft.Compute/*/x/*"] }), "InvalidActionOrNotAction"),
        (&[SUB], json!({ "actions": ["Microsoft.NotThere/x/read"] }), "InvalidActionOrNotAction"),
        (
            &[SUB],
            json!({ "actions": ["*"], "notDataActions": ["Microsoft.KeyVault/vaults"] }),
            "InvalidDataActionOrNotDataAction",
        ),
        (&["/subscriptions/none"], read(), "LinkedAuthorizationFailed"),
    ] {
        let reply = put("Mine", scopes, permission);
        assert_eq!(code(&reply), expected, "{scopes:?} {}", message(&reply));
    }
    assert_eq!(code(&put("Reader", &[SUB], read())), "RoleDefinitionWithSameNameExists");
    assert_eq!(put("Mine", &[SUB], read()).status, StatusCode::CREATED);
    let twin = format!("{SUB}/{DEFINITIONS}/{}", guid(2));
    let twin = azure.send(azure.owner, "PUT", &twin, &custom_role_body("mine", &[SUB], &read()));
    assert_eq!(
        (twin.status, code(&twin).as_str()),
        (StatusCode::CONFLICT, "RoleDefinitionWithSameNameExists")
    );
}

#[test]
fn custom_role_needs_the_permission_on_every_assignable_scope() {
    let azure = Fixture::new();
    azure.grant(ACCESS_ADMINISTRATOR, GROUP);
    let role = format!("{GROUP}/{DEFINITIONS}/{}", guid(1));
    let elsewhere = "/subscriptions/sub/resourceGroups/demo-abcde";
    let body =
        |scopes: &[&str]| custom_role_body("Mine", scopes, &json!({ "actions": ["*/read"] }));
    let refused = azure.send(azure.guest, "PUT", &role, &body(&[GROUP, elsewhere]));
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (StatusCode::FORBIDDEN, "LinkedAuthorizationFailed")
    );
    let write = "Microsoft.Authorization/roleDefinitions/write";
    assert_eq!(
        message(&refused),
        format!(
            "The client '{}' with object id '{}' has permission to perform action '{write}' on scope '{GROUP}'; however, it does not have permission to perform action(s) '{write}' on the linked scope(s) '{elsewhere}' (respectively) or the linked scope(s) are invalid.",
            azure.guest,
            azure.object_id(azure.guest)
        )
    );
    assert_eq!(azure.send(azure.guest, "PUT", &role, &body(&[GROUP])).status, StatusCode::CREATED);
}

#[test]
fn denial_has_the_message_of_azure_and_the_reason() {
    let azure = Fixture::new();
    azure.grant(READER, GROUP);
    let refused = azure.send(azure.guest, "DELETE", GROUP, &Value::Null);
    assert_eq!(
        message(&refused),
        format!(
            "The client '{}' with object id '{}' does not have authorization to perform action 'Microsoft.Resources/subscriptions/resourceGroups/delete' over scope '{GROUP}' or the scope is invalid. If access was recently granted, please refresh your credentials.",
            azure.guest,
            azure.object_id(azure.guest)
        )
    );
    let info = reply_json(&refused)["error"]["additionalInfo"][0].clone();
    assert_eq!(
        info["info"]["reason"],
        format!("`Reader` is assigned at `{GROUP}`, but lacks the action")
    );
}

#[test]
fn principal_of_an_assignment_is_checked() {
    let azure = Fixture::new();
    let group_id = Uuid::from_u128(0x6a);
    let application = {
        let mut state = azure.probe.engine.state();
        let tenant = state.azure.directory.tenants[0].id.clone();
        let member =
            state.azure.directory.service_principal_by_client_id(azure.guest).unwrap().object_id;
        state.azure.directory.insert_group(test_group(group_id, tenant, member));
        state.azure.directory.application_by_client_id(azure.guest).unwrap().object_id
    };
    let put = |n: u128, principal: &dyn std::fmt::Display, extra: Value, version: &str| {
        let url = format!("{GROUP}/{ASSIGNMENTS}/{}?api-version={version}", guid(n));
        azure.send(azure.owner, "PUT", &url, &assignment_body(READER, principal, &extra))
    };
    let new = "2022-04-01";
    let unmatched = put(1, &group_id, json!({ "principalType": "User" }), new);
    assert_eq!(code(&unmatched), "UnmatchedPrincipalType");
    assert_eq!(
        message(&unmatched),
        format!(
            "The PrincipalId '{}' has type 'Group' , which is different from specified PrinciaplType 'User'.",
            group_id.simple()
        )
    );
    assert_eq!(code(&put(1, &application, json!({}), new)), "PrincipalTypeNotSupported");
    assert_eq!(code(&put(1, &"x", json!({}), new)), "InvalidPrincipalId");
    assert_eq!(
        code(&put(1, &UNKNOWN, json!({ "principalType": "Robot" }), new)),
        "InvalidRequestContent"
    );
    let missing = put(1, &UNKNOWN, json!({}), new);
    assert_eq!(code(&missing), "PrincipalNotFound");
    assert!(
        message(&missing).contains(" does not exist in the directory "),
        "{}",
        message(&missing)
    );
    // Older versions ignore the type; their replies do not have it.
    let typed = || json!({ "principalType": "ServicePrincipal" });
    assert_eq!(code(&put(1, &UNKNOWN, typed(), "2018-01-01-preview")), "PrincipalNotFound");
    assert_eq!(put(1, &UNKNOWN, typed(), "2018-09-01-preview").status, StatusCode::CREATED);
    // A member of the group gets its roles.
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");
    let old = put(2, &group_id, json!({}), "2015-07-01");
    assert_eq!(old.status, StatusCode::CREATED);
    let old = reply_json(&old);
    assert!(old["properties"].get("principalType").is_none(), "{old}");
    assert!(old["properties"].get("description").is_none(), "{old}");
    assert_eq!(azure.get(azure.guest, VAULT).status, StatusCode::OK);
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(2));
    assert_eq!(reply_json(&azure.get(azure.owner, &url))["properties"]["principalType"], "Group");

    let member = azure.object_id(azure.guest);
    let count = |filter: &str| azure.list(&format!("{GROUP}/{ASSIGNMENTS}?$filter={filter}")).len();
    assert_eq!(count(&format!("principalId eq '{member}'")), 0);
    assert_eq!(count(&format!("assignedTo('{member}')")), 1);
    assert_eq!(count(&format!("atScope() and assignedTo('{member}')")), 1);
    assert_eq!(count(&format!("principalId eq '{group_id}'")), 1);
}

fn test_group(
    object_id: Uuid,
    tenant: lanyard_vocabulary::EntraTenantId,
    member: Uuid,
) -> crate::directory::Group {
    crate::directory::Group {
        object_id,
        tenant,
        display_name: "operators".to_owned(),
        created: SEED_TIME,
        members: [member].into(),
        owners: Vec::new(),
        properties: serde_json::Map::new(),
    }
}

#[test]
fn role_with_data_actions_needs_a_newer_api_version() {
    let azure = Fixture::new();
    let url = format!("{VAULT}/{ASSIGNMENTS}/{}?api-version=2015-07-01", guid(1));
    let body = assignment_body(SECRETS_USER, azure.object_id(azure.guest), &json!({}));
    let refused = azure.send(azure.owner, "PUT", &url, &body);
    assert_eq!(code(&refused), "UnsupportedApiVersionForRoleDefinitionHasDataActions");
    let url = url.replace("2015-07-01", "2018-01-01-preview");
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::CREATED);
}

#[test]
fn scope_of_an_assignment_must_exist() {
    let azure = Fixture::new();
    let put = |scope: &str, n| {
        let url = format!("{scope}/{ASSIGNMENTS}/{}", guid(n));
        let body = assignment_body(READER, azure.object_id(azure.guest), &json!({}));
        azure.send(azure.owner, "PUT", &url, &body)
    };
    assert_eq!(code(&put(&format!("{SUB}/resourceGroups/none"), 1)), "ResourceGroupNotFound");
    let missing = VAULT.replace("platform-kv", "none");
    assert_eq!(code(&put(&missing, 1)), "ResourceNotFound");
    assert_eq!(code(&put(&format!("{missing}/secrets/one"), 1)), "ResourceNotFound");
    // Azure does not check the objects of a vault.
    assert_eq!(put(&format!("{VAULT}/secrets/none"), 1).status, StatusCode::CREATED);
    assert_eq!(code(&put("/subscriptions/none", 2)), "SubscriptionNotFound");
}

#[test]
fn existing_assignment_is_updated_or_conflicts() {
    let azure = Fixture::new();
    let put = |n, role: &str, extra: &Value| {
        let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(n));
        let body = assignment_body(role, azure.object_id(azure.guest), extra);
        azure.send(azure.owner, "PUT", &url, &body)
    };
    assert_eq!(put(1, READER, &json!({})).status, StatusCode::CREATED);
    let exists = put(2, READER, &json!({}));
    assert_eq!(
        (exists.status, code(&exists).as_str()),
        (StatusCode::CONFLICT, "RoleAssignmentExists")
    );
    assert!(message(&exists).contains(&Uuid::from_u128(0xa001).simple().to_string()));
    let update = put(1, CONTRIBUTOR, &json!({}));
    assert_eq!(
        (update.status, code(&update).as_str()),
        (StatusCode::BAD_REQUEST, "RoleAssignmentUpdateNotPermitted")
    );
    let described = put(1, READER, &json!({ "description": "why" }));
    assert_eq!(described.status, StatusCode::OK);
    let properties = reply_json(&described)["properties"].clone();
    assert_eq!(properties["description"], "why");
    assert_eq!(properties["updatedBy"], azure.object_id(azure.owner).to_string());
    // An api-version without descriptions does not remove one.
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}?api-version=2015-07-01", guid(1));
    let body = assignment_body(READER, azure.object_id(azure.guest), &json!({}));
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::OK);
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    assert_eq!(reply_json(&azure.get(azure.owner, &url))["properties"]["description"], "why");
}

#[test]
fn condition_of_an_assignment_limits_delegated_access_management() {
    let azure = Fixture::new();
    let allowed = format!("GuidEquals {{{READER}, {SECRETS_USER}}}");
    let attribute = "Microsoft.Authorization/roleAssignments:RoleDefinitionId";
    let condition = format!(
        "((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/write'}})) OR (@Request[{attribute}] ForAnyOfAnyValues:{allowed})) AND ((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/delete'}})) OR (@Resource[{attribute}] ForAnyOfAnyValues:{allowed}))"
    );
    let delegate = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    let delegated = |condition: &str, version: &str| {
        let extra = json!({ "condition": condition, "conditionVersion": version });
        let body = assignment_body(ACCESS_ADMINISTRATOR, azure.object_id(azure.guest), &extra);
        azure.send(azure.owner, "PUT", &delegate, &body)
    };
    assert_eq!(code(&delegated(&condition, "1.0")), "InvalidCondition");
    assert_eq!(code(&delegated("@Request[x", "2.0")), "InvalidCondition");
    let unknown = delegated("@Principal[x:y] StringEquals 'z'", "2.0");
    assert_eq!(
        (unknown.status, code(&unknown).as_str()),
        (StatusCode::NOT_IMPLEMENTED, "NotImplemented")
    );
    let created = delegated(&condition, "2.0");
    assert_eq!(created.status, StatusCode::CREATED);
    assert_eq!(reply_json(&created)["properties"]["condition"], condition);

    let change = |method: &str, n, role: &str| {
        let url = format!("{VAULT}/{ASSIGNMENTS}/{}", guid(n));
        let extra = json!({ "principalType": "User" });
        azure.send(azure.guest, method, &url, &assignment_body(role, UNKNOWN, &extra))
    };
    assert_eq!(change("PUT", 2, SECRETS_USER).status, StatusCode::CREATED);
    let refused = change("PUT", 3, OWNER);
    assert_eq!(code(&refused), "AuthorizationFailed");
    assert!(
        message(&refused).contains("or an ABAC condition not fulfilled"),
        "{}",
        message(&refused)
    );
    assert_eq!(change("DELETE", 2, SECRETS_USER).status, StatusCode::OK);
    // The owner's assignment has a role that the condition does not name.
    let body = assignment_body(OWNER, UNKNOWN, &json!({ "principalType": "User" }));
    let url = format!("{VAULT}/{ASSIGNMENTS}/{}", guid(3));
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::CREATED);
    assert_eq!(code(&change("DELETE", 3, OWNER)), "AuthorizationFailed");
}

#[test]
fn last_owner_of_the_subscription_stays() {
    let azure = Fixture::new();
    let owners = azure.list(&format!("{SUB}/{ASSIGNMENTS}?$filter=atScope()"));
    let id = owners[0]["id"].as_str().unwrap().to_owned();
    assert!(owners[0]["properties"]["roleDefinitionId"].as_str().unwrap().ends_with(OWNER));
    let last = azure.send(azure.owner, "DELETE", &id, &Value::Null);
    assert_eq!(
        (last.status, code(&last).as_str()),
        (StatusCode::PRECONDITION_FAILED, "CannotDeleteLastRbacAdminAssignment")
    );
    azure.grant(ACCESS_ADMINISTRATOR, SUB);
    assert_eq!(azure.send(azure.owner, "DELETE", &id, &Value::Null).status, StatusCode::OK);
    assert_eq!(code(&azure.get(azure.owner, GROUP)), "AuthorizationFailed");
}

#[test]
fn assignment_is_deleted_with_its_resource() {
    let azure = Fixture::new();
    azure.grant(SECRETS_USER, &format!("{VAULT}/secrets/one"));
    azure.grant(READER, VAULT);
    let guest = azure.object_id(azure.guest);
    let count =
        || azure.list(&format!("{SUB}/{ASSIGNMENTS}?$filter=principalId eq '{guest}'")).len();
    assert_eq!(count(), 2);
    assert_eq!(azure.send(azure.owner, "DELETE", VAULT, &Value::Null).status, StatusCode::OK);
    assert_eq!(count(), 0);
}

#[test]
fn changes_take_effect_after_the_propagation_delay() {
    let azure = Fixture::new();
    let delay = PropagationDelay { control_plane_seconds: 300, data_plane_seconds: 0 };
    *azure.probe.engine.state().azure.propagation = delay;
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    let body = assignment_body(READER, azure.object_id(azure.guest), &json!({}));
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::CREATED);
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");
    let seconds = std::time::Duration::from_secs;
    azure.probe.clock.advance(seconds(299));
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");
    azure.probe.clock.advance(seconds(1));
    assert_eq!(azure.get(azure.guest, VAULT).status, StatusCode::OK);
    assert_eq!(azure.send(azure.owner, "DELETE", &url, &Value::Null).status, StatusCode::OK);
    assert_eq!(code(&azure.get(azure.owner, &url)), "RoleAssignmentNotFound");
    azure.probe.clock.advance(seconds(299));
    assert_eq!(azure.get(azure.guest, VAULT).status, StatusCode::OK);
    azure.probe.clock.advance(seconds(1));
    assert_eq!(code(&azure.get(azure.guest, VAULT)), "AuthorizationFailed");
}

#[test]
fn deny_assignment_is_created_enforced_and_deleted() {
    let azure = Fixture::new();
    let url = format!("{GROUP}/{DENIALS}/{}?api-version=2024-07-01-preview", guid(1));
    let body = |actions: &[&str], excluded: &[&str]| {
        let excluded: Vec<_> =
            excluded.iter().map(|id| json!({ "id": id, "type": "User" })).collect();
        json!({ "properties": {
            "denyAssignmentName": "No deletions",
            "permissions": [{ "actions": actions }],
            "principals": [{ "id": Uuid::nil(), "type": "SystemDefined" }],
            "excludePrincipals": excluded,
        } })
    };
    let put = |url: &str, body: &Value| azure.send(azure.owner, "PUT", url, body);
    let good = body(&["*/delete"], &[UNKNOWN]);
    assert_eq!(
        put(&url.replace("2024-07-01-preview", "2022-04-01"), &good).status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    assert_eq!(code(&put(&url, &body(&["*/delete"], &[]))), "InvalidDenyAssignment");
    assert_eq!(code(&put(&url, &body(&["*/read"], &[UNKNOWN]))), "InvalidDenyAssignment");
    assert_eq!(put(&url, &good).status, StatusCode::CREATED);
    let refused = azure.send(azure.owner, "DELETE", VAULT, &Value::Null);
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (StatusCode::FORBIDDEN, "DenyAssignmentAuthorizationFailed")
    );
    assert!(
        message(&refused).contains(&format!(
            "however, the access is denied because of the deny assignment with name 'No deletions' and Id '{}' at scope '{GROUP}'.",
            Uuid::from_u128(0xa001).simple()
        )),
        "{}",
        message(&refused)
    );
    assert_eq!(azure.list(&format!("{SUB}/{DENIALS}")).len(), 1);
    assert_eq!(azure.list(&format!("{SUB}/{DENIALS}?$filter=atScope()")).len(), 0);
    assert_eq!(azure.list(&format!("{VAULT}/{DENIALS}?$filter=atScope()")).len(), 1);
    let delete = |url: &str| azure.send(azure.owner, "DELETE", url, &Value::Null).status;
    assert_eq!(delete(&url), StatusCode::OK);
    assert_eq!(delete(&url), StatusCode::NO_CONTENT);
    assert_eq!(delete(VAULT), StatusCode::OK);
}

#[test]
fn permissions_and_usage_are_reported() {
    let azure = Fixture::new();
    azure.grant(READER, GROUP);
    azure.grant(SECRETS_USER, VAULT);
    let url = format!("{VAULT}/providers/Microsoft.Authorization/permissions");
    let found = reply_json(&azure.get(azure.guest, &url))["value"].clone();
    let actions: Vec<_> =
        found.as_array().unwrap().iter().map(|it| it["actions"].clone()).collect();
    assert_eq!(actions, [json!([]), json!(["*/read"])]);
    let usage = format!("{SUB}/providers/Microsoft.Authorization/roleAssignmentsUsageMetrics");
    let usage = reply_json(&azure.get(azure.owner, &usage));
    let count = azure.list(&format!("{SUB}/{ASSIGNMENTS}")).len();
    assert_eq!(usage["roleAssignmentsCurrentCount"], count);
    assert_eq!(usage["roleAssignmentsLimit"], 4_000);
}

#[test]
fn permission_model_of_a_vault_is_changed_by_access_administrators_only() {
    let azure = Fixture::new();
    azure.grant(CONTRIBUTOR, GROUP);
    let vault = reply_json(&azure.get(azure.owner, VAULT));
    let rbac = vault["properties"]["enableRbacAuthorization"].as_bool().unwrap();
    let flip = json!({ "properties": { "enableRbacAuthorization": !rbac } });
    let same = json!({ "properties": { "enableRbacAuthorization": rbac } });
    assert_eq!(azure.send(azure.guest, "PATCH", VAULT, &same).status, StatusCode::OK);
    let refused = azure.send(azure.guest, "PATCH", VAULT, &flip);
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (StatusCode::FORBIDDEN, "InsufficientPermissions")
    );
    let mut whole = vault.clone();
    whole["properties"]["enableRbacAuthorization"] = json!(!rbac);
    assert_eq!(code(&azure.send(azure.guest, "PUT", VAULT, &whole)), "InsufficientPermissions");
    // A permission with a condition does not suffice.
    azure.grant("8b54135c-b56d-4d72-a534-26097cfdc8d8", VAULT);
    assert_eq!(code(&azure.send(azure.guest, "PATCH", VAULT, &flip)), "InsufficientPermissions");
    azure.grant(ACCESS_ADMINISTRATOR, VAULT);
    assert_eq!(azure.send(azure.guest, "PATCH", VAULT, &flip).status, StatusCode::OK);
}

#[test]
fn deleted_vault_is_recovered_under_its_own_id() {
    let azure = Fixture::new();
    let body = reply_json(&azure.get(azure.owner, VAULT));
    let location = body["location"].as_str().unwrap().to_owned();
    assert_eq!(azure.send(azure.owner, "DELETE", VAULT, &Value::Null).status, StatusCode::OK);
    let recover = |id: &str, location: &str| {
        let body = json!({ "location": location, "properties": { "createMode": "recover" } });
        azure.send(azure.owner, "PUT", id, &body)
    };
    let elsewhere = VAULT.replace("/platform/", "/demo-abcde/");
    assert_eq!(code(&recover(&elsewhere, &location)), "DeletedVaultNotFound");
    assert_eq!(code(&recover(VAULT, "japaneast")), "DeletedVaultNotFound");
    assert_eq!(recover(VAULT, &location).status, StatusCode::OK);
}
