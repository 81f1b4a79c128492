use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use crate::testing::{EngineFixture, azure_with_test_principals, reply_json};

fn send(probe: &EngineFixture, method: &Method, path: &str, body: &str) -> (u16, Value) {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    let header = [("x-lanyard-control", "1")];
    let reply = probe.send_request(Ingress::Port, method, &url, &header, body);
    let json = if reply.body.is_empty() { Value::Null } else { reply_json(&reply) };
    (reply.status.as_u16(), json)
}

fn rule_names(probe: &EngineFixture) -> Vec<Value> {
    let (_, rules) = send(probe, &Method::GET, "faults", "");
    rules["value"].as_array().unwrap().iter().map(|rule| rule["name"].clone()).collect()
}

#[test]
fn fault_rules_are_removed_by_name_or_all_at_once() {
    let probe = EngineFixture::new(azure_with_test_principals());
    for name in ["a", "b?c/d e"] {
        let rule = json!({ "name": name, "effect": { "type": "reset" } });
        assert_eq!(send(&probe, &Method::POST, "faults", &rule.to_string()).0, 201);
    }
    assert_eq!(send(&probe, &Method::DELETE, "faults/b%3Fc%2Fd%20e", "").0, 204);
    assert_eq!(rule_names(&probe), [json!("a")]);
    let (status, error) = send(&probe, &Method::DELETE, "faults/b", "");
    assert_eq!((status, &error["error"]["code"]), (404, &json!("FaultNotFound")));
    assert!(error["error"]["message"].as_str().unwrap().contains("`b`"), "{error}");
    assert_eq!(rule_names(&probe), [json!("a")]);
    assert_eq!(send(&probe, &Method::DELETE, "faults", "").0, 204);
    assert_eq!(rule_names(&probe), Vec::<Value>::new());
}
