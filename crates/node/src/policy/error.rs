//! Errors of policy files.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;

/// One problem of a policy, and its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if field.is_empty() { String::new() } else { format!("`{field}`: ") })]
pub struct PolicyProblem {
    /// The path of the field, such as `rules[2].vaults[0].name`; empty for the whole file.
    pub field: String,
    /// The problem.
    pub reason: String,
}

/// Every problem of a policy; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PolicyProblems(pub(crate) Vec<PolicyProblem>);

impl PolicyProblems {
    /// Returns the problems in the order of the file.
    pub fn problems(&self) -> &[PolicyProblem] {
        &self.0
    }
}

impl fmt::Display for PolicyProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&problems.join("; "))
    }
}

/// A policy file cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file could not be read.
    #[error("could not read the policy {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The file exceeds the size limit of a policy.
    #[error("the policy {} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The size limit, in bytes.
        limit: u64,
    },
    /// The file is not a valid policy.
    #[error("invalid policy {}: {problems}", path.display())]
    Invalid {
        /// The path of the file.
        path: PathBuf,
        /// Every problem of the file.
        problems: PolicyProblems,
    },
}

impl ErrorHint for PolicyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Read { .. } => "check the path, and that the node plugin may read it",
            Self::TooLarge { .. } => "merge rules with patterns (`*`)",
            Self::Invalid { .. } => {
                "correct the fields that the message names; `lanyard node policy suggest` writes a \
                 policy that can be read"
            }
        }))
    }
}
