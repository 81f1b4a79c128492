use http::{Method, StatusCode};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use crate::testing::seeded_state::seeded_nine_identities;
use crate::testing::{EngineFixture, reply_json};

fn send(probe: &EngineFixture, method: &Method, path: &str, body: &Value) -> ServiceReply {
    let url = format!("http://127.0.0.1/lanyard/v1/{path}");
    let header = [("x-lanyard-control", "1")];
    probe.send_request(Ingress::Port, method, &url, &header, &body.to_string())
}

fn token_client(probe: &EngineFixture, node: &str, selector: &str) -> Value {
    let url = format!(
        "http://127.0.0.1:7750/nodes/{node}/metadata/identity/oauth2/token\
         ?api-version=2018-02-01&resource=https://vault.azure.net{selector}"
    );
    reply_json(&probe.get(Ingress::Port, &url, &[("metadata", "true")]))["client_id"].clone()
}

#[test]
fn node_has_its_own_user_assigned_and_system_assigned_identity() {
    let (mut azure, _) = seeded_nine_identities();
    azure.imds.default_node.machine.subscription = "sub".to_owned();
    let disk = azure.registry.component_identity(Component::Disk).unwrap().client_id;
    let probe = EngineFixture::new(azure);
    let body = json!({ "identities": [disk] });
    let created = send(&probe, &Method::PUT, "nodes/worker-1", &body);
    assert_eq!(created.status, StatusCode::CREATED, "{}", reply_json(&created));
    assert_eq!(reply_json(&created)["systemAssignedClientId"], Value::Null);
    assert_eq!(token_client(&probe, "worker-1", ""), json!(disk));

    let body = json!({ "identities": [disk], "systemAssigned": true });
    let replaced = send(&probe, &Method::PUT, "nodes/worker-1", &body);
    assert_eq!(replaced.status, StatusCode::OK);
    let own = reply_json(&replaced)["systemAssignedClientId"].clone();
    assert_eq!(token_client(&probe, "worker-1", ""), own, "the system-assigned one is the default");
    assert_eq!(token_client(&probe, "worker-1", &format!("&client_id={disk}")), json!(disk));
    let listed = reply_json(&send(&probe, &Method::GET, "nodes", &Value::Null));
    assert_eq!(listed["value"][0]["identities"], json!([disk]));

    assert_eq!(send(&probe, &Method::DELETE, "nodes/worker-1", &Value::Null).status, 204);
    assert_eq!(token_client(&probe, "worker-1", ""), Value::Null);
    let client = own.as_str().unwrap().parse().unwrap();
    assert!(probe.engine.state().azure.directory.service_principal_by_client_id(client).is_none());
    assert_eq!(send(&probe, &Method::DELETE, "nodes/worker-1", &Value::Null).status, 404);
}

#[test]
fn repeated_identity_is_assigned_once() {
    let (azure, _) = seeded_nine_identities();
    let disk = azure.registry.component_identity(Component::Disk).unwrap().client_id;
    let probe = EngineFixture::new(azure);
    let body = json!({ "identities": [disk, disk] });
    let created = reply_json(&send(&probe, &Method::PUT, "nodes/a", &body));
    assert_eq!(created["identities"], json!([disk]));
    assert_eq!(token_client(&probe, "a", ""), json!(disk), "no selector is needed");
}

#[test]
fn address_in_the_form_of_ipv6_is_that_of_ipv4() {
    let probe = EngineFixture::new(seeded_nine_identities().0);
    let body = json!({ "clientAddresses": ["::ffff:127.0.0.5", "127.0.0.5"] });
    let created = reply_json(&send(&probe, &Method::PUT, "nodes/a", &body));
    assert_eq!(created["clientAddresses"], json!(["127.0.0.5"]));
    let body = json!({ "clientAddresses": ["::ffff:127.0.0.5"] });
    let reply = send(&probe, &Method::PUT, "nodes/b", &body);
    assert_eq!(reply.status, StatusCode::CONFLICT);
}

#[test]
fn invalid_nodes_are_rejected() {
    let (azure, _) = seeded_nine_identities();
    let application = azure.registry.test_clients.as_ref().unwrap().secret_client;
    let probe = EngineFixture::new(azure);
    let body = json!({ "clientAddresses": ["127.0.0.5"] });
    assert_eq!(send(&probe, &Method::PUT, "nodes/a", &body).status, StatusCode::CREATED);
    assert_eq!(send(&probe, &Method::PUT, "nodes/a", &body).status, StatusCode::OK);
    let cases = [
        ("nodes/b", json!({ "clientAddresses": ["127.0.0.5"] }), 409, "AddressTaken"),
        ("nodes/B", json!({}), 400, "NameInvalid"),
        ("nodes/-a", json!({}), 400, "NameInvalid"),
        ("nodes/a-", json!({}), 400, "NameInvalid"),
        ("nodes/b", json!({ "identities": [application] }), 404, "IdentityNotFound"),
        ("nodes/b", json!({ "clientAddresses": ["localhost"] }), 400, "BodyInvalid"),
    ];
    for (path, body, status, code) in cases {
        let reply = send(&probe, &Method::PUT, path, &body);
        assert_eq!(reply.status.as_u16(), status, "{path} {body}");
        assert_eq!(reply_json(&reply)["error"]["code"], code, "{path} {body}");
    }
}
