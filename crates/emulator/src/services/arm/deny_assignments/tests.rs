use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::authorization_fixture::{
    AuthorizationFixture, DENIALS, GROUP, SUB, UNKNOWN, VAULT, code, guid, message,
};

#[test]
fn deny_assignment_is_created_enforced_and_deleted() {
    let azure = AuthorizationFixture::new();
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
