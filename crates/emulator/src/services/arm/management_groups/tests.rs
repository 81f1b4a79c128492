use http::StatusCode;
use serde_json::{Value, json};

use super::super::authorization_fixture::{
    ASSIGNMENTS, AuthorizationFixture, CONTRIBUTOR, READER, SUB, VAULT, assignment_body, code, guid,
};
use crate::directory::Tenant;
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

#[test]
fn root_group_is_renamed_with_permission_and_has_no_other_change() {
    const OTHER_TENANT: &str = "99999999-0000-4000-8000-000000000001";
    let azure = AuthorizationFixture::new();
    {
        let tenants = &mut azure.probe.engine.state().azure.directory.tenants;
        let other = Tenant { id: OTHER_TENANT.parse().unwrap(), ..tenants[0].clone() };
        tenants.push(other);
    }
    let groups = "/providers/Microsoft.Management/managementGroups";
    let root = format!("{groups}/{}", azure.tenant());
    let body = json!({ "properties": { "displayName": "Contoso" } });
    let put = |url: &str, body: &Value| azure.send(azure.client, "PUT", url, body);
    assert_eq!(code(&put(&root, &body)), "AuthorizationFailed");
    assert_eq!(code(&put(&root.to_uppercase(), &body)), "AuthorizationFailed");
    let other = format!("{groups}/{OTHER_TENANT}");
    assert_eq!(code(&put(&other, &body)), "InvalidManagementGroupId");

    azure.grant(CONTRIBUTOR, "/");
    assert_eq!(code(&put(&other, &body)), "InvalidManagementGroupId");
    let renamed = reply_json(&put(&root, &body));
    assert_eq!(renamed["properties"]["displayName"], "Contoso");
    assert_eq!(renamed["properties"]["details"]["parent"], Value::Null);
    let listed = reply_json(&azure.get(azure.client, groups));
    let names: Vec<_> =
        listed["value"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert_eq!(names, [&json!(azure.tenant())]);
    assert_eq!(listed["value"][0]["properties"]["displayName"], "Contoso");
    let team = reply_json(&put(&format!("{groups}/team"), &json!({})));
    assert_eq!(team["properties"]["details"]["parent"]["displayName"], "Contoso");

    let moved =
        json!({ "properties": { "details": { "parent": { "id": format!("{groups}/team") } } } });
    assert_eq!(code(&put(&root, &moved)), "InvalidManagementGroupId");
    let deleted = azure.send(azure.client, "DELETE", &root, &Value::Null);
    assert_eq!(code(&deleted), "InvalidManagementGroupId");
}
