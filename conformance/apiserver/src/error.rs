//! Errors of starting the API server.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::ErrorHint;
use thiserror::Error;

use crate::ports::NoFreePorts;

/// The control plane could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// A file or program could not be used.
    #[error("could not {action} {}", path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// The file or program.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// All loopback ports are in use.
    #[error(transparent)]
    Ports(#[from] NoFreePorts),
    /// The key or certificates could not be generated.
    #[error("could not generate the keys and certificates of the control plane")]
    Key(#[from] rcgen::Error),
    /// A program exited before it was ready.
    #[error("`{program}` exited before it was ready; the end of its log:\n{log}")]
    Exited {
        program: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// The API server did not become ready in time.
    #[error("the API server was not ready after {} s; the end of its log:\n{log}", timeout.as_secs())]
    NotReady {
        /// How long the start waited.
        timeout: Duration,
        /// The last lines of its log.
        log: String,
    },
}

impl ErrorHint for ControlPlaneError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::File { .. } => {
                "check that the program is executable and that `TMPDIR` names a writable directory"
            }
            Self::Ports(_) => "stop processes that listen on the ports from 20000 to 32000",
            Self::Key(_) => "report this defect",
            Self::Exited { .. } | Self::NotReady { .. } => {
                "read the log lines above; other versions of etcd and kube-apiserver may lack a flag"
            }
        }))
    }
}

/// Returns a function for `map_err` that adds the failed operation and its path.
pub(crate) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> ControlPlaneError {
    let path = path.to_owned();
    move |source| ControlPlaneError::File { action, path, source }
}
