use http::StatusCode;
use lanyard_emulator::testing::authorization_fixture::{
    ACCESS_ADMINISTRATOR, ASSIGNMENTS, AuthorizationFixture, DEFINITIONS, GROUP, READER,
    SECRETS_USER, SUB, UNKNOWN, VAULT, assignment_body, code, custom_role_body, guid, message,
};
use lanyard_emulator::testing::reply_json;
use serde_json::{Value, json};

#[test]
fn built_in_roles_are_listed_and_found() {
    let azure = AuthorizationFixture::new();
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
    let reply = azure.get(azure.client, &format!("/{DEFINITIONS}/{READER}"));
    assert_eq!(reply_json(&reply)["id"], format!("/{DEFINITIONS}/{READER}"));
    let denied = azure.get(azure.client, &format!("{SUB}/{DEFINITIONS}/{READER}"));
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
    let azure = AuthorizationFixture::new();
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
    let azure = AuthorizationFixture::new();
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
    let given = assignment_body(&guid(1), azure.object_id(azure.client), &json!({}));
    let refused = azure.send(azure.owner, "PUT", &at_subscription, &given);
    assert_eq!(code(&refused), "RoleDefinitionDoesNotExist");
    let assignment = format!("{GROUP}/{ASSIGNMENTS}/{}", guid(2));
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    assert_eq!(azure.send(azure.owner, "PUT", &assignment, &given).status, StatusCode::CREATED);
    assert_eq!(azure.get(azure.client, VAULT).status, StatusCode::OK);

    // An update takes effect at once.
    let other = custom_role_body("Secret lister", &[GROUP], &json!({ "actions": ["*/write"] }));
    assert_eq!(azure.send(azure.owner, "PUT", &role, &other).status, StatusCode::CREATED);
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");

    let delete = |url: &str| azure.send(azure.owner, "DELETE", url, &Value::Null);
    assert_eq!(code(&delete(&role)), "RoleDefinitionHasAssignments");
    assert_eq!(delete(&assignment).status, StatusCode::OK);
    assert_eq!(reply_json(&delete(&role))["properties"]["roleName"], "Secret lister");
    assert_eq!(delete(&role).status, StatusCode::NO_CONTENT);
    assert_eq!(code(&delete(&format!("{SUB}/{DEFINITIONS}/{READER}"))), "BadRequest");
}

#[test]
fn each_invalid_custom_role_has_its_error_code() {
    let azure = AuthorizationFixture::new();
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
    let azure = AuthorizationFixture::new();
    azure.grant(ACCESS_ADMINISTRATOR, GROUP);
    let role = format!("{GROUP}/{DEFINITIONS}/{}", guid(1));
    let elsewhere = "/subscriptions/sub/resourceGroups/demo-abcde";
    let body =
        |scopes: &[&str]| custom_role_body("Mine", scopes, &json!({ "actions": ["*/read"] }));
    let refused = azure.send(azure.client, "PUT", &role, &body(&[GROUP, elsewhere]));
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (StatusCode::FORBIDDEN, "LinkedAuthorizationFailed")
    );
    let write = "Microsoft.Authorization/roleDefinitions/write";
    assert_eq!(
        message(&refused),
        format!(
            "The client '{}' with object id '{}' has permission to perform action '{write}' on scope '{GROUP}'; however, it does not have permission to perform action(s) '{write}' on the linked scope(s) '{elsewhere}' (respectively) or the linked scope(s) are invalid.",
            azure.client,
            azure.object_id(azure.client)
        )
    );
    assert_eq!(azure.send(azure.client, "PUT", &role, &body(&[GROUP])).status, StatusCode::CREATED);
}
