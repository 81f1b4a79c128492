use lanyard_emulator::testing::authorization_fixture::{
    ASSIGNMENTS, AuthorizationFixture, GROUP, READER, SECRETS_USER, SUB, VAULT,
};
use lanyard_emulator::testing::reply_json;
use serde_json::json;

#[test]
fn permissions_and_usage_are_reported() {
    let azure = AuthorizationFixture::new();
    azure.grant(READER, GROUP);
    azure.grant(SECRETS_USER, VAULT);
    let url = format!("{VAULT}/providers/Microsoft.Authorization/permissions");
    let found = reply_json(&azure.get(azure.client, &url))["value"].clone();
    let actions: Vec<_> =
        found.as_array().unwrap().iter().map(|it| it["actions"].clone()).collect();
    assert_eq!(actions, [json!([]), json!(["*/read"])]);
    let usage = format!("{SUB}/providers/Microsoft.Authorization/roleAssignmentsUsageMetrics");
    let usage = reply_json(&azure.get(azure.owner, &usage));
    let count = azure.list(&format!("{SUB}/{ASSIGNMENTS}")).len();
    assert_eq!(usage["roleAssignmentsCurrentCount"], count);
    assert_eq!(usage["roleAssignmentsLimit"], 4_000);
}
