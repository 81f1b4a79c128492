use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use super::{TYPES_WITH_PROVIDER, implemented_types, type_without_provider};

const PLATFORM: &str = "/subscriptions/sub/resourceGroups/platform/providers";

fn put(fixture: &ArmFixture, path: &str, body: &Value) -> ServiceReply {
    fixture.send_request(fixture.owner, "PUT", path, &body.to_string())
}

fn put_error(fixture: &ArmFixture, path: &str, body: &Value) -> String {
    reply_json(&put(fixture, path, body))["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn resource_of_an_unknown_type_is_stored_as_given_and_labelled() {
    let fixture = ArmFixture::new();
    let path = format!("{PLATFORM}/Microsoft.Cache/redis/cache");
    let body = json!({ "location": "eastus", "properties": { "a": 1 } });
    let reply = put(&fixture, &path, &body);
    assert_eq!(reply.status, StatusCode::CREATED);
    assert_eq!(reply.header("x-lanyard-provider"), Some("echo"));
    let found = fixture.get(fixture.owner, &path);
    assert_eq!(reply_json(&found)["properties"]["a"], 1);
    assert_eq!(found.header("x-lanyard-provider"), Some("echo"));
    let list = fixture.get(fixture.owner, &format!("{PLATFORM}/Microsoft.Cache/redis"));
    assert_eq!(reply_json(&list)["value"].as_array().unwrap().len(), 1);
    let unknown = format!("{PLATFORM}/Contoso.None/things/x");
    assert_eq!(put_error(&fixture, &unknown, &body), "InvalidResourceNamespace");
    let known = format!("{PLATFORM}/Microsoft.KeyVault/vaults/v/keys/k");
    let reply = fixture.send_request(fixture.owner, "POST", &known, "{}");
    assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
}

#[test]
fn creation_is_answered_with_the_status_of_the_type() {
    let fixture = ArmFixture::new();
    let body = json!({ "properties": {} });
    for (path, status) in [
        ("Microsoft.ServiceBus/namespaces/bus", StatusCode::CREATED),
        ("Microsoft.ServiceBus/namespaces/bus/queues/orders", StatusCode::OK),
        ("microsoft.web/serverFarms/farm", StatusCode::OK),
        ("Microsoft.Cache/redis/cache", StatusCode::CREATED),
        (
            "Microsoft.Cache/redis/cache/providers/Microsoft.Insights/diagnosticSettings/audit",
            StatusCode::OK,
        ),
    ] {
        let path = format!("{PLATFORM}/{path}");
        assert_eq!(put(&fixture, &path, &body).status, status, "{path}");
        assert_eq!(put(&fixture, &path, &body).status, StatusCode::OK, "{path} again");
    }
}

#[test]
fn extension_resource_needs_the_registration_of_its_own_provider() {
    let fixture = ArmFixture::new();
    let cache = format!("{PLATFORM}/Microsoft.Cache/redis/cache");
    let extension = format!("{cache}/providers/Microsoft.Insights/diagnosticSettings/audit");
    let body = json!({ "properties": {} });
    let post = |namespace: &str, action: &str| {
        let path = format!("/subscriptions/sub/providers/{namespace}/{action}");
        assert_eq!(fixture.send_request(fixture.owner, "POST", &path, "").status, StatusCode::OK);
    };
    post("Microsoft.Cache", "unregister");
    assert_eq!(put_error(&fixture, &cache, &body), "MissingSubscriptionRegistration");
    assert_eq!(put(&fixture, &extension, &body).status, StatusCode::OK);
    post("Microsoft.Insights", "unregister");
    assert_eq!(put_error(&fixture, &extension, &body), "MissingSubscriptionRegistration");
    post("Microsoft.Insights", "register");
    assert_eq!(put(&fixture, &extension, &body).status, StatusCode::OK);
}

#[test]
fn types_without_an_effect_here_are_refused() {
    let fixture = ArmFixture::new();
    let vault = format!("{PLATFORM}/Microsoft.KeyVault/vaults/demo-kms");
    let cases = [
        (
            format!("{PLATFORM}/Microsoft.Authorization/denyAssignments"),
            "Microsoft.Authorization/denyAssignments",
        ),
        (
            format!("{vault}/providers/microsoft.authorization/DenyAssignments"),
            "Microsoft.Authorization/denyAssignments",
        ),
        (format!("{vault}/secrets"), "Microsoft.KeyVault/vaults/secrets"),
        (format!("{vault}/secrets/token/versions"), "Microsoft.KeyVault/vaults/secrets"),
        (format!("{PLATFORM}/Microsoft.Management/managementGroups"), "Microsoft.Management"),
        (format!("{PLATFORM}/Microsoft.Management/serviceGroups"), "Microsoft.Management"),
    ];
    let mut found: Vec<_> = cases.iter().map(|(_, refused)| *refused).collect();
    found.dedup();
    assert_eq!(found, super::REFUSED_TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let body = json!({ "properties": { "value": "hidden" } }).to_string();
    for (collection, _) in &cases {
        let resource = format!("{collection}/one");
        for (method, path) in [
            ("PUT", &resource),
            ("PATCH", &resource),
            ("GET", &resource),
            ("DELETE", &resource),
            ("GET", collection),
        ] {
            let reply = fixture.send_request(fixture.owner, method, path, &body);
            assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED, "{method} {path}");
            let error = reply_json(&reply)["error"].clone();
            assert_eq!(error["code"], "NotImplementedByEmulator", "{method} {path}");
        }
    }
    let similar = format!("{PLATFORM}/Microsoft.Authorization/denyAssignmentsOfContoso/one");
    assert_eq!(put(&fixture, &similar, &json!({})).status, StatusCode::CREATED);
}

#[test]
fn methods_that_an_implemented_type_lacks_are_refused() {
    let fixture = ArmFixture::new();
    for (method, path) in [
        ("PATCH", "Microsoft.KeyVault/vaults/demo-kms/keys/one"),
        ("DELETE", "Microsoft.KeyVault/vaults/demo-kms/keys/one"),
        ("GET", "Microsoft.KeyVault/vaults/demo-kms/keys/one/versions"),
        ("PUT", "Microsoft.KeyVault/vaults/demo-kms/privateEndpointConnections/one"),
        ("PUT", "Microsoft.KeyVault/managedHSMs/one"),
    ] {
        let path = format!("{PLATFORM}/{path}");
        let reply = fixture.send_request(fixture.owner, method, &path, "{}");
        assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED, "{method} {path}");
    }
}

#[test]
fn types_with_an_effect_in_another_service_need_their_provider() {
    let identities = "Microsoft.ManagedIdentity/userAssignedIdentities";
    let child = "microsoft.managedidentity/userassignedidentities/federatedIdentityCredentials";
    let none = BTreeMap::new();
    let provided = BTreeMap::from([(
        "Microsoft.ManagedIdentity",
        BTreeSet::from(["userAssignedIdentities".to_owned()]),
    )]);
    for kind in [identities, child] {
        assert_eq!(type_without_provider(kind, &none), Some(identities), "{kind}");
        assert_eq!(type_without_provider(kind, &provided), None, "{kind}");
    }
    assert_eq!(type_without_provider("Microsoft.Insights/components", &none), None);
}

#[test]
fn types_with_a_provider_are_implemented_by_the_complete_local_azure() {
    let fixture = ArmFixture::new();
    let implemented = implemented_types(fixture.probe.engine.services);
    for kind in TYPES_WITH_PROVIDER {
        assert_eq!(type_without_provider(kind, implemented), None);
    }
}

#[test]
fn deleting_a_resource_of_an_unknown_type_keeps_the_principals_that_it_names() {
    let fixture = ArmFixture::new();
    let principal = {
        let state = fixture.probe.engine.state();
        state.azure.registry.component_identity(Component::Disk).unwrap().object_id
    };
    let path = format!("{PLATFORM}/Microsoft.Cache/redis/cache");
    let body = json!({
        "location": "eastus",
        "identity": { "principalId": principal },
        "properties": { "principalId": principal },
    });
    assert_eq!(put(&fixture, &path, &body).status, StatusCode::CREATED);
    let reply = fixture.send_request(fixture.owner, "DELETE", &path, "");
    assert_eq!(reply.status, StatusCode::OK);
    assert!(fixture.probe.engine.state().azure.directory.service_principal(principal).is_some());
}
