//! Validation problems of an input, each with its field.

use std::fmt;

use serde::Serialize;

/// All problems of an input, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct ValidationProblems(Vec<ValidationProblem>);

/// A problem of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValidationProblem {
    /// The path of the field, such as `spec.platform.azure.location`; empty for the whole object.
    pub field: String,
    /// Whether the problem is an error.
    pub severity: ProblemSeverity,
    /// The message. For a violation of HyperShift's schema, this is the schema's message.
    pub message: String,
    /// The suggested fix.
    pub hint: Option<String>,
}

impl ValidationProblem {
    /// Formats the problem with its suggested fix.
    pub fn line_with_hint(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{self}; next: {hint}"),
            None => self.to_string(),
        }
    }
}

/// Whether a problem makes the input unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemSeverity {
    /// The input is used as the message says, and a person should check it.
    Lint,
    /// The input is rejected.
    Error,
}

impl ProblemSeverity {
    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for ProblemSeverity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl ValidationProblems {
    /// Returns an iterator over the problems.
    pub fn iter(&self) -> std::slice::Iter<'_, ValidationProblem> {
        self.0.iter()
    }

    /// Returns whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == ProblemSeverity::Error)
    }

    /// Adds an error.
    pub(crate) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(field, ProblemSeverity::Error, message, None);
    }

    /// Adds an error with a suggested fix.
    pub(crate) fn error_with_hint(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(field, ProblemSeverity::Error, message, Some(hint.into()));
    }

    /// Adds a lint with a suggested fix.
    pub(crate) fn lint(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(field, ProblemSeverity::Lint, message, Some(hint.into()));
    }

    fn push(
        &mut self,
        field: impl Into<String>,
        severity: ProblemSeverity,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        let (field, message) = (field.into(), message.into());
        self.0.push(ValidationProblem { field, severity, message, hint });
    }
}

impl FromIterator<ValidationProblem> for ValidationProblems {
    fn from_iter<T: IntoIterator<Item = ValidationProblem>>(problems: T) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl IntoIterator for ValidationProblems {
    type Item = ValidationProblem;
    type IntoIter = std::vec::IntoIter<ValidationProblem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a ValidationProblems {
    type Item = &'a ValidationProblem;
    type IntoIter = std::slice::Iter<'a, ValidationProblem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for ValidationProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => formatter.write_str(&self.message),
            field => write!(formatter, "{field}: {}", self.message),
        }
    }
}

impl fmt::Display for ValidationProblems {
    /// Formats only the errors if there are any: lints are not the reason for a rejection.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_errors = self.has_errors();
        let listed =
            self.0.iter().filter(|it| !has_errors || it.severity == ProblemSeverity::Error);
        let problems: Vec<_> = listed.map(ToString::to_string).collect();
        formatter.write_str(&problems.join("; "))
    }
}
