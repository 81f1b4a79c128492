//! Why there is no API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::ports::NoFreePorts;

/// The API server could not be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlPlaneError {
    /// The file system or a program.
    #[error("could not {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What came back.
        #[source]
        source: std::io::Error,
    },
    /// Every port is in use.
    #[error(transparent)]
    Ports(#[from] NoFreePorts),
    /// There is no key for the tokens of service accounts.
    #[error("could not make the key of the ServiceAccount tokens")]
    Key(#[from] rcgen::Error),
    /// A program ended while it was waited for.
    #[error("{program} ended while it was waited for; it said:\n{log}")]
    Exited {
        /// Which one.
        program: &'static str,
        /// The end of its log.
        log: String,
    },
    /// The API server does not become ready.
    #[error("the API server was not ready after {} s; it said:\n{log}", patience.as_secs())]
    NotReady {
        /// How long was waited.
        patience: Duration,
        /// The end of its log.
        log: String,
    },
}

impl ControlPlaneError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => {
                "see that the program can be run and that TMPDIR names a place to write to"
            }
            Self::Ports(_) => "end what listens on the ports from 20000 to 32000",
            Self::Key(_) => "report this defect",
            Self::Exited { .. } | Self::NotReady { .. } => {
                "see the lines above; other versions of etcd and kube-apiserver may not know a flag"
            }
        }
    }
}

/// What the file system or a program answered when this was tried on that.
pub(crate) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> ControlPlaneError {
    let path = path.to_owned();
    move |source| ControlPlaneError::File { action, path, source }
}
