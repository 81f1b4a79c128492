//! The error of sessions.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;

/// A running local Azure could not be found, or its files could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session directory cannot be created, or other users can write into it.
    #[error("{} cannot be used", directory.display())]
    Directory {
        /// The session directory.
        directory: PathBuf,
        /// The error of the file system, or the problem of the directory.
        source: io::Error,
    },
    /// Another local Azure runs with the session directory.
    #[error("process {process} serves a local Azure already")]
    AlreadyServing {
        /// The process id of the other local Azure.
        process: u32,
    },
    /// The certificates to trust cannot be written.
    #[error("cannot write into {}", directory.display())]
    WriteCertificates {
        /// The directory of the certificates.
        directory: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The descriptor of the running local Azure cannot be written.
    #[error("cannot write into {}", directory.display())]
    WriteDescriptor {
        /// The session directory.
        directory: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file of the test credentials cannot be written or removed.
    #[error("cannot write {}", file.display())]
    WriteCredentials {
        /// The file of the test credentials.
        file: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// No local Azure runs with the session directory.
    #[error("no local Azure is running: {}", descriptor.display())]
    NotRunning {
        /// The file that a running local Azure would have written.
        descriptor: PathBuf,
        /// The reason why the file or the address in it cannot be used.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No local Azure runs at the address in `LANYARD_AZURE_CONTROL`.
    #[error("no local Azure of `lanyard azure serve` or `lanyard up` is running at {control}")]
    NotRunningAt {
        /// The URL of the control API.
        control: String,
    },
    /// Several `lanyard up` are running, so the user must select one.
    #[error("{} `lanyard up` are running", directories.len())]
    SeveralRuns {
        /// The session directories of the runs.
        directories: Vec<PathBuf>,
    },
    /// The response of the control API lacks a field.
    #[error("the test clients have no `{pointer}`")]
    MissingTestClient {
        /// The JSON pointer of the field in the response.
        pointer: &'static str,
    },
}

impl ErrorHint for SessionError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Directory { .. } => "choose a directory of your own with --state",
            Self::AlreadyServing { .. } => {
                "end it, or give this one a directory of its own with --state"
            }
            Self::WriteCertificates { .. } => "choose another directory with --state",
            Self::NotRunning { .. } => {
                "start one with `lanyard azure serve` or `lanyard up`, with the same --state if it has one"
            }
            Self::NotRunningAt { .. } => {
                "start it, select another one with --state, or unset LANYARD_AZURE_CONTROL"
            }
            Self::SeveralRuns { directories } => {
                let directories: Vec<_> =
                    directories.iter().map(|directory| directory.display().to_string()).collect();
                return Some(Cow::Owned(format!(
                    "select one with --state: {}",
                    directories.join(", ")
                )));
            }
            Self::WriteDescriptor { .. }
            | Self::WriteCredentials { .. }
            | Self::MissingTestClient { .. } => return None,
        }))
    }

    /// Whether the user must select a session, rather than start or repair one.
    fn is_invalid_input(&self) -> bool {
        matches!(self, Self::SeveralRuns { .. })
    }
}
