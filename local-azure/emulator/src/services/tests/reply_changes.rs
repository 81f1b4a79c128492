use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::fault_rules::{FaultRule, ReplyChange};
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use serde_json::{Value, json};

use crate::testing::{APP, EngineFixture, SECRET, azure_with_test_principals, reply_json};

/// The reply of Azure Resource Manager to a request with a token that has a defect.
fn arm_error_code(defect: &str) -> String {
    let probe = EngineFixture::new(azure_with_test_principals());
    let rule = json!({
        "name": "defect", "service": "entra",
        "effect": { "type": "token-defect", "defect": defect },
    });
    probe.engine.state().azure.faults.insert(FaultRule::from_json(rule).unwrap());
    let scope = "https://management.azure.com/.default";
    let fields = [("client_id", APP), ("client_secret", SECRET), ("scope", scope)];
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .extend_pairs(fields)
        .finish();
    let url =
        format!("https://{}/{}/oauth2/v2.0/token", crate::testing::LOGIN, crate::testing::TENANT);
    let reply = probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body);
    assert_eq!(reply.status, 200);
    let token = format!("Bearer {}", reply_json(&reply)["access_token"].as_str().unwrap());
    let url = "https://management.azure.com/subscriptions?api-version=2022-12-01";
    let reply = probe.get(Ingress::Tunnel, url, &[("authorization", &token)]);
    assert_eq!(reply.status, 401, "{defect}");
    reply_json(&reply)["error"]["code"].as_str().unwrap().to_owned()
}

#[test]
fn services_reject_tokens_with_a_defect() {
    for (defect, code) in [
        ("audience", "InvalidAuthenticationTokenAudience"),
        ("key-id", "InvalidAuthenticationToken"),
        ("expired", "ExpiredAuthenticationToken"),
        ("not-yet-valid", "ExpiredAuthenticationToken"),
    ] {
        assert_eq!(arm_error_code(defect), code, "{defect}");
    }
}

#[test]
fn next_link_of_a_list_is_the_url_of_the_request() {
    let azure = azure_with_test_principals();
    let request = ServiceRequest {
        method: Method::GET,
        scheme: lanyard_emulator_state::request::RequestScheme::Https,
        host: "management.azure.com".to_owned(),
        port: 443,
        client_ip: None,
        path: "/subscriptions".to_owned(),
        query: vec![("api-version".to_owned(), "2022-12-01".to_owned())],
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
    };
    let changed = |body: Value| {
        let reply = ServiceReply::json(http::StatusCode::OK, &body);
        reply_json(&ReplyChange::NextLinkLoop.apply(reply, &request, &azure))
    };
    let url = "https://management.azure.com/subscriptions?api-version=2022-12-01";
    assert_eq!(changed(json!({ "value": [1] })), json!({ "value": [1], "nextLink": url }));
    let graph = changed(json!({ "@odata.context": "c", "value": [] }));
    assert_eq!(graph["@odata.nextLink"], url);
    assert_eq!(changed(json!({ "name": "one" })), json!({ "name": "one" }));
}
