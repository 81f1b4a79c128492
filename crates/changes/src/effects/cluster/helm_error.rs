//! The errors of Helm.

use std::borrow::Cow;
use std::path::PathBuf;

use lanyard_clock::{ErrorHint, RetryClass};

use super::ids::OtherClusterError;
use crate::effect_error::{EffectError, EffectErrorCause};

/// A command of Helm failed, or was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelmError {
    /// Helm could not be started.
    #[error("`{}` could not be started", binary.display())]
    Start {
        /// The program.
        binary: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The version of Helm is not supported.
    #[error("`{}` is Helm `{version}`; lanyard needs 3.13 or later, or 4", binary.display())]
    Version {
        /// The program.
        binary: PathBuf,
        /// What `helm version` printed.
        version: String,
    },
    /// Helm failed, or did not end.
    #[error("`helm {command}` failed: {message}")]
    Failed {
        /// The command.
        command: String,
        /// Helm's message.
        message: String,
        /// Why.
        failure: HelmFailure,
    },
    /// Another Helm may work on the release.
    #[error(
        "`{release}` has the status `{status}` since {since}: another `helm` or pipeline may be running, or was killed"
    )]
    Pending {
        /// Namespace and name.
        release: String,
        /// The status.
        status: String,
        /// When the last command for the release began.
        since: String,
    },
    /// The id is not one of this cluster.
    #[error(transparent)]
    OtherCluster(#[from] OtherClusterError),
}

/// Why Helm failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelmFailure {
    /// The release does not exist.
    ReleaseNotFound,
    /// The API server or the registry of the chart could not be reached.
    Unreachable,
    /// Another Helm works on the release.
    Busy,
    /// Objects of the release did not become ready in time, or Helm did not end and was killed.
    NotReady,
    /// The account has no permission, or is not known.
    Denied,
    /// Another field manager holds fields of the chart.
    Conflict,
    /// The chart, its values or its objects are invalid, or Helm's output is.
    Invalid,
}

impl HelmFailure {
    /// Whether a repetition can help, what the failure says about the release, and what to do.
    const fn facts(self) -> (RetryClass, EffectErrorCause, &'static str) {
        use EffectErrorCause::{Conflict, NotFound, OperationFailed, Rejected};
        match self {
            Self::ReleaseNotFound => {
                (RetryClass::PreconditionFailed, NotFound, "run the command again")
            }
            Self::Unreachable => (RetryClass::Transient, Rejected, "check the network path"),
            Self::Busy => (RetryClass::Busy, Rejected, "wait until the other `helm` has ended"),
            Self::NotReady => {
                (RetryClass::Denied, OperationFailed, "check the objects of the release")
            }
            Self::Denied => (RetryClass::Denied, Rejected, "check the user of the kubeconfig"),
            Self::Conflict => {
                let hint = "let only one field manager own these fields";
                (RetryClass::Denied, Conflict { after_accepting: true }, hint)
            }
            Self::Invalid => (RetryClass::Invalid, Rejected, "correct the chart or its values"),
        }
    }
}

impl From<HelmError> for EffectError {
    fn from(error: HelmError) -> Self {
        let (class, cause) = match &error {
            HelmError::Failed { failure, .. } => (failure.facts().0, failure.facts().1),
            HelmError::Pending { .. } => (RetryClass::Busy, EffectErrorCause::Rejected),
            _ => (RetryClass::Invalid, EffectErrorCause::Rejected),
        };
        Self::new(class, cause, error)
    }
}

impl ErrorHint for HelmError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Start { .. } => "install Helm, or give the path of the program",
            Self::Version { .. } => "install Helm 4",
            Self::Failed { failure, .. } => failure.facts().2,
            Self::Pending { .. } => {
                "wait until the other command has ended; if it was killed, run the command again later"
            }
            Self::OtherCluster(error) => return error.hint(),
        }))
    }
}
