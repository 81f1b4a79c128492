use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::Value;

use crate::testing::{APP, EngineFixture, SECRET, azure_with_test_principals, reply_json};

const HEADER: [(&str, &str); 1] = [("x-lanyard-control", "1")];

fn send(probe: &EngineFixture, method: &Method, path: &str, body: &str) -> ServiceReply {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    probe.send_request(Ingress::Port, method, &url, &HEADER, body)
}

fn token_status(probe: &EngineFixture) -> u16 {
    probe.request_token(&[("client_id", APP), ("client_secret", SECRET)]).status.as_u16()
}

#[test]
fn restored_snapshot_replaces_state_clock_and_ids() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let snapshot = send(&probe, &Method::GET, "snapshot", "");
    assert_eq!(snapshot.status, 200);
    let snapshot = String::from_utf8(snapshot.body.to_vec()).unwrap();
    let month = r#"{ "advanceSeconds": 2678400, "stopped": true }"#;
    assert_eq!(send(&probe, &Method::POST, "clock", month).status, 200);
    assert_eq!(token_status(&probe), 401);
    assert_eq!(send(&probe, &Method::PUT, "snapshot", &snapshot).status, 204);
    assert_eq!(token_status(&probe), 200);
    assert_eq!(reply_json(&send(&probe, &Method::GET, "clock", ""))["stopped"], false);
    let other = EngineFixture::new(lanyard_emulator_state::azure_state::AzureState::default());
    assert_eq!(send(&other, &Method::PUT, "snapshot", &snapshot).status, 204);
    assert_eq!(token_status(&other), 200);
}

#[test]
fn invalid_snapshot_changes_nothing() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let reply = send(&probe, &Method::PUT, "snapshot", "{}");
    assert_eq!(
        (reply.status.as_u16(), &reply_json(&reply)["error"]["code"]),
        (400, &Value::from("SnapshotInvalid"))
    );
    assert_eq!(token_status(&probe), 200);
}

#[test]
fn export_contains_secrets_only_on_request() {
    let probe = EngineFixture::new(crate::testing::seeded_state::seeded_nine_identities().0);
    let export = |query: &str| {
        let reply = send(&probe, &Method::GET, &format!("export{query}"), "");
        (reply.status.as_u16(), String::from_utf8(reply.body.to_vec()).unwrap())
    };
    let (status, without) = export("");
    assert_eq!(status, 200);
    let json: Value = serde_json::from_str(&without).unwrap();
    for list in
        ["tenants", "subscriptions", "resources", "roleAssignments", "servicePrincipals", "vaults"]
    {
        assert!(json[list].as_array().is_some_and(|list| !list.is_empty()), "{list}");
    }
    let first_secret = |export: &str| {
        let export: Value = serde_json::from_str(export).unwrap();
        let vaults = export["vaults"].as_array().unwrap().iter();
        vaults.map(|vault| vault["secrets"][0].clone()).find(|secret| !secret.is_null()).unwrap()
    };
    let secret = first_secret(&without);
    assert!(secret["name"].is_string() && secret["value"].is_null(), "{secret}");
    let (_, with) = export("?secrets=true");
    let value = first_secret(&with)["value"].as_str().unwrap().to_owned();
    assert!(value.len() > 100 && !without.contains(&value[..60]));
    assert_eq!(export("?secrets=yes").0, 400);
}
