//! Long-running operations: writes and deletions that complete while the client polls.
//!
//! By default, every operation completes before its reply. Settings delay the operations of a
//! resource provider or a resource type by a number of polls, by a time, or by both. Reference:
//! "Track asynchronous Azure operations".

use http::{Method, StatusCode};
use jiff::SignedDuration;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::long_running_rule::{
    LongRunningRule, OperationOutcome, PollingStyle,
};
use lanyard_emulator_state::resources::stored_operation::{PendingChange, StoredOperation};
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{authenticate, empty_reply, json_reply};
use super::error::ArmServiceError;
use super::resource_removal::remove_resource;
use super::resource_rendering::render_resource;
use super::resource_type::ResourceType;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "Operations_GetStatus",
        method: Method::GET,
        path: "/subscriptions/{subscription}/providers/{namespace}/locations/{location}/operations/{operation}",
        support: OperationSupport::Full,
        handler: get_status,
    },
    ServiceOperation {
        id: "Operations_GetResult",
        method: Method::GET,
        path: "/subscriptions/{subscription}/providers/{namespace}/locations/{location}/operationResults/{operation}",
        support: OperationSupport::Full,
        handler: get_result,
    },
];

/// The time for which a completed operation can be read.
const RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// An operation that was started by the current request.
#[derive(Debug)]
pub(super) struct PendingOperation {
    id: Uuid,
    operation: StoredOperation,
}

impl PendingOperation {
    /// Starts an operation. `None` if the settings do not delay those of the resource type, and the operation is
    /// not held.
    pub(super) fn start(
        call: &mut OperationContext<'_>,
        kind: &ResourceType,
        resource: &AccessScope,
        change: PendingChange,
        is_held: bool,
    ) -> Option<Self> {
        let resources = &call.azure().resources;
        let rule = resources.settings.long_running.rule_for(kind.name);
        let rule = match rule.filter(|rule| !rule.is_immediate()) {
            Some(rule) => rule.clone(),
            None if is_held => LongRunningRule::of_held_operations(),
            None => return None,
        };
        let location = resources.resource(resource).and_then(|known| known.body.get("location"));
        let operation = StoredOperation {
            resource: resource.clone(),
            namespace: kind.namespace().to_owned(),
            region: location.and_then(Value::as_str).unwrap_or("eastus").to_owned(),
            change,
            polls_left: rule.polls,
            polls: 0,
            missing_reads_left: rule.missing_reads,
            is_held,
            rule,
            started: call.now,
            ended: None,
        };
        let id = call.ids.next_uuid();
        call.azure_mut().resources.operations.insert(id, operation.clone());
        Some(Self { id, operation })
    }

    /// Adds the polling headers to the reply to a write.
    pub(super) fn add_headers(
        &self,
        call: &OperationContext<'_>,
        reply: ServiceReply,
    ) -> ServiceReply {
        let reply = add_retry_after(&self.operation, reply);
        match self.operation.rule.style {
            PollingStyle::AsyncOperation => {
                reply.with_header("azure-asyncoperation", self.url(call, "operations"))
            }
            PollingStyle::Location => {
                let reply = reply.with_header("location", self.url(call, "operationResults"));
                ServiceReply { status: StatusCode::ACCEPTED, ..reply }
            }
            PollingStyle::Body => reply,
        }
    }

    /// Returns the 202 reply to a deletion, with the polling headers.
    pub(super) fn accepted_reply(&self, call: &OperationContext<'_>) -> ServiceReply {
        let reply = add_retry_after(&self.operation, empty_reply(call, StatusCode::ACCEPTED));
        let reply = reply.with_header("location", self.url(call, "operationResults"));
        match self.operation.rule.style {
            PollingStyle::AsyncOperation => {
                reply.with_header("azure-asyncoperation", self.url(call, "operations"))
            }
            PollingStyle::Location | PollingStyle::Body => reply,
        }
    }

    fn url(&self, call: &OperationContext<'_>, collection: &str) -> String {
        let subscription = call.path_parameter("subscription");
        let StoredOperation { namespace, region, .. } = &self.operation;
        format!(
            "{}/subscriptions/{subscription}/providers/{namespace}/locations/{region}/{collection}/{}?api-version={}",
            call.request.origin(),
            self.id,
            call.api_version().unwrap_or_default()
        )
    }
}

fn add_retry_after(operation: &StoredOperation, reply: ServiceReply) -> ServiceReply {
    match operation.rule.retry_after_milliseconds {
        Some(milliseconds) => reply.with_header("retry-after-ms", milliseconds.to_string()),
        None => reply,
    }
}

/// `GET …/operations/{id}`: the status; counts as a poll.
fn get_status(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authenticate(call)?;
    let (id, operation) = poll_requested_operation(call)?;
    let status = operation.ended.map_or("InProgress", |_| operation.rule.outcome.status());
    let mut body = json!({
        "id": call.request.path,
        "name": id,
        "status": status,
        "startTime": operation.started.to_string(),
    });
    if let Some(ended) = operation.ended {
        body["endTime"] = json!(ended.to_string());
    }
    if let (Some(_), OperationOutcome::Failed { code, message }) =
        (operation.ended, &operation.rule.outcome)
    {
        body["error"] = json!({ "code": code, "message": message });
    }
    Ok(add_retry_after(&operation, json_reply(call, StatusCode::OK, &body)))
}

/// `GET …/operationResults/{id}`: 202 until the operation completes; counts as a poll.
fn get_result(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authenticate(call)?;
    let (_, operation) = poll_requested_operation(call)?;
    if operation.ended.is_none() {
        let url = format!(
            "{}{}?api-version={}",
            call.request.origin(),
            call.request.path,
            call.api_version().unwrap_or_default()
        );
        let reply = empty_reply(call, StatusCode::ACCEPTED).with_header("location", url);
        return Ok(add_retry_after(&operation, reply));
    }
    if let OperationOutcome::Failed { code, message } = &operation.rule.outcome {
        let body = json!({ "error": { "code": code, "message": message } });
        return Ok(
            json_reply(call, StatusCode::CONFLICT, &body).with_rejection_reason("operation failed")
        );
    }
    match operation.change {
        PendingChange::Write => {
            let wire = render_resource(call, &operation.resource);
            Ok(json_reply(call, StatusCode::OK, &wire))
        }
        PendingChange::Delete => Ok(empty_reply(call, StatusCode::NO_CONTENT)),
    }
}

fn poll_requested_operation(
    call: &mut OperationContext<'_>,
) -> Result<(Uuid, StoredOperation), ServiceReply> {
    let name = call.path_parameter("operation");
    let missing = || {
        let message = format!("The operation '{name}' was not found.");
        ArmServiceError::Other(StatusCode::NOT_FOUND, "OperationNotFound", message).to_reply()
    };
    let id: Uuid = name.parse().or(Err(())).map_err(|()| missing())?;
    let now = call.now;
    let retained = |operation: &StoredOperation| {
        let limit = operation.rule.expires_after_polls;
        limit.is_none_or(|limit| operation.polls < limit)
            && operation.ended.is_none_or(|ended| now.duration_since(ended) < RETENTION)
    };
    let known = call.azure().resources.operations.get(&id).is_some_and(retained);
    if !known {
        return Err(missing());
    }
    poll(call, id);
    call.azure().resources.operations.get(&id).cloned().map(|it| (id, it)).ok_or_else(missing)
}

/// Counts a read of a resource as a poll of its pending operation, if the client polls the resource
/// itself. Returns the value of `retry-after-ms` while the operation is pending, if the settings
/// have one.
pub(super) fn poll_resource(
    call: &mut OperationContext<'_>,
    resource: &AccessScope,
) -> Option<u64> {
    let pending = call.azure().resources.operations.iter().find_map(|(id, operation)| {
        (operation.ended.is_none()
            && operation.rule.style == PollingStyle::Body
            && operation.resource == *resource)
            .then_some(*id)
    });
    let id = pending?;
    poll(call, id);
    let operation = call.azure().resources.operations.get(&id)?;
    operation.rule.retry_after_milliseconds.filter(|_| operation.ended.is_none())
}

/// Whether a read must return 404 although the write succeeded (`missing_reads` of the settings).
/// Counts the read.
pub(super) fn is_missing_after_write(
    call: &mut OperationContext<'_>,
    resource: &AccessScope,
) -> bool {
    let operations = &call.azure().resources.operations;
    let missing = operations.iter().find_map(|(id, operation)| {
        (operation.ended.is_some()
            && operation.missing_reads_left > 0
            && operation.change == PendingChange::Write
            && operation.rule.outcome == OperationOutcome::Succeeded
            && operation.resource == *resource)
            .then_some(*id)
    });
    let operation = missing.and_then(|id| call.azure_mut().resources.operations.get_mut(&id));
    let Some(operation) = operation else { return false };
    operation.missing_reads_left -= 1;
    true
}

/// Counts a poll of the operation, and completes the operation if this was the last poll.
fn poll(call: &mut OperationContext<'_>, id: Uuid) {
    let now = call.now;
    let Some(operation) = call.azure_mut().resources.operations.get_mut(&id) else { return };
    operation.polls = operation.polls.saturating_add(1);
    if operation.ended.is_some() || operation.is_held {
        return;
    }
    operation.polls_left = operation.polls_left.saturating_sub(1);
    let elapsed = now.duration_since(operation.started);
    if operation.polls_left > 0
        || elapsed < SignedDuration::from_secs(operation.rule.seconds.into())
    {
        return;
    }
    operation.ended = Some(now);
    let (resource, change) = (operation.resource.clone(), operation.change);
    let outcome = operation.rule.outcome.clone();
    if (change, &outcome) == (PendingChange::Delete, &OperationOutcome::Succeeded) {
        remove_resource(call, &resource);
    } else {
        let resources = &mut call.azure_mut().resources;
        resources.set_provisioning_state(&resource, outcome.status(), now);
    }
}

#[cfg(test)]
mod tests;
