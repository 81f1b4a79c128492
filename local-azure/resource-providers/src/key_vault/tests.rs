use http::StatusCode;
use lanyard_emulator::testing::authorization_fixture::{
    ACCESS_ADMINISTRATOR, AuthorizationFixture, CONTRIBUTOR, GROUP, VAULT, code,
};
use lanyard_emulator::testing::reply_json;
use serde_json::{Value, json};

#[test]
fn permission_model_of_a_vault_is_changed_by_access_administrators_only() {
    let azure = AuthorizationFixture::new();
    azure.grant(CONTRIBUTOR, GROUP);
    let vault = reply_json(&azure.get(azure.owner, VAULT));
    let rbac = vault["properties"]["enableRbacAuthorization"].as_bool().unwrap();
    let flip = json!({ "properties": { "enableRbacAuthorization": !rbac } });
    let same = json!({ "properties": { "enableRbacAuthorization": rbac } });
    assert_eq!(azure.send(azure.client, "PATCH", VAULT, &same).status, StatusCode::OK);
    let refused = azure.send(azure.client, "PATCH", VAULT, &flip);
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (StatusCode::FORBIDDEN, "InsufficientPermissions")
    );
    let mut whole = vault;
    whole["properties"]["enableRbacAuthorization"] = json!(!rbac);
    assert_eq!(code(&azure.send(azure.client, "PUT", VAULT, &whole)), "InsufficientPermissions");
    // A permission with a condition does not suffice.
    azure.grant("8b54135c-b56d-4d72-a534-26097cfdc8d8", VAULT);
    assert_eq!(code(&azure.send(azure.client, "PATCH", VAULT, &flip)), "InsufficientPermissions");
    azure.grant(ACCESS_ADMINISTRATOR, VAULT);
    assert_eq!(azure.send(azure.client, "PATCH", VAULT, &flip).status, StatusCode::OK);
}

#[test]
fn deleted_vault_is_recovered_under_its_own_id() {
    let azure = AuthorizationFixture::new();
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

#[test]
fn key_has_only_operations_of_its_type() {
    let azure = AuthorizationFixture::new();
    let put = |name: &str, kty: &str, operations: &Value| {
        let body = json!({ "properties": { "kty": kty, "keyOps": operations } });
        azure.send(azure.owner, "PUT", &format!("{VAULT}/keys/{name}"), &body)
    };
    for (kty, operations) in [("EC", json!(["foo"])), ("EC", json!(["encrypt"]))] {
        let rejected = put("invalid", kty, &operations);
        assert_eq!((rejected.status, &*code(&rejected)), (StatusCode::BAD_REQUEST, "BadRequest"));
    }
    let path = format!("{VAULT}/keys/invalid");
    assert_eq!(azure.get(azure.owner, &path).status, StatusCode::NOT_FOUND);
    let created = reply_json(&put("own", "EC", &json!(["verify"])));
    assert_eq!(created["properties"]["keyOps"], json!(["verify"]));
}
