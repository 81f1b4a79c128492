//! What can be wrong with a policy file.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with a policy, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if field.is_empty() { String::new() } else { format!("`{field}`: ") })]
pub struct PolicyProblem {
    /// The path of the field, as `rules[2].vaults[0].name`; empty for the file as a whole.
    pub field: String,
    /// What is wrong there.
    pub reason: String,
}

/// Everything that is wrong with a policy; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PolicyProblems(pub(crate) Vec<PolicyProblem>);

impl PolicyProblems {
    /// The problems, in the order of the file.
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

/// A policy file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file could not be read.
    #[error("the policy {} could not be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than a policy may be.
    #[error("the policy {} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// What the file says is no policy.
    #[error("the policy {} is refused: {problems}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: PolicyProblems,
    },
}

impl PolicyError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path, and that the node plugin may read it",
            Self::TooLarge { .. } => "join rules with patterns (`*`)",
            Self::Invalid { .. } => {
                "correct the fields that the message names; `lanyard node policy suggest` writes a \
                 policy that can be read"
            }
        }
    }
}
