//! Long-running operations of Azure Resource Manager as a state machine. Does no I/O.
//!
//! A write starts an operation. Its state is at the URL in `Azure-AsyncOperation`, otherwise at the one in
//! `Location`, otherwise in `properties.provisioningState` of the resource. Reference: "Track asynchronous Azure
//! operations". An operation can be stored, and another process can continue to poll it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use azure_core::http::Method;
use lanyard_clock::{ErrorHint, ErrorReply, RetryClass};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm_request::ArmRequest;
use crate::authenticated_client::{AzureCallError, AzureResponse, NO_CODE};
use crate::error_codes::ARM;
use crate::error_details::AzureErrorDetails;

/// The state of an operation after its write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationStart {
    /// The operation is complete; the reply to the write is its result.
    Completed(AzureResponse),
    /// The operation continues.
    Pending(PendingOperation),
}

/// An operation that was in progress at its last poll. Its JSON may contain signed URLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PendingOperation {
    method: OperationMethod,
    /// The path of the write: the id of the resource, or that of an action.
    path: String,
    api_version: String,
    /// The method and the path, for messages.
    target: String,
    source: PollSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_milliseconds: Option<u64>,
}

/// The methods that start operations, as far as their results differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum OperationMethod {
    /// PUT and PATCH: the result is the resource.
    Write,
    Delete,
    Post,
}

/// The source of the state of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum PollSource {
    /// The URL of `Azure-AsyncOperation`. `result` is the URL of the result of an action.
    AsyncOperation { url: PollingUrl, result: Option<PollingUrl> },
    /// The URL of `Location`.
    Location { url: PollingUrl },
    /// The resource itself.
    Resource,
}

/// A URL with a query that may contain a signature.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct PollingUrl(String);

impl fmt::Debug for PollingUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.split('?').next().unwrap_or_default())
    }
}

/// The result of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationPoll {
    /// The operation continues.
    InProgress {
        /// The time until the next poll, if Azure named one.
        retry_after: Option<Duration>,
        /// The operation to poll next; it may have another URL.
        operation: PendingOperation,
    },
    /// The operation is complete. The body is the resource of a PUT or PATCH.
    Succeeded(AzureResponse),
}

/// How long and how often an operation is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollPolicy {
    /// The pause between two polls if Azure names none.
    pub interval: Duration,
    /// The time after which the wait ends with [`OperationError::TimedOut`].
    pub timeout: Duration,
}

/// An operation failed, or its state is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The operation ended without success.
    #[error("{target}: the operation ended as {state}: {code}: {message}")]
    Failed {
        /// The method and the path of the write.
        target: String,
        /// The final state: `Failed` or `Canceled`.
        state: String,
        /// The error code of the service.
        code: String,
        /// The error message of the service.
        message: String,
    },
    /// The operation was still in progress at the end of the wait.
    #[error("{target}: the operation is still in progress after {}s", waited.as_secs())]
    TimedOut {
        /// The method and the path of the write.
        target: String,
        /// The duration of the wait.
        waited: Duration,
        /// The operation, which can be polled further.
        operation: Box<PendingOperation>,
    },
    /// A request failed.
    #[error(transparent)]
    Call(#[from] AzureCallError),
}

impl OperationError {
    pub(crate) fn timed_out(operation: PendingOperation, waited: Duration) -> Self {
        let (target, operation) = (operation.target.clone(), Box::new(operation));
        Self::TimedOut { target, waited, operation }
    }

    /// The error code, if Azure replied with an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Failed { code, .. } => Some(code),
            Self::TimedOut { .. } => None,
            Self::Call(error) => error.code(),
        }
    }

    /// Whether repeating the request can succeed.
    pub fn class(&self) -> RetryClass {
        match self {
            Self::Failed { code, message, .. } => ARM.retry_class(failed_reply(code, message)),
            Self::TimedOut { .. } => RetryClass::Busy,
            Self::Call(error) => error.class(),
        }
    }
}

impl ErrorHint for OperationError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Failed { code, message, .. } => Some(ARM.hint(failed_reply(code, message))),
            Self::TimedOut { .. } => Some("repeat the command: it continues the operation".into()),
            Self::Call(error) => error.hint(),
        }
    }
}

/// The error of an operation that failed after its request was accepted.
fn failed_reply<'a>(code: &'a str, message: &'a str) -> ErrorReply<'a> {
    ErrorReply { status: None, code: Some(code).filter(|code| *code != NO_CODE), message }
}

/// What follows a reply to a poll.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PollAdvance {
    /// Another request without a pause.
    PollNow(PendingOperation),
    Report(OperationPoll),
}

/// The state in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProvisioningState<'a> {
    Absent,
    InProgress,
    Succeeded,
    /// `Failed` or `Canceled`.
    Ended(&'a str),
}

impl<'a> ProvisioningState<'a> {
    fn parse(state: Option<&'a Value>) -> Self {
        let Some(state) = state.and_then(Value::as_str).filter(|it| !it.is_empty()) else {
            return Self::Absent;
        };
        let is = |known: &[&str]| known.iter().any(|it| it.eq_ignore_ascii_case(state));
        if is(&["Succeeded"]) {
            Self::Succeeded
        } else if is(&["Failed", "Canceled", "Cancelled"]) {
            Self::Ended(state)
        } else {
            Self::InProgress
        }
    }

    /// `properties.provisioningState` of a resource.
    fn of_resource(body: &'a Value) -> Self {
        Self::parse(body.pointer("/properties/provisioningState"))
    }
}

impl OperationStart {
    /// The state of an operation, from its request and the reply.
    ///
    /// # Errors
    ///
    /// [`OperationError::Failed`] if the reply shows that the operation has failed already.
    pub fn from_response(
        request: &ArmRequest,
        response: AzureResponse,
    ) -> Result<Self, OperationError> {
        let method = match request.method {
            Method::Put | Method::Patch => OperationMethod::Write,
            Method::Delete => OperationMethod::Delete,
            Method::Post => OperationMethod::Post,
            _ => return Ok(Self::Completed(response)),
        };
        let Some(source) = poll_source(method, &response) else {
            let target = request.target();
            return match ProvisioningState::of_resource(&response.body) {
                ProvisioningState::Ended(state) if method == OperationMethod::Write => {
                    Err(failed(target, state, &response.body))
                }
                _ => Ok(Self::Completed(response)),
            };
        };
        let operation = PendingOperation {
            method,
            path: request.path.clone(),
            api_version: request.api_version.clone().into_owned(),
            target: request.target(),
            source,
            retry_after_milliseconds: None,
        };
        Ok(Self::Pending(operation.with_retry_after(&response)))
    }
}

/// The source of the state after the reply to a write; `None` if the operation is complete.
fn poll_source(method: OperationMethod, response: &AzureResponse) -> Option<PollSource> {
    if response.status == 204 {
        return None;
    }
    let location = response.headers.location.clone().map(PollingUrl);
    if let Some(url) = response.headers.azure_async_operation.clone() {
        let result = location.filter(|_| method == OperationMethod::Post);
        return Some(PollSource::AsyncOperation { url: PollingUrl(url), result });
    }
    let is_accepted = response.status == 202;
    // The `Location` of a 201 may be the resource.
    if let Some(url) = location.filter(|_| is_accepted || response.status == 201) {
        return Some(PollSource::Location { url });
    }
    match (method, ProvisioningState::of_resource(&response.body)) {
        (OperationMethod::Write, ProvisioningState::InProgress) => Some(PollSource::Resource),
        (OperationMethod::Write, ProvisioningState::Absent) if is_accepted => {
            Some(PollSource::Resource)
        }
        (OperationMethod::Delete, _) if is_accepted => Some(PollSource::Resource),
        _ => None,
    }
}

impl PendingOperation {
    /// The method and the path of the write.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The time until the next poll, if Azure named one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_milliseconds.map(Duration::from_millis)
    }

    /// The URL to poll; `None` for the resource itself.
    pub(crate) fn polling_url(&self) -> Option<&str> {
        match &self.source {
            PollSource::AsyncOperation { url, .. } | PollSource::Location { url } => Some(&url.0),
            PollSource::Resource => None,
        }
    }

    /// The request for the resource.
    pub(crate) fn resource_request(&self) -> ArmRequest {
        ArmRequest::get(self.path.clone(), self.api_version.clone())
    }

    /// What follows from the reply to a poll.
    pub(crate) fn advance(
        self,
        reply: Result<AzureResponse, AzureCallError>,
    ) -> Result<PollAdvance, OperationError> {
        match reply {
            Ok(response) => match &self.source {
                PollSource::AsyncOperation { .. } => self.advance_with_status(response),
                PollSource::Location { .. } => self.advance_with_location(response),
                PollSource::Resource => self.advance_with_resource(response),
            },
            Err(AzureCallError::NotFound { target, code, message }) => {
                self.advance_without_target(AzureCallError::NotFound { target, code, message })
            }
            // An operation that failed answers its result URL with its error.
            Err(AzureCallError::UnexpectedStatus { status, code, message, .. })
                if matches!(self.source, PollSource::Location { .. })
                    && matches!(status, 400 | 409..=499) =>
            {
                let state = "Failed".to_owned();
                Err(OperationError::Failed { target: self.target, state, code, message })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A reply at the URL of `Azure-AsyncOperation`.
    fn advance_with_status(self, response: AzureResponse) -> Result<PollAdvance, OperationError> {
        let status = response.status;
        match ProvisioningState::parse(response.body.get("status")) {
            ProvisioningState::InProgress => Ok(self.in_progress(&response)),
            ProvisioningState::Absent if status == 202 => Ok(self.in_progress(&response)),
            ProvisioningState::Absent => {
                Err(AzureCallError::Malformed { target: self.target, status }.into())
            }
            ProvisioningState::Ended(state) => Err(failed(self.target, state, &response.body)),
            ProvisioningState::Succeeded => Ok(match (self.method, &self.source) {
                (OperationMethod::Write, _) => {
                    PollAdvance::PollNow(Self { source: PollSource::Resource, ..self })
                }
                (
                    OperationMethod::Post,
                    PollSource::AsyncOperation { result: Some(result), .. },
                ) => {
                    let source = PollSource::Location { url: result.clone() };
                    PollAdvance::PollNow(Self { source, ..self })
                }
                _ => PollAdvance::Report(OperationPoll::Succeeded(response)),
            }),
        }
    }

    /// A reply at the URL of `Location`: 202 until the operation is complete.
    fn advance_with_location(self, response: AzureResponse) -> Result<PollAdvance, OperationError> {
        if response.status == 202 {
            let source = match response.headers.location.clone() {
                Some(url) => PollSource::Location { url: PollingUrl(url) },
                None => self.source.clone(),
            };
            return Ok(Self { source, ..self }.in_progress(&response));
        }
        match (self.method, ProvisioningState::of_resource(&response.body)) {
            (_, ProvisioningState::Ended(state)) => Err(failed(self.target, state, &response.body)),
            (_, ProvisioningState::InProgress) => Ok(self.in_progress(&response)),
            // A result without a resource.
            (OperationMethod::Write, _) if response.body.get("id").is_none() => {
                Ok(PollAdvance::PollNow(Self { source: PollSource::Resource, ..self }))
            }
            _ => Ok(PollAdvance::Report(OperationPoll::Succeeded(response))),
        }
    }

    /// A reply with the resource.
    fn advance_with_resource(self, response: AzureResponse) -> Result<PollAdvance, OperationError> {
        match (self.method, ProvisioningState::of_resource(&response.body)) {
            (_, ProvisioningState::Ended(state)) => Err(failed(self.target, state, &response.body)),
            (OperationMethod::Delete, _) | (_, ProvisioningState::InProgress) => {
                Ok(self.in_progress(&response))
            }
            _ => Ok(PollAdvance::Report(OperationPoll::Succeeded(response))),
        }
    }

    /// A poll that returned 404.
    fn advance_without_target(self, error: AzureCallError) -> Result<PollAdvance, OperationError> {
        let empty = |status| AzureResponse {
            status,
            body: Value::Null,
            headers: crate::response_headers::ResponseHeaders::default(),
        };
        match (self.method, &self.source) {
            (OperationMethod::Delete, _) => {
                Ok(PollAdvance::Report(OperationPoll::Succeeded(empty(404))))
            }
            // Azure does not know the new resource everywhere yet.
            (OperationMethod::Write, PollSource::Resource) => Ok(self.in_progress(&empty(404))),
            // Azure deletes the state of old operations.
            (OperationMethod::Write, _) => {
                Ok(PollAdvance::PollNow(Self { source: PollSource::Resource, ..self }))
            }
            (OperationMethod::Post, _) => Err(error.into()),
        }
    }

    fn in_progress(self, response: &AzureResponse) -> PollAdvance {
        let operation = self.with_retry_after(response);
        let retry_after = operation.retry_after();
        PollAdvance::Report(OperationPoll::InProgress { retry_after, operation })
    }

    fn with_retry_after(self, response: &AzureResponse) -> Self {
        let pause = response.headers.retry_after;
        let retry_after_milliseconds = pause.and_then(|it| u64::try_from(it.as_millis()).ok());
        Self { retry_after_milliseconds, ..self }
    }
}

fn failed(target: String, state: &str, body: &Value) -> OperationError {
    let details = AzureErrorDetails::parse(body.to_string().as_bytes());
    let code = details.most_specific_code().unwrap_or(NO_CODE).to_owned();
    OperationError::Failed { target, state: state.to_owned(), code, message: details.message }
}

#[cfg(test)]
mod tests;
