use http::StatusCode;
use lanyard_emulator::testing::authorization_fixture::{
    ACCESS_ADMINISTRATOR, ASSIGNMENTS, AuthorizationFixture, CONTRIBUTOR, GROUP, OWNER, READER,
    SECRETS_USER, SUB, UNKNOWN, VAULT, assignment_body, code, guid, message,
};
use lanyard_emulator::testing::reply_json;
use lanyard_emulator::testing::seeded_state::SEED_TIME;
use lanyard_emulator_state::authorization::PropagationDelay;
use serde_json::{Value, json};
use uuid::Uuid;

#[test]
fn denial_has_the_message_of_azure_and_the_reason() {
    let azure = AuthorizationFixture::new();
    azure.grant(READER, GROUP);
    let refused = azure.send(azure.client, "DELETE", GROUP, &Value::Null);
    assert_eq!(
        message(&refused),
        format!(
            "The client '{}' with object id '{}' does not have authorization to perform action 'Microsoft.Resources/subscriptions/resourceGroups/delete' over scope '{GROUP}' or the scope is invalid. If access was recently granted, please refresh your credentials.",
            azure.client,
            azure.object_id(azure.client)
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
    let azure = AuthorizationFixture::new();
    let group_id = Uuid::from_u128(0x6a);
    let application = {
        let mut state = azure.probe.engine.state();
        let tenant = state.azure.directory.tenants[0].id.clone();
        let member =
            state.azure.directory.service_principal_by_client_id(azure.client).unwrap().object_id;
        state.azure.directory.insert_group(test_group(group_id, tenant, member));
        state.azure.directory.application_by_client_id(azure.client).unwrap().object_id
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
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    let old = put(2, &group_id, json!({}), "2015-07-01");
    assert_eq!(old.status, StatusCode::CREATED);
    let old = reply_json(&old);
    assert!(old["properties"].get("principalType").is_none(), "{old}");
    assert!(old["properties"].get("description").is_none(), "{old}");
    assert_eq!(azure.get(azure.client, VAULT).status, StatusCode::OK);
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(2));
    assert_eq!(reply_json(&azure.get(azure.owner, &url))["properties"]["principalType"], "Group");

    let member = azure.object_id(azure.client);
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
) -> lanyard_emulator_state::directory::Group {
    lanyard_emulator_state::directory::Group {
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
    let azure = AuthorizationFixture::new();
    let url = format!("{VAULT}/{ASSIGNMENTS}/{}?api-version=2015-07-01", guid(1));
    let body = assignment_body(SECRETS_USER, azure.object_id(azure.client), &json!({}));
    let refused = azure.send(azure.owner, "PUT", &url, &body);
    assert_eq!(code(&refused), "UnsupportedApiVersionForRoleDefinitionHasDataActions");
    let url = url.replace("2015-07-01", "2018-01-01-preview");
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::CREATED);
}

#[test]
fn scope_of_an_assignment_must_exist() {
    let azure = AuthorizationFixture::new();
    let put = |scope: &str, n| {
        let url = format!("{scope}/{ASSIGNMENTS}/{}", guid(n));
        let body = assignment_body(READER, azure.object_id(azure.client), &json!({}));
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
    let azure = AuthorizationFixture::new();
    let put = |n, role: &str, extra: &Value| {
        let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(n));
        let body = assignment_body(role, azure.object_id(azure.client), extra);
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
    let body = assignment_body(READER, azure.object_id(azure.client), &json!({}));
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::OK);
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    assert_eq!(reply_json(&azure.get(azure.owner, &url))["properties"]["description"], "why");
}

#[test]
fn condition_of_an_assignment_limits_delegated_access_management() {
    let azure = AuthorizationFixture::new();
    let allowed = format!("GuidEquals {{{READER}, {SECRETS_USER}}}");
    let attribute = "Microsoft.Authorization/roleAssignments:RoleDefinitionId";
    let condition = format!(
        "((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/write'}})) OR (@Request[{attribute}] ForAnyOfAnyValues:{allowed})) AND ((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/delete'}})) OR (@Resource[{attribute}] ForAnyOfAnyValues:{allowed}))"
    );
    let delegate = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    let delegated = |condition: &str, version: &str| {
        let extra = json!({ "condition": condition, "conditionVersion": version });
        let body = assignment_body(ACCESS_ADMINISTRATOR, azure.object_id(azure.client), &extra);
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
        azure.send(azure.client, method, &url, &assignment_body(role, UNKNOWN, &extra))
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
    let azure = AuthorizationFixture::new();
    let client = azure.object_id(azure.owner).to_string();
    let mut id = String::new();
    for assignment in azure.list(&format!("{SUB}/{ASSIGNMENTS}?$filter=atScope()")) {
        let properties = &assignment["properties"];
        if !properties["roleDefinitionId"].as_str().unwrap().ends_with(OWNER) {
            continue;
        }
        let path = assignment["id"].as_str().unwrap();
        if properties["principalId"] == client.as_str() {
            id = path.to_owned();
        } else {
            let deleted = azure.send(azure.owner, "DELETE", path, &Value::Null);
            assert_eq!(deleted.status, StatusCode::OK);
        }
    }
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
    let azure = AuthorizationFixture::new();
    azure.grant(SECRETS_USER, &format!("{VAULT}/secrets/one"));
    azure.grant(READER, VAULT);
    let client = azure.object_id(azure.client);
    let count =
        || azure.list(&format!("{SUB}/{ASSIGNMENTS}?$filter=principalId eq '{client}'")).len();
    assert_eq!(count(), 2);
    assert_eq!(azure.send(azure.owner, "DELETE", VAULT, &Value::Null).status, StatusCode::OK);
    assert_eq!(count(), 0);
}

#[test]
fn changes_take_effect_after_the_propagation_delay() {
    let azure = AuthorizationFixture::new();
    let delay = PropagationDelay { control_plane_seconds: 300, data_plane_seconds: 0 };
    *azure.probe.engine.state().azure.propagation = delay;
    let url = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(1));
    let body = assignment_body(READER, azure.object_id(azure.client), &json!({}));
    assert_eq!(azure.send(azure.owner, "PUT", &url, &body).status, StatusCode::CREATED);
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    let seconds = std::time::Duration::from_secs;
    azure.probe.clock.advance(seconds(299));
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    azure.probe.clock.advance(seconds(1));
    assert_eq!(azure.get(azure.client, VAULT).status, StatusCode::OK);
    assert_eq!(azure.send(azure.owner, "DELETE", &url, &Value::Null).status, StatusCode::OK);
    assert_eq!(code(&azure.get(azure.owner, &url)), "RoleAssignmentNotFound");
    azure.probe.clock.advance(seconds(299));
    assert_eq!(azure.get(azure.client, VAULT).status, StatusCode::OK);
    azure.probe.clock.advance(seconds(1));
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
}
