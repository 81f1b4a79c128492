use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::reply_json;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsChange};
use serde_json::{Value, json};

const ARM: &str = "https://management.azure.com";

fn fixture_with_rule(fields: &Value) -> ArmFixture {
    let fixture = ArmFixture::new();
    let mut rule = json!({ "resourceType": "Microsoft.Network", "polls": 2 });
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let change = json!({ "resourceManager": { "longRunning": [rule] } });
    let change = SettingsChange::from_json(change).unwrap();
    let settings = change.applied_to(&EmulatorSettings::default()).unwrap();
    settings.store(&mut fixture.probe.engine.state().azure);
    fixture
}

fn network() -> String {
    "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.Network/virtualNetworks/net"
        .to_owned()
}

fn create_network(fixture: &ArmFixture) -> ServiceReply {
    let body = json!({
        "location": "eastus",
        "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } },
    });
    fixture.send_request(fixture.owner, "PUT", &network(), &body.to_string())
}

/// The path of the status of the operation that a reply started.
fn status_path(reply: &ServiceReply) -> String {
    let url = reply.header("azure-asyncoperation").unwrap();
    url.strip_prefix(ARM).unwrap().split('?').next().unwrap().to_owned()
}

#[test]
fn operation_takes_the_time_of_its_rule() {
    let rule = json!({ "polls": 0, "seconds": 30, "retryAfterMilliseconds": null });
    let fixture = fixture_with_rule(&rule);
    let created = create_network(&fixture);
    assert_eq!(created.header("retry-after-ms"), None);
    let status = status_path(&created);
    for (seconds, expected) in [(0, "InProgress"), (29, "InProgress"), (1, "Succeeded")] {
        fixture.probe.clock.advance(std::time::Duration::from_secs(seconds));
        assert_eq!(reply_json(&fixture.get(fixture.owner, &status))["status"], expected);
    }
}

#[test]
fn written_resource_is_missing_for_a_number_of_reads() {
    let fixture = fixture_with_rule(&json!({ "polls": 0, "missingReads": 2 }));
    let status = status_path(&create_network(&fixture));
    assert_eq!(reply_json(&fixture.get(fixture.owner, &status))["status"], "Succeeded");
    let statuses = (0..3).map(|_| fixture.get(fixture.owner, &network()).status.as_u16());
    assert_eq!(statuses.collect::<Vec<_>>(), [404, 404, 200]);
}

#[test]
fn status_of_an_expired_operation_is_gone() {
    let fixture = fixture_with_rule(&json!({ "expiresAfterPolls": 1 }));
    let status = status_path(&create_network(&fixture));
    assert_eq!(reply_json(&fixture.get(fixture.owner, &status))["status"], "InProgress");
    let gone = fixture.get(fixture.owner, &status);
    assert_eq!(gone.status, 404);
    assert_eq!(reply_json(&gone)["error"]["code"], "OperationNotFound");
}

#[test]
fn failed_operation_has_its_code_and_leaves_a_failed_resource() {
    let outcome =
        json!({ "status": "Failed", "code": "Overconstrained", "message": "No capacity." });
    let fixture = fixture_with_rule(&json!({ "polls": 1, "outcome": outcome }));
    let status = status_path(&create_network(&fixture));
    let ended = reply_json(&fixture.get(fixture.owner, &status));
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("Failed"), &json!("Overconstrained"))
    );
    let resource = reply_json(&fixture.get(fixture.owner, &network()));
    assert_eq!(resource["properties"]["provisioningState"], "Failed");
}

#[test]
fn reads_of_a_pending_resource_ask_the_client_to_poll_again() {
    let fixture = fixture_with_rule(&json!({ "style": "body", "retryAfterMilliseconds": 70 }));
    assert_eq!(create_network(&fixture).header("retry-after-ms"), Some("70"));
    let first = fixture.get(fixture.owner, &network());
    assert_eq!(first.header("retry-after-ms"), Some("70"));
    let second = fixture.get(fixture.owner, &network());
    assert_eq!(second.header("retry-after-ms"), None);
    assert_eq!(reply_json(&second)["properties"]["provisioningState"], "Succeeded");
}
