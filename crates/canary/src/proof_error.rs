//! The errors of hops and probes, with the texts that the canary reports.

use std::time::Duration;

use azure_core::error::Error as AzureError;
use lanyard_azure::AzureCallError;
use lanyard_clock::{ErrorHint as _, RetryClass};
use lanyard_credential::{LoadError, TokenError};
use lanyard_vocabulary::format_error_chain;

use crate::credential_location::CredentialLocationError;
use crate::delays::throttled_delay;

/// An error of a hop or probe of the canary, with a hint, and whether it proves that the identity does not
/// work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProofError {
    /// A stable code: Entra's, a service's or the canary's own. For a probe, the reason of a
    /// condition.
    pub(crate) code: String,
    /// The original code, if `code` is the reason of a condition.
    underlying_code: Option<String>,
    /// The action that failed and the answer.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: String,
    /// Whether the error proves that the identity does not work.
    pub(crate) kind: ProofErrorKind,
    /// Whether the service or Entra throttled the request.
    is_throttled: bool,
    /// The pause that the response requested (`Retry-After`), if any.
    retry_after: Option<Duration>,
}

/// Whether an error proves that the identity does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofErrorKind {
    /// Azure or the file rejected the identity. The error lasts until something changes.
    Definitive,
    /// An error on the way to the service, which may resolve itself.
    Transient,
    /// The service throttles: the error proves nothing about the identity, however long it lasts.
    Throttled,
}

impl ProofError {
    pub(crate) fn new(
        kind: ProofErrorKind,
        code: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let (message, hint) = (truncate_text(message.into()), truncate_text(hint.into()));
        Self {
            code: sanitize_code(code),
            underlying_code: None,
            message,
            hint,
            kind,
            is_throttled: kind == ProofErrorKind::Throttled,
            retry_after: None,
        }
    }

    /// An error of locating the credential file.
    pub(crate) fn of_location(error: &CredentialLocationError) -> Self {
        Self::new(
            ProofErrorKind::Definitive,
            error.code(),
            format_error_chain(error),
            error.hint().unwrap_or_default(),
        )
    }

    /// An error of loading the credential file. A file that cannot be read may be readable in a
    /// moment, so the error is definitive only if no older version is in use.
    pub(crate) fn of_file(error: &LoadError, holds_older: bool) -> Self {
        let (code, kind) = match error {
            LoadError::Read { .. } if holds_older => {
                ("CredentialFileUnreadable", ProofErrorKind::Transient)
            }
            LoadError::Read { .. } | LoadError::NotAFile { .. } => {
                ("CredentialFileUnreadable", ProofErrorKind::Definitive)
            }
            LoadError::TooLarge { .. } | LoadError::Content { .. } => {
                ("CredentialInvalid", ProofErrorKind::Definitive)
            }
            _ => ("CredentialNotFollowed", ProofErrorKind::Definitive),
        };
        Self::new(kind, code, format_error_chain(error), error.hint().unwrap_or_default())
    }

    /// An error of a token request.
    pub(crate) fn of_token(error: &TokenError) -> Self {
        let hint = error.hint().unwrap_or(SEE_THE_LOG.into());
        let class = error.retry_class();
        let kind = if class.is_temporary() {
            ProofErrorKind::Transient
        } else {
            ProofErrorKind::Definitive
        };
        let proof_error = Self::new(kind, &error.code(), format_error_chain(error), hint);
        match class {
            RetryClass::Throttled { after } => proof_error.with_throttling(after),
            _ => proof_error,
        }
    }

    /// An error of a token request that the credential returned through the Azure SDK.
    pub(crate) fn of_token_request(error: &AzureError) -> Self {
        match TokenError::of(error) {
            Some(error) => Self::of_token(error),
            None => Self::new(
                ProofErrorKind::Transient,
                "TokenRefused",
                format_error_chain(error),
                SEE_THE_LOG,
            ),
        }
    }

    /// An error of a call to a service.
    pub(crate) fn of_call(error: &AzureCallError) -> Self {
        let status = error.status();
        let (kind, code) = match error {
            AzureCallError::Token { source, .. } => return Self::of_token_request(source),
            AzureCallError::Throttled { .. } => (ProofErrorKind::Throttled, THROTTLED_CODE),
            AzureCallError::Unreachable { .. } => (ProofErrorKind::Transient, "ServiceUnreachable"),
            AzureCallError::Malformed { .. } => (ProofErrorKind::Transient, "AnswerUnreadable"),
            AzureCallError::InvalidTarget { .. } => (ProofErrorKind::Definitive, "InvalidTarget"),
            _ => {
                let passes = status.is_some_and(|status| matches!(status, 408 | 409 | 500..));
                let kind =
                    if passes { ProofErrorKind::Transient } else { ProofErrorKind::Definitive };
                (kind, error.code().unwrap_or_default())
            }
        };
        let code = match status {
            Some(status) if !is_valid_code(code) => format!("HTTP{status}"),
            _ => code.to_owned(),
        };
        let proof_error =
            Self::new(kind, &code, format_error_chain(error), error.hint().unwrap_or_default());
        match error {
            AzureCallError::Throttled { pause, .. } => proof_error.with_throttling(*pause),
            _ => proof_error,
        }
    }

    /// Marks the error as throttling, with the pause that the response requested.
    fn with_throttling(self, retry_after: Option<Duration>) -> Self {
        Self { is_throttled: true, retry_after, ..self }
    }

    /// Whether the service or Entra throttled the request, whatever the kind of the error.
    pub(crate) const fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Whether the response requested a pause (`Retry-After`) of at least `pause`. Such throttling is reported
    /// at once, because it will outlast the threshold. False for throttling without a requested pause.
    pub(crate) fn requests_pause_of_at_least(&self, pause: Duration) -> bool {
        self.retry_after.is_some_and(|requested| requested >= pause)
    }

    /// Turns a throttling error into an inconclusive one ([`ProofErrorKind::Throttled`]): while a
    /// token is cached, a throttled token request changes nothing until that token expires. Probes
    /// use it for throttling by Entra, too.
    pub(crate) fn into_inconclusive_if_throttled(self) -> Self {
        if self.is_throttled { Self { kind: ProofErrorKind::Throttled, ..self } } else { self }
    }

    /// Turns a throttling error into a transient one: without a cached token, throttling counts as
    /// any other error on the way.
    pub(crate) fn into_transient_if_throttled(self) -> Self {
        if self.is_throttled { Self { kind: ProofErrorKind::Transient, ..self } } else { self }
    }

    /// The back-off if this is the `times`-th consecutive throttling error; `None` for other
    /// errors.
    pub(crate) fn throttle_delay(&self, times: u32) -> Option<Duration> {
        self.is_throttled.then(|| throttled_delay(self.retry_after, times))
    }

    /// Reports the error under the reason of a condition, and keeps its own code as the underlying
    /// code.
    pub(crate) fn with_reason(self, reason: &'static str) -> Self {
        Self { code: reason.to_owned(), underlying_code: Some(self.code), ..self }
    }

    /// Whether both errors have the same codes and kind. Messages may differ in request ids and
    /// times.
    pub(crate) fn has_same_cause(&self, other: &Self) -> bool {
        (&self.code, &self.underlying_code, self.kind)
            == (&other.code, &other.underlying_code, other.kind)
    }

    /// The error of a request that was not answered within `limit`.
    pub(crate) fn timed_out(target: &str, limit: Duration) -> Self {
        let message = format!("{target} did not answer within {} s", limit.as_secs());
        let hint = "check the connection to Azure: HTTPS_PROXY, DNS and the trusted roots";
        Self::new(ProofErrorKind::Transient, "TimedOut", message, hint)
    }
}

/// The code of a throttled request.
pub(crate) const THROTTLED_CODE: &str = "TooManyRequests";

const SEE_THE_LOG: &str = "see the log of a run with `--log lanyard_credential=debug`";

/// Replaces a malformed code with `Unknown`: codes go into conditions and events, so they must not
/// carry arbitrary text of a service.
fn sanitize_code(code: &str) -> String {
    if is_valid_code(code) { code.to_owned() } else { "Unknown".to_owned() }
}

fn is_valid_code(code: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_CODE_LENGTH).contains(&code.len()) && code.bytes().all(fits)
}

fn truncate_text(mut text: String) -> String {
    if text.len() > MAX_TEXT_LENGTH {
        text.truncate(text.floor_char_boundary(MAX_TEXT_LENGTH));
        text.push('…');
    }
    text
}

const MAX_CODE_LENGTH: usize = 64;
/// All annotations of a pod together may have at most 256 KiB.
const MAX_TEXT_LENGTH: usize = 1_500;

#[cfg(test)]
mod tests;
