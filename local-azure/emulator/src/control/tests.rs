use http::Method;
use lanyard_emulator_core::ingress::Ingress;
use serde_json::{Value, json};

use super::CONTROL_OPERATIONS;
use crate::testing::seeded_state::seeded_nine_identities;
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

const ID: &str = "33333333-3333-4333-8333-333333333333";

/// A body with every field of each operation that has a body.
fn complete_bodies() -> Vec<(&'static str, &'static str, Value)> {
    let rule = json!({
        "name": "r", "service": "key-vault", "host": "h", "method": "GET", "path": "/*",
        "apiVersion": "7.4", "clientId": ID, "principal": ID, "after": 1, "times": 1, "every": 1,
        "percent": 5, "seed": 1, "from": "2027-01-01T00:00:00Z", "until": "2028-01-01T00:00:00Z",
        "seconds": 1, "beyond": { "requests": 1, "seconds": 1 }, "limits": "published",
        "bucket": { "capacity": 1, "refill": 1, "seconds": 1, "sharedBy": "principal" },
        "effect": { "type": "error", "status": 500, "code": "c", "message": "m" },
    });
    let settings = json!({
        "resourceManager": {
            "quotas": [{ "name": "Cores", "limit": 1 }],
            "unregisteredNamespaces": ["Microsoft.Network"],
        },
        "tokens": { "applicationSeconds": 600 },
        "propagation": { "roleAssignments": { "controlPlaneSeconds": 1 } },
    });
    vec![
        ("Snapshot_Restore", "snapshot", json!({ "format": 1, "ids": {}, "azure": {} })),
        (
            "Identities_Rotate",
            "rotate",
            json!({ "component": "capz", "clientId": ID, "padding": 1 }),
        ),
        ("Drills_Add", "drills", json!({ "fault": "expired", "component": "capz" })),
        (
            "Drills_Add",
            "drills",
            json!({
                "name": "d", "summary": "s", "expectation": "e", "settings": settings,
                "faults": [rule], "steps": [{ "afterSeconds": 1, "action": "replace-signing-keys" }],
            }),
        ),
        ("Settings_Update", "settings", settings),
        (
            "FederatedToken_Mint",
            "federated-token",
            json!({ "subject": "s", "audience": "a", "lifetimeSeconds": 60 }),
        ),
        ("SignIn_Put", "sign-in", json!({ "automaticUser": "u" })),
        ("DeviceCodes_Decide", "device-codes/c", json!({ "user": "u", "decline": false })),
        ("SigningKeys_Roll", "signing-keys", json!({ "tenant": "t", "rollover": "publish" })),
        (
            "Issuers_Put",
            "issuers",
            json!({ "issuer": "https://i", "jwks": { "keys": [{ "kty": "RSA", "n": "n", "e": "e", "kid": "k", "alg": "RS256", "use": "sig" }] } }),
        ),
        (
            "FederatedCredentials_Add",
            "federated-credentials",
            json!({ "clientId": ID, "name": "n", "issuer": "https://i", "subject": "s", "audiences": ["a"] }),
        ),
        (
            "IdentityBindings_Add",
            "identity-bindings",
            json!({ "clientId": ID, "clusterId": "c", "serverName": "s", "issuer": "https://i", "subject": "s" }),
        ),
        (
            "RoleAssignments_Add",
            "role-assignments",
            json!({ "principal": ID, "role": "Reader", "scope": "/subscriptions/sub" }),
        ),
        (
            "Keys_Put",
            "keys",
            json!({
                "vaultHost": "platform-kv.vault.azure.net", "name": "k", "version": "v", "bits": 2048,
                "numbers": { "n": "n", "e": "e", "d": "d", "p": "p", "q": "q", "dp": "d", "dq": "d", "qi": "q" },
                "enabled": true, "notBefore": "2027-01-01T00:00:00Z", "expires": "2028-01-01T00:00:00Z",
            }),
        ),
        (
            "ManagedClusters_Update",
            "managed-clusters",
            json!({
                "clusterId": "/subscriptions/sub", "kubeconfig": "k", "adminKubeconfig": "a",
                "apiServer": { "issuer": "https://i", "jwks": { "keys": [{ "kty": "RSA", "n": "n", "e": "e" }] } },
            }),
        ),
        (
            "IdentityUrls_Issue",
            "identity-urls",
            json!({ "resourceId": "/subscriptions/sub/resourceGroups/g/providers/A.B/c/d", "location": "l", "systemAssigned": true }),
        ),
        (
            "Nodes_Put",
            "nodes/n",
            json!({ "identities": [ID], "systemAssigned": true, "clientAddresses": ["192.0.2.1"], "location": "l" }),
        ),
        ("Clock_Change", "clock", json!({ "stopped": true, "advanceSeconds": 1 })),
        ("TokenPolicy_Put", "tokens", json!({ "applicationSeconds": 600 })),
        ("Faults_Add", "faults", rule),
    ]
}

/// Every body that results from replacing one value of `body`, or adding one key, with a planted one.
fn planted_bodies(body: &Value, planted: &Value) -> Vec<Value> {
    let mut bodies = vec![planted.clone()];
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                for inner in planted_bodies(value, planted) {
                    let mut changed = fields.clone();
                    changed.insert(name.clone(), inner);
                    bodies.push(Value::Object(changed));
                }
            }
            let mut changed = fields.clone();
            changed.insert("planted-marker".to_owned(), planted.clone());
            bodies.push(Value::Object(changed));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                for inner in planted_bodies(item, planted) {
                    let mut changed = items.clone();
                    changed[index] = inner;
                    bodies.push(Value::Array(changed));
                }
            }
        }
        _ => {}
    }
    bodies
}

#[test]
fn errors_repeat_no_key_and_no_value_of_a_body() {
    let planted = [
        json!("planted-marker"),
        json!(-987_654_321),
        json!({ "planted-marker": "planted-marker" }),
        json!(["planted-marker"]),
    ];
    let bodies = complete_bodies();
    let mut errors = 0;
    for (operation, path, body) in &bodies {
        let row = CONTROL_OPERATIONS.iter().find(|row| row.id == *operation).unwrap();
        let probe = EngineFixture::new(seeded_nine_identities().0);
        for planted in planted.iter().flat_map(|planted| planted_bodies(body, planted)) {
            let (status, reply) = send(&probe, &row.method, path, &planted.to_string());
            if status >= 400 {
                let reply = reply.to_string();
                let repeats = reply.contains("planted-marker") || reply.contains("987654321");
                assert!(!repeats, "{operation} {planted}: {reply}");
                errors += 1;
            }
        }
    }
    assert!(errors > 300, "{errors}");
    // Operations with a name in their path have no body.
    let without_body = ["Drills_Start"];
    for row in CONTROL_OPERATIONS {
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&row.method);
        let is_tested = bodies.iter().any(|(operation, ..)| *operation == row.id);
        assert_eq!(is_tested, has_body && !without_body.contains(&row.id), "{}", row.id);
    }
}
