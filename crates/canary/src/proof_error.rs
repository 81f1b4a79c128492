//! What is wrong at a hop, in the words that leave the process.

use std::time::Duration;

use azure_core::error::Error as AzureError;
use lanyard_azure::AzureCallError;
use lanyard_credential::{LoadError, RetryClass, TokenError};
use lanyard_vocabulary::format_error_chain;

use crate::credential_location::CredentialLocationError;
use crate::delays::throttled_delay;

/// What is wrong, with its next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProofError {
    /// A stable word: Entra's or a service's code, or ours; of a probe, the reason of a condition.
    pub(crate) code: String,
    /// The code behind a reason.
    underlying_code: Option<String>,
    /// What was tried and what came back.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: String,
    /// What it says about the identity.
    pub(crate) kind: ProofErrorKind,
    /// Whether whoever answered throttles.
    is_throttled: bool,
    /// How long it wants to be left alone, where it says so.
    retry_after: Option<Duration>,
}

/// What trouble says about the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofErrorKind {
    /// Somebody who knows said no: it stays so until something changes.
    Definitive,
    /// Trouble on the way, which may pass by itself.
    Transient,
    /// Whoever is asked wants to be left alone: it says nothing, however long it lasts.
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

    /// Trouble with learning where the file is.
    pub(crate) fn of_location(error: &CredentialLocationError) -> Self {
        Self::new(ProofErrorKind::Definitive, error.code(), format_error_chain(error), error.hint())
    }

    /// Trouble with the file. One that cannot be read may be back in a moment, so it is final only
    /// where there is no older version to go on with.
    pub(crate) fn of_file(error: &LoadError, holds_older: bool) -> Self {
        let (code, nature) = match error {
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
        Self::new(nature, code, format_error_chain(error), error.hint())
    }

    /// Trouble with getting a token.
    pub(crate) fn of_token(error: &TokenError) -> Self {
        let hint = error.hint().unwrap_or_else(|| SEE_THE_LOG.to_owned());
        let class = error.retry_class();
        let nature = match class {
            RetryClass::Throttled { .. } | RetryClass::Transient => ProofErrorKind::Transient,
            _ => ProofErrorKind::Definitive,
        };
        let trouble = Self::new(nature, &error.code(), format_error_chain(error), hint);
        match class {
            RetryClass::Throttled { after } => trouble.with_throttling(after),
            _ => trouble,
        }
    }

    /// The same of what a credential gives the Azure SDK.
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

    /// Trouble with a call to a service.
    pub(crate) fn of_call(error: &AzureCallError) -> Self {
        let status = error.status();
        let (nature, code) = match error {
            AzureCallError::Token { source, .. } => return Self::of_token_request(source),
            AzureCallError::Throttled { .. } => (ProofErrorKind::Throttled, THROTTLED_CODE),
            AzureCallError::Unreachable { .. } => (ProofErrorKind::Transient, "ServiceUnreachable"),
            AzureCallError::Malformed { .. } => (ProofErrorKind::Transient, "AnswerUnreadable"),
            AzureCallError::InvalidTarget { .. } => (ProofErrorKind::Definitive, "InvalidTarget"),
            _ => {
                let passes = status.is_some_and(|status| matches!(status, 408 | 409 | 500..));
                let nature =
                    if passes { ProofErrorKind::Transient } else { ProofErrorKind::Definitive };
                (nature, error.code().unwrap_or_default())
            }
        };
        let code = match status {
            Some(status) if !is_valid_code(code) => format!("HTTP{status}"),
            _ => code.to_owned(),
        };
        let trouble = Self::new(nature, &code, format_error_chain(error), error.hint());
        match error {
            AzureCallError::Throttled { pause, .. } => trouble.with_throttling(*pause),
            _ => trouble,
        }
    }

    /// Whoever answered throttles, and wants to be left alone for so long.
    fn with_throttling(self, asked: Option<Duration>) -> Self {
        Self { is_throttled: true, retry_after: asked, ..self }
    }

    /// Whether whoever answered throttles, whatever that says about the identity.
    pub(crate) const fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Whether it wants to be left alone for so long at least.
    pub(crate) fn asks_for_at_least(&self, pause: Duration) -> bool {
        self.retry_after.is_some_and(|asked| asked >= pause)
    }

    /// The same where throttling takes nothing back: while a token is held, for who may not ask for
    /// the next one is none the worse for it before this one ends; and of what is more than a token.
    pub(crate) fn as_inconclusive_if_throttled(self) -> Self {
        if self.is_throttled { Self { kind: ProofErrorKind::Throttled, ..self } } else { self }
    }

    /// The same where no token is held: then throttling is trouble on the way, as any other.
    pub(crate) fn as_transient_if_throttled(self) -> Self {
        if self.is_throttled { Self { kind: ProofErrorKind::Transient, ..self } } else { self }
    }

    /// For how long nobody is asked because of this, the so-many-th time in a row.
    pub(crate) fn throttle_delay(&self, times: u32) -> Option<Duration> {
        self.is_throttled.then(|| throttled_delay(self.retry_after, times))
    }

    /// The same under the reason of a condition.
    pub(crate) fn with_reason(self, reason: &'static str) -> Self {
        Self { code: reason.to_owned(), underlying_code: Some(self.code), ..self }
    }

    /// Whether both tell the same, but for words that differ from try to try: ids of requests, times.
    pub(crate) fn has_same_cause(&self, other: &Self) -> bool {
        (&self.code, &self.underlying_code, self.kind)
            == (&other.code, &other.underlying_code, other.kind)
    }

    /// Nobody answered in time.
    pub(crate) fn timed_out(asked: &str, limit: Duration) -> Self {
        let message = format!("{asked} did not answer within {} s", limit.as_secs());
        let hint = "check the way to Azure: HTTPS_PROXY, DNS and the trusted roots";
        Self::new(ProofErrorKind::Transient, "TimedOut", message, hint)
    }
}

/// The code of a service that asked to be left alone.
pub(crate) const THROTTLED_CODE: &str = "TooManyRequests";

const SEE_THE_LOG: &str = "see the log with --log lanyard_credential=debug";

/// A code goes into conditions and events, so nothing of somebody else's text passes for one.
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
/// All annotations of a pod together may have 256 KiB.
const MAX_TEXT_LENGTH: usize = 1_500;

#[cfg(test)]
mod tests;
