//! Errors of loading a credential file.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;

use crate::generation::ParseCredentialError;

/// The reason why a credential file could not be loaded. Never contains any content of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the credential file {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("the credential file {} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is too large to be a credential.
    #[error("the credential file {} is larger than {limit} bytes", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// The content is invalid.
    #[error("cannot use the credential file {}", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: ParseCredentialError,
    },
    /// The parser stopped without a result: a bug, or the runtime is shutting down.
    #[error("the reader of the credential file {} stopped", path.display())]
    Stopped {
        /// The path of the file.
        path: PathBuf,
    },
}

impl ErrorHint for LoadError {
    fn hint(&self) -> Option<Cow<'static, str>> {
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
        Some(text.into())
    }
}
