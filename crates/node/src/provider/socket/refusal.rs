//! What went wrong with a provider, in words for people.

use std::error::Error;
use std::time::Duration;

use lanyard_keyvault::{Proofs, RetryClass};
use lanyard_vocabulary::OutcomeCode;
use tonic::{Code, Status};

use super::SocketSettings;
use super::message::AnswerProblem;
use super::place::PlaceError;
use crate::provider::Refusal;
use crate::provider::name::{ParseProviderNameError, ProviderName};
use crate::provider::tokens::redacted;

/// A provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// No directory has its socket.
    #[error("no directory has its socket")]
    NotFound,
    /// There is no connection to it.
    #[error(transparent)]
    Place(#[from] PlaceError),
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
    Deadline {
        /// How long it had.
        after: Duration,
    },
}

impl AskError {
    /// Whether the answer may have been larger than was allowed: so says the client itself.
    pub(super) fn is_too_large(&self) -> bool {
        matches!(self, Self::Status { status, .. } if status.code() == Code::OutOfRange)
    }
}

pub(super) fn of_name(error: &ParseProviderNameError) -> Refusal {
    Refusal::new(OutcomeCode::InvalidProvider, format!("`spec.provider` of the class: {error}"))
}

pub(super) fn of_call(
    name: &ProviderName,
    settings: &SocketSettings,
    error: &AskError,
    proofs: &Proofs,
) -> Refusal {
    match error {
        AskError::NotFound => {
            let places: Vec<_> =
                settings.directories.iter().map(|it| it.display().to_string()).collect();
            Refusal::new(
                OutcomeCode::ProviderNotFound,
                format!("there is no `{name}.sock` in {}", places.join(" and ")),
            )
        }
        AskError::Place(error) => of_place(name, error),
        AskError::Deadline { after } => Refusal::new(
            OutcomeCode::ProviderUnavailable,
            format!("provider `{name}` gave no answer within {} s", after.as_secs()),
        ),
        AskError::Status { status, attempts } => of_status(name, status, *attempts, proofs),
    }
}

fn of_place(name: &ProviderName, error: &PlaceError) -> Refusal {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("provider `{name}` was not asked: {error}{cause}");
    match error {
        PlaceError::NotListening { .. } | PlaceError::Look { .. } => {
            Refusal::new(OutcomeCode::ProviderUnavailable, message)
        }
        PlaceError::Untrusted { .. } => {
            let mut refusal = Refusal::new(OutcomeCode::ProviderNotFound, message).with_hint(
                "see who put it there: pods' tokens go to whoever listens. A provider's socket, the \
                 directories above it and its process belong to root, and nobody else may write there",
            );
            refusal.retry = RetryClass::Denied;
            refusal
        }
    }
}

fn of_status(name: &ProviderName, status: &Status, attempts: u32, proofs: &Proofs) -> Refusal {
    let said = redacted(status.message(), proofs);
    let code = status.code();
    if is_too_large(status) {
        return Refusal::new(
            OutcomeCode::ProviderAnswerInvalid,
            format!("the answer of provider `{name}` is too large: {said}"),
        )
        .with_hint("raise `--max-call-recv-msg-size`, or split the class: Secrets end at 1 MiB");
    }
    let times = if attempts > 1 { format!(" {attempts} times") } else { String::new() };
    let message = format!("provider `{name}` answered{times} {code:?}: {said}");
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            Refusal::new(OutcomeCode::ProviderUnavailable, message)
        }
        Code::Unimplemented => Refusal::new(OutcomeCode::ProviderError, message)
            .with_hint("install a provider that speaks `v1alpha1.CSIDriverProvider`"),
        _ => {
            let mut refusal = Refusal::new(OutcomeCode::ProviderError, message);
            refusal.retry = retry_of(code);
            refusal
        }
    }
}

/// Most providers call everything `Unknown`, which says nothing.
const fn retry_of(code: Code) -> RetryClass {
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

pub(super) fn of_answer(name: &ProviderName, problems: &[AnswerProblem]) -> Refusal {
    if let [AnswerProblem::Failed { .. }] = problems {
        let message = format!("provider `{name}` failed: {}", problems[0]);
        return Refusal::new(OutcomeCode::ProviderError, message);
    }
    let shown: Vec<_> = problems.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(MOST_SHOWN);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    Refusal::new(
        OutcomeCode::ProviderAnswerInvalid,
        format!("the answer of provider `{name}` cannot be mounted: {}{rest}", shown.join("; ")),
    )
}

/// How many problems a message tells; an answer may hold ten thousand.
const MOST_SHOWN: usize = 10;
