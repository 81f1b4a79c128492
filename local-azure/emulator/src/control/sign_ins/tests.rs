use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use crate::testing::{
    EngineFixture, LOGIN, USER, USER_OBJECT_ID, aadsts_code, azure_with_test_principals, reply_json,
};

const AZURE_CLI: &str = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";

fn control(probe: &EngineFixture, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    let header = [("x-lanyard-control", "1")];
    let reply = probe.send_request(Ingress::Port, &method, &url, &header, &body.to_string());
    let body = if reply.body.is_empty() { Value::Null } else { reply_json(&reply) };
    (reply.status.as_u16(), body)
}

/// Starts a device flow, and returns user code and device code.
fn start_device_flow(probe: &EngineFixture) -> (String, String) {
    let url = format!("https://{LOGIN}/organizations/oauth2/v2.0/devicecode");
    let form = format!("client_id={AZURE_CLI}&scope=User.Read");
    let flow = reply_json(&probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form));
    let field = |name: &str| flow[name].as_str().unwrap().to_owned();
    (field("user_code"), field("device_code"))
}

/// The AADSTS code of a poll; `None` if it returned tokens.
fn poll(probe: &EngineFixture, device_code: &str) -> Option<u64> {
    let url = format!("https://{LOGIN}/organizations/oauth2/v2.0/token");
    let form = format!("grant_type=device_code&client_id={AZURE_CLI}&device_code={device_code}");
    aadsts_code(&probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form))
}

#[test]
fn device_codes_are_listed_and_decided() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let (user_code, device_code) = start_device_flow(&probe);
    let (_, listed) = control(&probe, Method::GET, "device-codes", &json!({}));
    assert_eq!(listed["value"][0]["userCode"], json!(user_code));
    assert_eq!(listed["value"][0]["status"], "pending");
    assert!(!listed.to_string().contains(&device_code));
    assert_eq!(poll(&probe, &device_code), Some(70_016));
    let path = format!("device-codes/{user_code}");
    for (body, status) in [
        (json!({}), 400),
        (json!({ "user": USER, "decline": true }), 400),
        (json!({ "user": "unknown@contoso.onmicrosoft.com" }), 400),
        (json!({ "user": USER }), 204),
        (json!({ "user": USER_OBJECT_ID }), 204),
        (json!({ "decline": true }), 400),
    ] {
        assert_eq!(control(&probe, Method::POST, &path, &body).0, status, "{body}");
    }
    assert_eq!(poll(&probe, &device_code), None);
    let (user_code, device_code) = start_device_flow(&probe);
    let path = format!("device-codes/{user_code}");
    assert_eq!(control(&probe, Method::POST, &path, &json!({ "decline": true })).0, 204);
    assert_eq!(poll(&probe, &device_code), Some(65_004));
}

#[test]
fn automatic_user_is_set_and_removed() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let put = |body: Value| control(&probe, Method::PUT, "sign-in", &body);
    let expected = json!({ "automaticUser": USER });
    assert_eq!(put(json!({ "automaticUser": USER_OBJECT_ID })), (200, expected.clone()));
    assert_eq!(control(&probe, Method::GET, "sign-in", &json!({})), (200, expected));
    assert_eq!(poll(&probe, &start_device_flow(&probe).1), None);
    assert_eq!(put(json!({ "automaticUser": "unknown" })).0, 400);
    assert_eq!(put(json!({ "automaticUser": null })), (200, json!({ "automaticUser": null })));
    assert_eq!(poll(&probe, &start_device_flow(&probe).1), Some(70_016));
}
