//! Errors of calls to external providers.

use std::error::Error;
use std::time::Duration;

use lanyard_clock::RetryClass;
use lanyard_keyvault::PodCredentials;
use lanyard_provider::ProviderError;
use lanyard_vocabulary::OutcomeCode;
use tonic::{Code, Status};

use super::SocketProviderSettings;
use super::message::ProviderResponseProblem;
use super::trusted_socket::SocketConnectError;
use crate::provider::name::{ParseProviderNameError, ProviderName};
use crate::provider::tokens::redact;

/// A provider did not answer a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderCallError {
    /// No directory contains the provider's socket.
    #[error("no directory has its socket")]
    NotFound,
    /// The connection to the provider failed.
    #[error(transparent)]
    Connect(#[from] SocketConnectError),
    /// The provider returned an error, or the connection broke.
    #[error("it answered {}", status.code())]
    Status {
        /// The status of the call.
        status: Status,
        /// The number of attempts.
        attempts: u32,
    },
    /// The provider did not answer within the deadline.
    #[error("it took longer than {} s", after.as_secs())]
    DeadlineExceeded {
        /// The deadline.
        after: Duration,
    },
}

impl ProviderCallError {
    /// Returns whether the response may have exceeded the limit; the client itself reports this.
    pub(super) fn is_too_large(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code() == Code::OutOfRange)
    }
}

pub(super) fn invalid_name_error(error: &ParseProviderNameError) -> ProviderError {
    ProviderError::new(
        OutcomeCode::InvalidProvider,
        format!("`spec.provider` of the class: {error}"),
    )
}

pub(super) fn call_error(
    name: &ProviderName,
    settings: &SocketProviderSettings,
    error: &ProviderCallError,
    pod_credentials: &PodCredentials,
) -> ProviderError {
    match error {
        ProviderCallError::NotFound => {
            let places: Vec<_> =
                settings.directories.iter().map(|it| it.display().to_string()).collect();
            ProviderError::new(
                OutcomeCode::ProviderNotFound,
                format!("there is no `{name}.sock` in {}", places.join(" and ")),
            )
        }
        ProviderCallError::Connect(error) => connect_error(name, error),
        ProviderCallError::DeadlineExceeded { after } => ProviderError::new(
            OutcomeCode::ProviderUnavailable,
            format!("provider `{name}` did not answer within {} s", after.as_secs()),
        ),
        ProviderCallError::Status { status, attempts } => {
            status_error(name, status, *attempts, pod_credentials)
        }
    }
}

fn connect_error(name: &ProviderName, error: &SocketConnectError) -> ProviderError {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("provider `{name}` was not called: {error}{cause}");
    match error {
        SocketConnectError::NotListening { .. } | SocketConnectError::Inspect { .. } => {
            ProviderError::new(OutcomeCode::ProviderUnavailable, message)
        }
        SocketConnectError::Untrusted { .. } => {
            let mut mapped = ProviderError::new(OutcomeCode::ProviderNotFound, message).with_hint(
                "check which user created it: the listening process receives the tokens of pods. A provider's socket, the \
                 directories above it and its process must belong to root, and no other user may have write access",
            );
            mapped.retry = RetryClass::Denied;
            mapped
        }
    }
}

fn status_error(
    name: &ProviderName,
    status: &Status,
    attempts: u32,
    pod_credentials: &PodCredentials,
) -> ProviderError {
    let provider_message = redact(status.message(), pod_credentials);
    let code = status.code();
    if is_too_large(status) {
        return ProviderError::new(
            OutcomeCode::ProviderAnswerInvalid,
            format!("the answer of provider `{name}` is too large: {provider_message}"),
        )
        .with_hint(
            "raise `--max-call-recv-msg-size`, or split the class: a Secret holds at most 1 MiB",
        );
    }
    let times = if attempts > 1 { format!(" {attempts} times") } else { String::new() };
    let message = format!("provider `{name}` answered{times} {code:?}: {provider_message}");
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            ProviderError::new(OutcomeCode::ProviderUnavailable, message)
        }
        Code::Unimplemented => ProviderError::new(OutcomeCode::ProviderError, message)
            .with_hint("install a provider that speaks `v1alpha1.CSIDriverProvider`"),
        _ => {
            let mut mapped = ProviderError::new(OutcomeCode::ProviderError, message);
            mapped.retry = retry_class(code);
            mapped
        }
    }
}

/// Most providers return `Unknown` for every error, which carries no information.
const fn retry_class(code: Code) -> RetryClass {
    match code {
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::OutOfRange => {
            RetryClass::Invalid
        }
        Code::PermissionDenied | Code::Unauthenticated => RetryClass::Denied,
        Code::ResourceExhausted => RetryClass::Throttled { after: None },
        _ => RetryClass::Transient,
    }
}

/// Returns whether the response exceeded the limit of the client: the codec returns `OutOfRange`, gRPC for Go
/// `ResourceExhausted`.
fn is_too_large(status: &Status) -> bool {
    matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
        && (status.message().contains("message length too large")
            || status.message().contains("larger than max"))
}

pub(super) fn invalid_response_error(
    name: &ProviderName,
    problems: &[ProviderResponseProblem],
) -> ProviderError {
    if let [ProviderResponseProblem::ReportedError { .. }] = problems {
        let message = format!("provider `{name}` failed: {}", problems[0]);
        return ProviderError::new(OutcomeCode::ProviderError, message);
    }
    let shown: Vec<_> = problems.iter().take(MAX_SHOWN_PROBLEMS).map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(MAX_SHOWN_PROBLEMS);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    ProviderError::new(
        OutcomeCode::ProviderAnswerInvalid,
        format!("the answer of provider `{name}` cannot be mounted: {}{rest}", shown.join("; ")),
    )
}

/// The number of problems in a message; a response may have ten thousand.
const MAX_SHOWN_PROBLEMS: usize = 10;
