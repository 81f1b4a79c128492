//! What went wrong with a provider, in words for people.

use std::error::Error;
use std::time::Duration;

use lanyard_keyvault::{PodCredentials, RetryClass};
use lanyard_vocabulary::OutcomeCode;
use tonic::{Code, Status};

use super::SocketProviderSettings;
use super::message::ProviderResponseProblem;
use super::trusted_socket::SocketConnectError;
use crate::provider::ProviderError;
use crate::provider::name::{ParseProviderNameError, ProviderName};
use crate::provider::tokens::redact;

/// A provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderCallError {
    /// No directory has its socket.
    #[error("no directory has its socket")]
    NotFound,
    /// There is no connection to it.
    #[error(transparent)]
    Connect(#[from] SocketConnectError),
    /// It answered with an error, or the connection broke.
    #[error("it answered {}", status.code())]
    Status {
        /// Its status.
        status: Status,
        /// How often it was asked.
        attempts: u32,
    },
    /// It took too long.
    #[error("it took longer than {} s", after.as_secs())]
    DeadlineExceeded {
        /// How long it had.
        after: Duration,
    },
}

impl ProviderCallError {
    /// Whether the answer may have been larger than was allowed: so says the client itself.
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
    proofs: &PodCredentials,
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
            format!("provider `{name}` gave no answer within {} s", after.as_secs()),
        ),
        ProviderCallError::Status { status, attempts } => {
            status_error(name, status, *attempts, proofs)
        }
    }
}

fn connect_error(name: &ProviderName, error: &SocketConnectError) -> ProviderError {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("provider `{name}` was not asked: {error}{cause}");
    match error {
        SocketConnectError::NotListening { .. } | SocketConnectError::Inspect { .. } => {
            ProviderError::new(OutcomeCode::ProviderUnavailable, message)
        }
        SocketConnectError::Untrusted { .. } => {
            let mut refusal = ProviderError::new(OutcomeCode::ProviderNotFound, message).with_hint(
                "see who put it there: pods' tokens go to whoever listens. A provider's socket, the \
                 directories above it and its process belong to root, and nobody else may write there",
            );
            refusal.retry = RetryClass::Denied;
            refusal
        }
    }
}

fn status_error(
    name: &ProviderName,
    status: &Status,
    attempts: u32,
    proofs: &PodCredentials,
) -> ProviderError {
    let said = redact(status.message(), proofs);
    let code = status.code();
    if is_too_large(status) {
        return ProviderError::new(
            OutcomeCode::ProviderAnswerInvalid,
            format!("the answer of provider `{name}` is too large: {said}"),
        )
        .with_hint("raise `--max-call-recv-msg-size`, or split the class: Secrets end at 1 MiB");
    }
    let times = if attempts > 1 { format!(" {attempts} times") } else { String::new() };
    let message = format!("provider `{name}` answered{times} {code:?}: {said}");
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            ProviderError::new(OutcomeCode::ProviderUnavailable, message)
        }
        Code::Unimplemented => ProviderError::new(OutcomeCode::ProviderError, message)
            .with_hint("install a provider that speaks `v1alpha1.CSIDriverProvider`"),
        _ => {
            let mut refusal = ProviderError::new(OutcomeCode::ProviderError, message);
            refusal.retry = retry_class(code);
            refusal
        }
    }
}

/// Most providers call everything `Unknown`, which says nothing.
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

/// Whether our own limit was met: the codec says `OutOfRange`, gRPC for Go `ResourceExhausted`.
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

/// How many problems a message tells; an answer may hold ten thousand.
const MAX_SHOWN_PROBLEMS: usize = 10;
