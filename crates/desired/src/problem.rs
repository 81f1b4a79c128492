//! What is wrong with an input, all of it, each with its place.

use std::fmt;

use serde::Serialize;

/// Every problem of an input, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct ValidationProblems(Vec<ValidationProblem>);

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValidationProblem {
    /// The path of the field, such as `spec.platform.azure.location`; empty where the whole object
    /// is meant.
    pub field: String,
    /// Whether it stops the work.
    pub severity: ProblemSeverity,
    /// What is wrong. Where a rule of the reference's schema is broken, this is its message.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Whether a problem stops the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemSeverity {
    /// The input is taken as the message says, and somebody should look at it.
    Lint,
    /// The input cannot be used.
    Error,
}

impl ProblemSeverity {
    /// The stable name.
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
    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, ValidationProblem> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them stops the work.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == ProblemSeverity::Error)
    }

    /// Adds an error.
    pub(crate) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(field, ProblemSeverity::Error, message, None);
    }

    /// Adds an error and what to do about it.
    pub(crate) fn error_with_hint(
        &mut self,
        field: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(field, ProblemSeverity::Error, message, Some(hint.into()));
    }

    /// Adds a lint and what to do about it.
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
    /// The errors alone, where there are any: a lint is no reason why something cannot be used.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_errors = self.has_errors();
        let told = self.0.iter().filter(|it| !has_errors || it.severity == ProblemSeverity::Error);
        let problems: Vec<_> = told.map(ToString::to_string).collect();
        formatter.write_str(&problems.join("; "))
    }
}
