use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use crate::testing::{EngineFixture, azure_with_test_principals, reply_json};

fn send(probe: &EngineFixture, method: &Method, path: &str, body: &str) -> (u16, Value) {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    let header = [("x-lanyard-control", "1")];
    let reply = probe.send_request(Ingress::Port, method, &url, &header, body);
    (reply.status.as_u16(), reply_json(&reply))
}

#[test]
fn drill_is_listed_started_and_stopped() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let (_, listed) = send(&probe, &Method::GET, "drills", "");
    assert_eq!(listed["running"], Value::Null);
    assert_eq!(listed["value"][0]["name"], "rbac-five-minutes");
    let (_, before) = send(&probe, &Method::GET, "settings", "");

    let (status, running) = send(&probe, &Method::POST, "drills/arm-429-on-destroy", "");
    assert_eq!((status, &running["name"]), (201, &json!("arm-429-on-destroy")));
    let (_, during) = send(&probe, &Method::GET, "settings", "");
    assert_eq!(during["resourceManager"]["longRunning"][0]["polls"], 2);
    let (_, rules) = send(&probe, &Method::GET, "faults", "");
    assert_eq!(rules["value"][0]["name"], "arm-429-on-destroy");
    let (status, error) = send(&probe, &Method::POST, "drills/entra-brownout", "");
    assert_eq!((status, &error["error"]["code"]), (409, &json!("DrillRuns")));

    let (status, stopped) = send(&probe, &Method::DELETE, "drills", "");
    assert_eq!((status, &stopped["stopped"]), (200, &json!("arm-429-on-destroy")));
    assert_eq!(send(&probe, &Method::GET, "settings", "").1, before);
    assert_eq!(send(&probe, &Method::GET, "faults", "").1["value"], json!([]));
    assert_eq!(send(&probe, &Method::DELETE, "drills", "").0, 404);
}

#[test]
fn drill_of_the_caller_runs_and_an_invalid_one_is_rejected() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let fault_drill = json!({
        "name": "own",
        "faults": [{ "name": "own", "effect": { "type": "reset" } }],
        "steps": [{ "afterSeconds": 5, "action": "publish-signing-keys" }],
    });
    assert_eq!(send(&probe, &Method::POST, "drills", &fault_drill.to_string()).0, 201);
    assert_eq!(send(&probe, &Method::DELETE, "drills", "").0, 200);
    for (invalid, named) in [
        (json!({ "name": "x", "step": [] }), "unknown field"),
        (json!({ "name": "x", "settings": { "pageSize": 1 } }), "`settings`"),
        (json!({ "name": "x", "steps": [{ "action": "explode" }] }), "`steps[0].action`"),
        (
            json!({
                "name": "x",
                "steps": [
                    { "afterSeconds": 5, "action": "rotate-credentials" },
                    { "afterSeconds": 4, "action": "rotate-credentials" },
                ],
            }),
            "order",
        ),
    ] {
        let (status, error) = send(&probe, &Method::POST, "drills", &invalid.to_string());
        assert_eq!(status, 400, "{invalid}");
        assert!(error["error"]["message"].as_str().unwrap().contains(named), "{error}");
    }
    let (status, error) = send(&probe, &Method::POST, "drills/unknown", "");
    assert_eq!(status, 404);
    assert!(error["error"]["message"].as_str().unwrap().contains("entra-brownout"), "{error}");
}
