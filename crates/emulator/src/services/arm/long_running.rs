//! Long-running operations: writes and deletions that complete while the client polls.
//!
//! By default, every operation completes before its reply. Settings delay the operations of a provider or a
//! type by a number of polls, by a time, or by both. Reference: "Track asynchronous Azure operations".

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::{authenticate, empty_reply, json_reply};
use super::error::ArmServiceError;
use super::resource_type::ResourceType;
use super::resource_writes::{remove_resource, set_provisioning_state};
use crate::authorization::AccessScope;
use crate::operation_context::OperationContext;
use crate::operations::{OperationSupport, ServiceOperation};
use crate::request::ServiceReply;

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

/// The delays of operations. The first rule that matches a type applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LongRunningSettings {
    rules: Vec<LongRunningRule>,
}

/// The delay of the operations of a resource type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LongRunningRule {
    /// A type, a namespace, or `*`.
    resource_type: String,
    /// The number of polls before an operation completes.
    #[serde(default)]
    polls: u32,
    /// The seconds of emulated time before an operation completes. A poll completes it.
    #[serde(default)]
    seconds: u32,
    #[serde(default)]
    style: PollingStyle,
    /// `retry-after-ms` of the replies; null for none. Without it, the clients of Go and Python wait for 30
    /// seconds.
    #[serde(default = "default_retry_after")]
    retry_after_milliseconds: Option<u64>,
    #[serde(default)]
    outcome: OperationOutcome,
    /// The number of reads of a written resource that return 404 after its operation succeeded.
    #[serde(default)]
    missing_reads: u32,
    /// The number of polls after which the URLs of the operation return 404, as after the end of their
    /// retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_after_polls: Option<u32>,
}

/// An option, because the setting may be null.
#[expect(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
const fn default_retry_after() -> Option<u64> {
    Some(50)
}

/// How the client learns of the completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PollingStyle {
    /// The header `Azure-AsyncOperation`, a URL with the status of the operation.
    #[default]
    AsyncOperation,
    /// The header `Location`, a URL that returns 202 until the operation completes.
    Location,
    /// `properties.provisioningState` of the resource; for deletions like `Location`.
    Body,
}

/// The result of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", tag = "status")]
pub(crate) enum OperationOutcome {
    #[default]
    Succeeded,
    Failed {
        code: String,
        message: String,
    },
    Canceled,
}

impl OperationOutcome {
    const fn status(&self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed { .. } => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

impl LongRunningRule {
    /// Whether the operation is like one that completes before its reply.
    fn is_immediate(&self) -> bool {
        self.polls == 0
            && self.seconds == 0
            && self.missing_reads == 0
            && self.outcome == OperationOutcome::Succeeded
    }
}

impl LongRunningSettings {
    fn rule_for(&self, kind: &str) -> Option<&LongRunningRule> {
        self.rules.iter().find(|rule| {
            let pattern = rule.resource_type.as_str();
            let namespace = kind.split_once('/').map_or(kind, |(namespace, _)| namespace);
            pattern == "*"
                || pattern.eq_ignore_ascii_case(kind)
                || pattern.eq_ignore_ascii_case(namespace)
        })
    }
}

/// The change that completes with the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PendingChange {
    Write,
    Delete,
}

/// A stored operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredOperation {
    resource: AccessScope,
    namespace: String,
    region: String,
    change: PendingChange,
    rule: LongRunningRule,
    polls_left: u32,
    /// The number of polls so far.
    #[serde(default)]
    polls: u32,
    /// The number of reads of the resource that still return 404.
    #[serde(default)]
    missing_reads_left: u32,
    started: Timestamp,
    ended: Option<Timestamp>,
}

/// An operation that was started by the current request.
#[derive(Debug)]
pub(super) struct PendingOperation {
    id: Uuid,
    operation: StoredOperation,
}

impl PendingOperation {
    /// Starts an operation if the settings delay those of the type.
    pub(super) fn start(
        call: &mut OperationContext<'_>,
        kind: &ResourceType,
        resource: &AccessScope,
        change: PendingChange,
    ) -> Option<Self> {
        let resources = &call.azure().resources;
        let rule = resources.settings.long_running.rule_for(kind.name)?.clone();
        if rule.is_immediate() {
            return None;
        }
        let location = resources.resource(resource).and_then(|known| known.body.get("location"));
        let operation = StoredOperation {
            resource: resource.clone(),
            namespace: kind.namespace().to_owned(),
            region: location.and_then(Value::as_str).unwrap_or("eastus").to_owned(),
            change,
            polls_left: rule.polls,
            polls: 0,
            missing_reads_left: rule.missing_reads,
            rule,
            started: call.now,
            ended: None,
        };
        let id = call.ids.next_uuid();
        call.azure_mut().resources.operations.insert(id, operation.clone());
        Some(Self { id, operation })
    }

    /// Adds the headers for polling to the reply to a write.
    pub(super) fn add_headers(
        &self,
        call: &OperationContext<'_>,
        reply: ServiceReply,
    ) -> ServiceReply {
        let reply = self.operation.add_retry_after(reply);
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

    /// The reply to a deletion.
    pub(super) fn accepted_reply(&self, call: &OperationContext<'_>) -> ServiceReply {
        let reply = self.operation.add_retry_after(empty_reply(call, StatusCode::ACCEPTED));
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

impl StoredOperation {
    fn add_retry_after(&self, reply: ServiceReply) -> ServiceReply {
        match self.rule.retry_after_milliseconds {
            Some(milliseconds) => reply.with_header("retry-after-ms", milliseconds.to_string()),
            None => reply,
        }
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
    Ok(operation.add_retry_after(json_reply(call, StatusCode::OK, &body)))
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
        return Ok(operation.add_retry_after(reply));
    }
    if let OperationOutcome::Failed { code, message } = &operation.rule.outcome {
        let body = json!({ "error": { "code": code, "message": message } });
        return Ok(
            json_reply(call, StatusCode::CONFLICT, &body).with_rejection_reason("operation failed")
        );
    }
    match operation.change {
        PendingChange::Write => {
            let wire = super::resource_reads::render_resource(call, &operation.resource);
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

/// Counts a poll of the pending operation of a resource, if there is one: reading the resource is a poll.
/// Returns the time in milliseconds until the next poll if the operation is still pending.
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

/// Whether a read of a resource returns 404 although its write has succeeded. Counts the read.
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

/// Counts a poll, and completes the operation with the last one.
fn poll(call: &mut OperationContext<'_>, id: Uuid) {
    let now = call.now;
    let Some(operation) = call.azure_mut().resources.operations.get_mut(&id) else { return };
    operation.polls = operation.polls.saturating_add(1);
    if operation.ended.is_some() {
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
    match (change, &outcome) {
        (PendingChange::Delete, OperationOutcome::Succeeded) => remove_resource(call, &resource),
        _ => set_provisioning_state(call, &resource, outcome.status()),
    }
}

#[cfg(test)]
mod tests;
