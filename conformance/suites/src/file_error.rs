//! The error of an operation on a file.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// An operation on a file or directory failed.
#[derive(Debug, Error)]
#[error("could not {action} {}", path.display())]
pub(crate) struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl FileError {
    /// Returns a function for `map_err` that adds the operation, such as `read`, and the path.
    pub(crate) fn of(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self { action, path: path.clone(), source }
    }
}
