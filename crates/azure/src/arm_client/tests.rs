//! Tests of the requests, with scripted replies.

use std::time::Duration;

use lanyard_clock::{Clock, ManualClock};
use lanyard_vocabulary::cloud::PUBLIC;
use serde_json::json;

use super::*;
use crate::scripted_azure::{ScriptedAzure, ScriptedCredential, ScriptedReply, run_with_clock};

const GROUP: &str = "/subscriptions/s/resourceGroups/g";
const POLICY: PollPolicy =
    PollPolicy { interval: Duration::from_secs(2), timeout: Duration::from_mins(1) };

fn arm(
    replies: impl IntoIterator<Item = ScriptedReply>,
) -> (ArmClient, Arc<ScriptedAzure>, ManualClock) {
    let azure = ScriptedAzure::new(replies);
    let (transport, clock) = azure.transport();
    (ArmClient::new(&PUBLIC, Arc::new(ScriptedCredential), &transport), azure, clock)
}

fn error_body(code: &str) -> Value {
    json!({ "error": { "code": code, "message": "no" } })
}

#[tokio::test]
async fn request_has_method_version_conditions_and_body() {
    let reply = (
        201,
        &[("etag", "\"2\""), ("x-ms-correlation-request-id", "c")][..],
        json!({ "id": GROUP }),
    );
    let (arm, azure, _) = arm([reply]);
    let request = ArmRequest::put(GROUP, "2021-04-01", json!({ "location": "westeurope" }))
        .with_if_match("\"1\"");
    let response = arm.send(&request).await.unwrap();
    assert_eq!((response.status, response.headers.etag.as_deref()), (201, Some("\"2\"")));
    assert_eq!(
        azure.requests(),
        [format!(
            "PUT https://management.azure.com{GROUP}?api-version=2021-04-01 if-match=\"1\" {{\"location\":\"westeurope\"}}"
        )]
    );
}

#[tokio::test]
async fn only_a_missing_resource_is_none() {
    for (code, is_missing) in [
        ("ResourceNotFound", true),
        ("ResourceGroupNotFound", true),
        ("ParentResourceNotFound", true),
        ("NotFound", true),
        ("SubscriptionNotFound", false),
        ("InvalidResourceType", false),
    ] {
        let (client, _, _) = arm([(404, &[][..], error_body(code))]);
        let result = client.fetch_optional(GROUP, "2021-04-01").await;
        assert_eq!(matches!(result, Ok(None)), is_missing, "{code}");
        assert_eq!(result.is_err(), !is_missing, "{code}");
    }
    let (client, _, _) = arm([(404, &[][..], Value::Null)]);
    assert!(client.fetch_optional(GROUP, "2021-04-01").await.is_err());
}

#[tokio::test]
async fn list_follows_next_links_of_the_same_host_only() {
    let next =
        "https://management.azure.com/subscriptions/s/resourceGroups?api-version=1&$skiptoken=2";
    let first = json!({ "value": [1, 2], "nextLink": next });
    let (client, azure, _) = arm([(200, &[][..], first), (200, &[][..], json!({ "value": [3] }))]);
    let query = [("$filter", "tagName eq 'a'")];
    let items = client.list("/subscriptions/s/resourceGroups", "1", &query).await.unwrap();
    assert_eq!(items, [json!(1), json!(2), json!(3)]);
    assert_eq!(azure.requests()[1], format!("GET {next}"));

    for foreign in [
        "http://management.azure.com/x",
        "https://management.azure.com:8443/x",
        "https://user@management.azure.com/x",
        "https://management.azure.com.example.org/x",
        "/subscriptions",
    ] {
        let page = json!({ "value": [], "nextLink": foreign });
        let (client, azure, _) = arm([(200, &[][..], page)]);
        let error = client.list("/subscriptions", "1", &[]).await.unwrap_err();
        assert!(matches!(error, AzureCallError::ForeignUrl { .. }), "{error}");
        assert_eq!(azure.requests().len(), 1, "{foreign}");
    }
}

#[tokio::test]
async fn endless_list_ends_with_an_error() {
    let next = "https://management.azure.com/subscriptions?api-version=1";
    let page = json!({ "value": [0], "nextLink": next });
    let (client, _, clock) = arm((0..=MAX_PAGES).map(|_| (200, &[][..], page.clone())));
    let result =
        run_with_clock(&clock, async move { client.list("/subscriptions", "1", &[]).await });
    assert!(matches!(result.await, Err(AzureCallError::TooManyPages { limit: MAX_PAGES, .. })));
}

#[tokio::test]
async fn wait_polls_at_the_requested_times_and_returns_the_resource() {
    let headers = &[
        ("azure-asyncoperation", "https://management.azure.com/operations/1"),
        ("retry-after", "5"),
    ][..];
    let resource = json!({ "id": GROUP, "properties": { "provisioningState": "Succeeded" } });
    let (client, azure, clock) = arm([
        (201, headers, json!({})),
        (200, &[][..], json!({ "status": "InProgress" })),
        (400, &[][..], error_body("InternalServerError")),
        (200, &[][..], json!({ "status": "Succeeded" })),
        (404, &[][..], error_body("ResourceNotFound")),
        (200, &[][..], resource.clone()),
    ]);
    let start = client.start(&ArmRequest::put(GROUP, "1", json!({}))).await.unwrap();
    let OperationStart::Pending(operation) = start else { panic!("{start:?}") };
    let shared: SharedClock = Arc::new(clock.clone());
    let response =
        run_with_clock(&clock, async move { client.wait(operation, &shared, POLICY).await });
    assert_eq!(response.await.unwrap().body, resource);
    // 5 s of Retry-After, then three intervals.
    assert_eq!(clock.monotonic(), Duration::from_secs(11));
    assert_eq!(azure.requests().len(), 6);
}

#[tokio::test]
async fn wait_ends_at_its_deadline_with_the_operation() {
    let headers = &[("location", "https://management.azure.com/results/1")][..];
    let accepted = || (202, headers, Value::Null);
    let (client, _, clock) = arm((0..40).map(|_| accepted()));
    let start = client.start(&ArmRequest::delete(GROUP, "1")).await.unwrap();
    let OperationStart::Pending(operation) = start else { panic!("{start:?}") };
    let (shared, expected): (SharedClock, _) = (Arc::new(clock.clone()), operation.clone());
    let error =
        run_with_clock(&clock, async move { client.wait(operation, &shared, POLICY).await });
    let error = error.await.unwrap_err();
    assert!(
        matches!(&error, OperationError::TimedOut { operation, .. } if **operation == expected),
        "{error}"
    );
    assert_eq!(clock.monotonic(), POLICY.timeout);
}

#[tokio::test]
async fn deletion_of_a_missing_resource_is_complete_and_foreign_urls_get_no_token() {
    let (client, _, _) = arm([(404, &[][..], error_body("ResourceGroupNotFound"))]);
    let start = client.start(&ArmRequest::delete(GROUP, "1")).await.unwrap();
    assert!(matches!(start, OperationStart::Completed(_)));

    let headers = &[("location", "https://example.org/results/1")][..];
    let (client, azure, _) = arm([(202, headers, Value::Null)]);
    let start = client.start(&ArmRequest::delete(GROUP, "1")).await.unwrap();
    let OperationStart::Pending(operation) = start else { panic!("{start:?}") };
    let error = client.poll(&operation).await.unwrap_err();
    assert!(error.to_string().ends_with("of another host: `https://example.org`"), "{error}");
    assert_eq!(azure.requests().len(), 1);
}
