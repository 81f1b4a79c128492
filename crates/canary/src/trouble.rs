//! What is wrong at a hop, in the words that leave the process.

use std::time::Duration;

use azure_core::error::Error as AzureError;
use lanyard_azure::CallError;
use lanyard_credential::{LoadError, RetryClass, TokenError};
use lanyard_vocabulary::causes;

use crate::cadence::throttled;
use crate::place::PlaceError;

/// What is wrong, with its next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// A stable word: Entra's or a service's code, or ours; of a probe, the reason of a condition.
    pub(crate) code: String,
    /// The code behind a reason.
    cause: Option<String>,
    /// What was tried and what came back.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: String,
    /// What it says about the identity.
    pub(crate) nature: Nature,
    /// Whether whoever answered throttles.
    is_throttled: bool,
    /// How long it wants to be left alone, where it says so.
    asked: Option<Duration>,
}

/// What trouble says about the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Somebody who knows said no: it stays so until something changes.
    Final,
    /// Trouble on the way, which may pass by itself.
    Passing,
    /// Whoever is asked wants to be left alone: it says nothing, however long it lasts.
    Throttled,
}

impl Trouble {
    pub(crate) fn new(
        nature: Nature,
        code: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let (message, hint) = (shortened(message.into()), shortened(hint.into()));
        Self {
            code: word(code),
            cause: None,
            message,
            hint,
            nature,
            is_throttled: nature == Nature::Throttled,
            asked: None,
        }
    }

    /// Trouble with learning where the file is.
    pub(crate) fn of_place(error: &PlaceError) -> Self {
        Self::new(Nature::Final, error.code(), causes(error), error.hint())
    }

    /// Trouble with the file. One that cannot be read may be back in a moment, so it is final only
    /// where there is no older version to go on with.
    pub(crate) fn of_file(error: &LoadError, holds_older: bool) -> Self {
        let (code, nature) = match error {
            LoadError::Read { .. } if holds_older => ("CredentialFileUnreadable", Nature::Passing),
            LoadError::Read { .. } | LoadError::NotAFile { .. } => {
                ("CredentialFileUnreadable", Nature::Final)
            }
            LoadError::TooLarge { .. } | LoadError::Content { .. } => {
                ("CredentialInvalid", Nature::Final)
            }
            _ => ("CredentialNotFollowed", Nature::Final),
        };
        Self::new(nature, code, causes(error), error.hint())
    }

    /// Trouble with getting a token.
    pub(crate) fn of_token(error: &TokenError) -> Self {
        let hint = error.hint().unwrap_or_else(|| SEE_THE_LOG.to_owned());
        let class = error.retry_class();
        let nature = match class {
            RetryClass::Throttled { .. } | RetryClass::Transient => Nature::Passing,
            _ => Nature::Final,
        };
        let trouble = Self::new(nature, &error.code(), causes(error), hint);
        match class {
            RetryClass::Throttled { after } => trouble.throttled(after),
            _ => trouble,
        }
    }

    /// The same of what a credential gives the Azure SDK.
    pub(crate) fn of_token_request(error: &AzureError) -> Self {
        match TokenError::of(error) {
            Some(error) => Self::of_token(error),
            None => Self::new(Nature::Passing, "TokenRefused", causes(error), SEE_THE_LOG),
        }
    }

    /// Trouble with a call to a service.
    pub(crate) fn of_call(error: &CallError) -> Self {
        let status = error.status();
        let (nature, code) = match error {
            CallError::Token { source, .. } => return Self::of_token_request(source),
            CallError::Throttled { .. } => (Nature::Throttled, THROTTLED),
            CallError::Unreachable { .. } => (Nature::Passing, "ServiceUnreachable"),
            CallError::Malformed { .. } => (Nature::Passing, "AnswerUnreadable"),
            CallError::Target { .. } => (Nature::Final, "InvalidTarget"),
            _ => {
                let passes = status.is_some_and(|status| matches!(status, 408 | 409 | 500..));
                let nature = if passes { Nature::Passing } else { Nature::Final };
                (nature, error.code().unwrap_or_default())
            }
        };
        let code = match status {
            Some(status) if !is_word(code) => format!("HTTP{status}"),
            _ => code.to_owned(),
        };
        let trouble = Self::new(nature, &code, causes(error), error.hint());
        match error {
            CallError::Throttled { pause, .. } => trouble.throttled(*pause),
            _ => trouble,
        }
    }

    /// Whoever answered throttles, and wants to be left alone for so long.
    fn throttled(self, asked: Option<Duration>) -> Self {
        Self { is_throttled: true, asked, ..self }
    }

    /// Whether whoever answered throttles, whatever that says about the identity.
    pub(crate) const fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Whether it wants to be left alone for so long at least.
    pub(crate) fn asks_for(&self, pause: Duration) -> bool {
        self.asked.is_some_and(|asked| asked >= pause)
    }

    /// The same where throttling takes nothing back: while a token is held, for who may not ask for
    /// the next one is none the worse for it before this one ends; and of what is more than a token.
    pub(crate) fn taking_nothing_back(self) -> Self {
        if self.is_throttled { Self { nature: Nature::Throttled, ..self } } else { self }
    }

    /// The same where no token is held: then throttling is trouble on the way, as any other.
    pub(crate) fn without_token(self) -> Self {
        if self.is_throttled { Self { nature: Nature::Passing, ..self } } else { self }
    }

    /// For how long nobody is asked because of this, the so-many-th time in a row.
    pub(crate) fn rest(&self, times: u32) -> Option<Duration> {
        self.is_throttled.then(|| throttled(self.asked, times))
    }

    /// The same under the reason of a condition.
    pub(crate) fn because(self, reason: &'static str) -> Self {
        Self { code: reason.to_owned(), cause: Some(self.code), ..self }
    }

    /// Whether both tell the same, but for words that differ from try to try: ids of requests, times.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.code, &self.cause, self.nature) == (&other.code, &other.cause, other.nature)
    }

    /// Nobody answered in time.
    pub(crate) fn of_silence(asked: &str, limit: Duration) -> Self {
        let message = format!("{asked} did not answer within {} s", limit.as_secs());
        let hint = "check the way to Azure: HTTPS_PROXY, DNS and the trusted roots";
        Self::new(Nature::Passing, "TimedOut", message, hint)
    }
}

/// The code of a service that asked to be left alone.
pub(crate) const THROTTLED: &str = "TooManyRequests";

const SEE_THE_LOG: &str = "see the log with --log lanyard_credential=debug";

/// A code goes into conditions and events, so nothing of somebody else's text passes for one.
fn word(code: &str) -> String {
    if is_word(code) { code.to_owned() } else { "Unknown".to_owned() }
}

fn is_word(code: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=LONGEST_CODE).contains(&code.len()) && code.bytes().all(fits)
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push('…');
    }
    text
}

const LONGEST_CODE: usize = 64;
/// All annotations of a pod together may have 256 KiB.
const LONGEST_TEXT: usize = 1_500;

#[cfg(test)]
mod tests;
