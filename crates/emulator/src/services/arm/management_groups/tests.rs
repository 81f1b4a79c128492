use http::StatusCode;
use serde_json::{Value, json};

use super::super::authorization_fixture::{
    ASSIGNMENTS, AuthorizationFixture, READER, SUB, VAULT, assignment_body, code, guid,
};
use crate::testing::reply_json;

#[test]
fn assignment_at_a_management_group_is_inherited_by_its_subscriptions() {
    let azure = AuthorizationFixture::new();
    let groups = "/providers/Microsoft.Management/managementGroups";
    let put = |name: &str, parent: &str| {
        let body = json!({ "properties": {
            "displayName": format!("Group {name}"),
            "details": { "parent": { "id": format!("{groups}/{parent}") } },
        } });
        azure.send(azure.owner, "PUT", &format!("{groups}/{name}"), &body)
    };
    let tenant = azure.tenant();
    assert_eq!(put("top", &tenant).status, StatusCode::OK);
    assert_eq!(code(&put("team", "none")), "AuthorizationFailed");
    let team = reply_json(&put("team", "top"));
    assert_eq!(team["properties"]["details"]["parent"]["displayName"], "Group top");
    // Only its creator may change a group.
    let foreign = azure.send(azure.client, "PUT", &format!("{groups}/team"), &json!({}));
    assert_eq!(code(&foreign), "AuthorizationFailed");
    assert_eq!(code(&put("top", "team")), "InvalidParentId");

    let assign = |group: &str, n| {
        let url = format!("{groups}/{group}/{ASSIGNMENTS}/{}", guid(n));
        let body = assignment_body(READER, azure.object_id(azure.client), &json!({}));
        azure.send(azure.owner, "PUT", &url, &body)
    };
    assert_eq!(assign("top", 1).status, StatusCode::CREATED);
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    let member = format!("{groups}/team{SUB}");
    assert_eq!(
        code(&azure.send(azure.client, "PUT", &member, &Value::Null)),
        "AuthorizationFailed"
    );
    assert_eq!(azure.send(azure.owner, "PUT", &member, &Value::Null).status, StatusCode::OK);
    assert_eq!(azure.get(azure.client, VAULT).status, StatusCode::OK);
    let scopes: Vec<_> = azure
        .list(&format!("{SUB}/{ASSIGNMENTS}?$filter=atScope()"))
        .iter()
        .map(|assignment| assignment["properties"]["scope"].as_str().unwrap().to_owned())
        .collect();
    assert!(scopes.contains(&format!("{groups}/top")), "{scopes:?}");
    let children = reply_json(&azure.get(azure.owner, &format!("{groups}/team?$expand=children")));
    assert_eq!(children["properties"]["children"][0]["id"], SUB);
    let names: Vec<_> =
        azure.list(groups).iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["team", "top"]);

    let delete = |url: &str| azure.send(azure.owner, "DELETE", url, &Value::Null);
    assert_eq!(code(&delete(&format!("{groups}/team"))), "ManagementGroupHasChildren");
    assert_eq!(delete(&member).status, StatusCode::NO_CONTENT);
    assert_eq!(code(&azure.get(azure.client, VAULT)), "AuthorizationFailed");
    assert_eq!(delete(&format!("{groups}/team")).status, StatusCode::OK);
    assert_eq!(code(&assign("team", 2)), "AuthorizationFailed");
}
