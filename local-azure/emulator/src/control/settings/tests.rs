use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use crate::testing::{EngineFixture, azure_with_test_principals, reply_json};

fn send(probe: &EngineFixture, method: &Method, body: &str) -> (u16, Value) {
    let url = "http://127.0.0.1/lanyard/v1/settings";
    let reply = probe.send_request(Ingress::Port, method, url, &[("x-lanyard-control", "1")], body);
    (reply.status.as_u16(), reply_json(&reply))
}

#[test]
fn changed_settings_take_effect_and_are_returned() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let change = json!({
        "resourceManager": { "pageSize": 1, "unregisteredNamespaces": ["Microsoft.Network"] },
        "propagation": { "roleAssignments": { "dataPlaneSeconds": 60 } },
        "tokens": { "applicationSeconds": 600 },
    });
    let (status, changed) = send(&probe, &Method::PATCH, &change.to_string());
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["resourceManager"]["pageSize"], 1);
    assert_eq!(changed["tokens"]["applicationSeconds"], 600);
    assert_eq!(changed["tokens"]["managedIdentitySeconds"], 86_399);
    let state = probe.engine.state();
    assert_eq!(state.azure.propagation.data_plane_seconds, 60);
    assert!(state.azure.resources.settings.unregistered_namespaces.contains("microsoft.network"));
    drop(state);
    assert_eq!(send(&probe, &Method::GET, "").1, changed);
}

#[test]
fn invalid_change_is_rejected_and_changes_nothing() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let (_, before) = send(&probe, &Method::GET, "");
    let change = r#"{"resourceManager": {"pageSize": 3}, "propagation": {"rbac": 1}}"#;
    let (status, error) = send(&probe, &Method::PATCH, change);
    assert_eq!((status, &error["error"]["code"]), (400, &json!("SettingsInvalid")));
    assert!(error["error"]["message"].as_str().unwrap().contains("`propagation`"), "{error}");
    assert_eq!(send(&probe, &Method::GET, "").1, before);
}
