//! Errors of volume operations.

use std::borrow::Cow;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;

use crate::directory::VolumeDiskError;
use crate::memory_usage::VolumesMemoryLimitError;
use crate::mount::TmpfsMountError;
use crate::payload::PayloadProblem;

/// A volume could not be published, scrubbed or unpublished.
///
/// A failure before the symlink swap leaves the volume unchanged. After the swap, readers see the new files
/// and the next publish completes the remaining steps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The list of files is not valid volume content.
    #[error("invalid files for {}: {}", dir.display(), join_problems(problems))]
    InvalidPayload {
        /// The directory of the volume.
        dir: PathBuf,
        /// Every problem of the list.
        problems: Vec<PayloadProblem>,
    },
    /// Publishing would exceed the memory limit of all volumes together. Nothing was written.
    #[error("not enough memory for the content of {}", dir.display())]
    MemoryLimitExceeded {
        /// The directory of the volume.
        dir: PathBuf,
        /// The requested and the available memory.
        #[source]
        source: VolumesMemoryLimitError,
    },
    /// A system call failed.
    #[error("could not change the volume")]
    Disk(#[from] VolumeDiskError),
    /// The mount of the volume could not be changed.
    #[error("could not change the mount of the volume")]
    Mount(#[from] TmpfsMountError),
}

impl PublishError {
    /// Returns whether the same call may succeed later without a change of the request.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::InvalidPayload { .. } => false,
            Self::MemoryLimitExceeded { source, .. } => !source.can_never_fit,
            Self::Disk(error) => error.is_transient(),
            Self::Mount(error) => error.is_transient(),
        }
    }
}

impl ErrorHint for PublishError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::InvalidPayload { .. } => Some(
                "give every object of the SecretProviderClass a path of its own \
                 (`objectAlias`), none below another's"
                    .into(),
            ),
            Self::MemoryLimitExceeded { source, .. } => source.hint(),
            Self::Disk(error) => error.hint(),
            Self::Mount(error) => error.hint(),
        }
    }
}

fn join_problems(problems: &[PayloadProblem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
