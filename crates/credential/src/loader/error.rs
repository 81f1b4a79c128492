//! Why a file could not be loaded.

use std::io;
use std::path::PathBuf;

use crate::generation::CandidateError;

/// Why a credential file could not be loaded. It never holds any of its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the credential file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is something else than a file.
    #[error("the credential file {} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is too large to be a credential.
    #[error("the credential file {} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// The content cannot be used.
    #[error("cannot use the credential file {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: CandidateError,
    },
    /// The reader stopped in the middle: a defect, or the runtime is shutting down.
    #[error("the reader of the credential file {} stopped", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
}

impl LoadError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        let text = match self {
            Self::Content { source, .. } => return source.hint(),
            Self::Read { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    "check that the volume is mounted, and that the file has the name of the secret"
                }
                io::ErrorKind::PermissionDenied => {
                    "let the user of this process read the file: mode 0644, or the pod's fsGroup"
                }
                _ => "check the volume and its driver",
            },
            Self::NotAFile { .. } => "name the file in the mounted folder, not the folder",
            Self::TooLarge { .. } => {
                "name the credential document; a credential has a few kilobytes"
            }
            Self::Stopped { .. } => {
                "if the program is not shutting down, please report this defect"
            }
        };
        text.to_owned()
    }
}
