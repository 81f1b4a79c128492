//! The errors of creating and of removing the directories of a run.

use std::io;
use std::path::PathBuf;

use lanyard_volume::{PublishError, TmpfsMountError};

/// An error while creating or opening the directories of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirectoryError {
    /// A file system operation failed.
    #[error("could not create a directory for the volumes")]
    Io(#[from] io::Error),
    /// The volumes of another `lanyard up` are in the directory.
    #[error("another `lanyard up` has its volumes in {}", directory.display())]
    InUse {
        /// The chosen directory.
        directory: PathBuf,
    },
    /// Other users can replace files in the directory.
    #[error("{} belongs to another user, or all users can write to it", directory.display())]
    NotOwned {
        /// The chosen directory.
        directory: PathBuf,
    },
    /// The volumes of a killed `lanyard up` could not be removed.
    #[error("could not remove the volumes of a killed `lanyard up` from {}", directory.display())]
    LeftoverVolumes {
        /// The chosen directory.
        directory: PathBuf,
        /// The reason.
        #[source]
        source: CloseRunError,
    },
}

/// Files or mounts of a run could not be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseRunError {
    /// Volumes could not be removed.
    #[error("could not remove the volumes {}", joined_paths(volumes))]
    Volumes {
        /// The paths of the volumes.
        volumes: Vec<PathBuf>,
        /// The error of the first volume.
        #[source]
        first: PublishError,
    },
    /// The mount table could not be read.
    #[error("could not list the mounts of the run")]
    Mounts(#[source] TmpfsMountError),
    /// Another file system is mounted in a directory of the run.
    #[error("another file system is mounted on {}", mount.display())]
    Mounted {
        /// The mount point.
        mount: PathBuf,
    },
    /// The chosen directory could not be locked.
    #[error("could not lock the directory of the volumes")]
    ChosenDirectory(#[source] Box<RunDirectoryError>),
    /// A directory of the run could not be removed.
    #[error("a directory of the run could not be removed")]
    Directory(#[from] io::Error),
}

fn joined_paths(volumes: &[PathBuf]) -> String {
    let volumes: Vec<_> = volumes.iter().map(|path| path.display().to_string()).collect();
    volumes.join(", ")
}
