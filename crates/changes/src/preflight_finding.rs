//! What a check before the first write found.

use serde::Serialize;

/// What a check before the first write found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreflightFinding {
    /// Whether the run must not start.
    pub severity: FindingSeverity,
    /// The check, such as `permissions`.
    pub check: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// The run would fail.
    Error,
    /// The run can succeed, but the user should know.
    Warning,
}

impl PreflightFinding {
    /// A finding that prevents the run.
    pub fn error(check: &'static str, message: String, hint: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Error, check, message, hint: hint.into() }
    }

    /// A finding that does not prevent the run.
    pub fn warning(check: &'static str, message: String, hint: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Warning, check, message, hint: hint.into() }
    }
}
