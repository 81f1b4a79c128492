//! The outcome of one check.

use std::borrow::Cow;
use std::error::Error;

use lanyard_vocabulary::format_error_chain;
use serde::Serialize;

/// The outcome of a request to Azure, or the verdict on a hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum CheckOutcome {
    /// The request succeeded, or the hop works.
    Good {
        /// The result, or what proves that the hop works.
        detail: String,
    },
    /// The service rejected the request or gave no response, or the hop is broken.
    Failed {
        /// The error with its causes, or why the hop is broken.
        detail: String,
        /// What to do next.
        next_step: String,
        /// The number of the AADSTS code, if Entra ID answered with one.
        #[serde(skip)]
        code: Option<u32>,
    },
    /// The request was not made.
    NotTried {
        /// Why it was not made, or what it needs.
        reason: &'static str,
    },
    /// There is not enough evidence to judge the hop.
    NotDecided {
        /// The missing evidence.
        reason: String,
    },
}

impl Default for CheckOutcome {
    fn default() -> Self {
        Self::NotTried { reason: "no request was made" }
    }
}

impl CheckOutcome {
    /// A failure with this error. `code` is the code of the service, such as `AADSTS700213`.
    pub fn of_error(error: &dyn Error, hint: Option<Cow<'_, str>>, code: Option<&str>) -> Self {
        Self::Failed {
            detail: format_error_chain(error),
            next_step: hint.unwrap_or_default().into_owned(),
            code: code.and_then(|code| code.strip_prefix("AADSTS")?.parse().ok()),
        }
    }

    pub(crate) fn good(detail: impl Into<String>) -> Self {
        Self::Good { detail: detail.into() }
    }

    pub(crate) fn failed(detail: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self::Failed { detail: detail.into(), next_step: next_step.into(), code: None }
    }

    pub(crate) fn not_decided(reason: impl Into<String>) -> Self {
        Self::NotDecided { reason: reason.into() }
    }

    /// Whether this is [`Self::Failed`].
    pub const fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// The lines of a text report for the check `name`, in a column of `width` characters.
    pub fn to_text(&self, name: &str, width: usize) -> String {
        match self {
            Self::Good { detail } => format!("  {name:<width$}{detail}"),
            Self::Failed { detail, next_step, .. } => {
                format!("error: {name}: {detail}\n  hint: {next_step}")
            }
            Self::NotTried { reason } => format!("  {name:<width$}not tried: {reason}"),
            Self::NotDecided { reason } => format!("  {name:<width$}not decided: {reason}"),
        }
    }
}
