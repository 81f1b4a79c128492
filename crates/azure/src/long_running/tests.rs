//! Tests of the state machine.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::response_headers::ResponseHeaders;

const ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v";
const STATUS: &str = "https://management.azure.com/subscriptions/s/operations/1?s=signature";
const RESULT: &str = "https://management.azure.com/subscriptions/s/results/1";

fn put() -> ArmRequest {
    ArmRequest::put(ID, "2023-11-01", json!({}))
}

fn delete() -> ArmRequest {
    ArmRequest::delete(ID, "2023-11-01")
}

fn post() -> ArmRequest {
    ArmRequest::post(format!("{ID}/start"), "2023-11-01", None)
}

fn response(status: u16, body: Value) -> AzureResponse {
    AzureResponse { status, body, headers: ResponseHeaders::default() }
}

fn with_urls(
    response: AzureResponse,
    status: Option<&str>,
    location: Option<&str>,
) -> AzureResponse {
    let headers = ResponseHeaders {
        azure_async_operation: status.map(str::to_owned),
        location: location.map(str::to_owned),
        ..ResponseHeaders::default()
    };
    AzureResponse { headers, ..response }
}

fn state(state: &str) -> Value {
    json!({ "id": ID, "properties": { "provisioningState": state } })
}

fn pending(request: &ArmRequest, response: AzureResponse) -> PendingOperation {
    match OperationStart::from_response(request, response).unwrap() {
        OperationStart::Pending(operation) => operation,
        OperationStart::Completed(response) => panic!("complete: {response:?}"),
    }
}

#[test]
fn source_is_async_operation_then_location_then_the_resource() {
    let accepted = || response(202, Value::Null);
    for (request, reply, expected) in [
        (put(), response(200, state("Succeeded")), None),
        (put(), response(201, json!({})), None),
        (
            put(),
            with_urls(response(201, state("Updating")), Some(STATUS), Some(RESULT)),
            Some(STATUS),
        ),
        (put(), with_urls(accepted(), None, Some(RESULT)), Some(RESULT)),
        (put(), with_urls(response(200, state("Succeeded")), None, Some(RESULT)), None),
        (put(), response(201, state("Creating")), Some("resource")),
        (put(), response(200, state("updating")), Some("resource")),
        (put(), accepted(), Some("resource")),
        (delete(), with_urls(accepted(), Some(STATUS), Some(RESULT)), Some(STATUS)),
        (delete(), with_urls(accepted(), None, Some(RESULT)), Some(RESULT)),
        (delete(), accepted(), Some("resource")),
        (delete(), response(204, Value::Null), None),
        (delete(), response(200, Value::Null), None),
        (post(), with_urls(accepted(), Some(STATUS), Some(RESULT)), Some(STATUS)),
        (post(), accepted(), None),
        (ArmRequest::get(ID, "1"), response(200, state("Updating")), None),
    ] {
        let label = format!("{request:?} {reply:?}");
        let source = match OperationStart::from_response(&request, reply).unwrap() {
            OperationStart::Completed(_) => None,
            OperationStart::Pending(it) => Some(it.polling_url().unwrap_or("resource").to_owned()),
        };
        assert_eq!(source.as_deref(), expected, "{label}");
    }
}

#[test]
fn write_that_failed_at_once_is_an_error() {
    let error = OperationStart::from_response(&put(), response(200, state("failed"))).unwrap_err();
    assert!(matches!(&error, OperationError::Failed { state, .. } if state == "failed"), "{error}");
}

#[test]
fn put_reads_the_resource_after_its_operation() {
    let operation =
        pending(&put(), with_urls(response(201, state("Updating")), Some(STATUS), None));
    let running = response(200, json!({ "status": "Running" }));
    let polled = operation.advance(Ok(running)).unwrap();
    let PollAdvance::Report(OperationPoll::InProgress { operation, .. }) = polled else {
        panic!("{polled:?}");
    };
    let done = response(200, json!({ "status": "SUCCEEDED" }));
    let PollAdvance::PollNow(read) = operation.advance(Ok(done)).unwrap() else { panic!() };
    assert_eq!(
        (read.polling_url(), read.resource_request()),
        (None, ArmRequest::get(ID, "2023-11-01"))
    );
    let resource = response(200, state("Succeeded"));
    assert_eq!(
        read.advance(Ok(resource.clone())).unwrap(),
        PollAdvance::Report(OperationPoll::Succeeded(resource))
    );
}

#[test]
fn action_reads_its_result_at_the_location() {
    let start = with_urls(response(202, Value::Null), Some(STATUS), Some(RESULT));
    let done = response(200, json!({ "status": "Succeeded" }));
    let PollAdvance::PollNow(read) = pending(&post(), start).advance(Ok(done)).unwrap() else {
        panic!()
    };
    assert_eq!(read.polling_url(), Some(RESULT));
    let result = response(200, json!({ "value": 1 }));
    assert_eq!(
        read.advance(Ok(result.clone())).unwrap(),
        PollAdvance::Report(OperationPoll::Succeeded(result))
    );
}

#[test]
fn failed_operations_keep_code_and_message() {
    let start = |location: bool| {
        with_urls(response(202, Value::Null), (!location).then_some(STATUS), Some(RESULT))
    };
    let error = json!({ "code": "InUse", "message": "a NIC uses it" });
    let body = response(200, json!({ "status": "Failed", "error": error }));
    let conflict = AzureCallError::UnexpectedStatus {
        target: "GET x".to_owned(),
        status: 409,
        code: "InUse".to_owned(),
        message: "a NIC uses it".to_owned(),
    };
    for (location, reply) in [(false, Ok(body)), (true, Err(conflict))] {
        let error = pending(&delete(), start(location)).advance(reply).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("DELETE {ID}: the operation ended as Failed: InUse: a NIC uses it")
        );
    }
    let canceled = response(200, json!({ "status": "Canceled" }));
    let error = pending(&put(), with_urls(response(201, json!({})), Some(STATUS), None))
        .advance(Ok(canceled))
        .unwrap_err();
    assert!(
        matches!(&error, OperationError::Failed { state, code, .. }
        if state == "Canceled" && code == NO_CODE),
        "{error}"
    );
}

#[test]
fn missing_target_ends_a_deletion_and_delays_a_write() {
    let missing = || AzureCallError::NotFound {
        target: "GET x".to_owned(),
        code: "ResourceNotFound".to_owned(),
        message: "no".to_owned(),
    };
    let accepted = |status| with_urls(response(202, Value::Null), status, None);
    let polled = pending(&delete(), accepted(Some(STATUS))).advance(Err(missing())).unwrap();
    assert!(matches!(polled, PollAdvance::Report(OperationPoll::Succeeded(_))));
    let polled = pending(&delete(), accepted(None)).advance(Err(missing())).unwrap();
    assert!(matches!(polled, PollAdvance::Report(OperationPoll::Succeeded(_))));
    let polled = pending(&put(), accepted(None)).advance(Err(missing())).unwrap();
    assert!(matches!(polled, PollAdvance::Report(OperationPoll::InProgress { .. })));
    let polled = pending(&put(), accepted(Some(STATUS))).advance(Err(missing())).unwrap();
    assert!(matches!(polled, PollAdvance::PollNow(it) if it.polling_url().is_none()));
    let polled = pending(&post(), accepted(Some(STATUS))).advance(Err(missing()));
    assert!(matches!(polled, Err(OperationError::Call(AzureCallError::NotFound { .. }))));
}

#[test]
fn location_follows_the_newest_url() {
    let accepted = |url| with_urls(response(202, Value::Null), None, Some(url));
    let operation = pending(&delete(), accepted(RESULT));
    let next = "https://management.azure.com/subscriptions/s/results/2";
    let polled = operation.advance(Ok(accepted(next))).unwrap();
    let PollAdvance::Report(OperationPoll::InProgress { operation, .. }) = polled else {
        panic!("{polled:?}");
    };
    assert_eq!(operation.polling_url(), Some(next));
    let polled = operation.advance(Ok(response(204, Value::Null))).unwrap();
    assert!(matches!(polled, PollAdvance::Report(OperationPoll::Succeeded(_))));
}

#[test]
fn stored_operation_has_this_format_and_debug_omits_signatures() {
    let mut start = with_urls(response(202, Value::Null), Some(STATUS), Some(RESULT));
    start.headers.retry_after = Some(Duration::from_millis(1_500));
    let operation = pending(&post(), start);
    let stored = json!({
        "method": "post",
        "path": format!("{ID}/start"),
        "apiVersion": "2023-11-01",
        "target": format!("POST {ID}/start"),
        "source": { "kind": "asyncOperation", "url": STATUS, "result": RESULT },
        "retryAfterMilliseconds": 1_500,
    });
    assert_eq!(serde_json::to_value(&operation).unwrap(), stored);
    assert_eq!(serde_json::from_value::<PendingOperation>(stored).unwrap(), operation);
    assert!(!format!("{operation:?}").contains("signature"));
}

proptest! {
    #[test]
    fn unknown_states_are_in_progress_and_terminal_ones_ignore_case(
        text in "[A-Za-z]{1,12}",
        upper in any::<bool>(),
    ) {
        let value = json!(text);
        let parsed = ProvisioningState::parse(Some(&value));
        let terminal = ["succeeded", "failed", "canceled", "cancelled"];
        let is_terminal = terminal.contains(&text.to_lowercase().as_str());
        prop_assert_eq!(parsed != ProvisioningState::InProgress, is_terminal);
        for name in terminal {
            let value = json!(if upper { name.to_uppercase() } else { name.to_owned() });
            prop_assert_ne!(ProvisioningState::parse(Some(&value)), ProvisioningState::InProgress);
        }
    }
}
