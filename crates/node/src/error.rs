//! What can go wrong with a volume.

use std::path::PathBuf;

use crate::directory::VolumeDiskError;
use crate::memory_limit::MemoryLimitError;
use crate::mount::TmpfsMountError;
use crate::payload::PayloadProblem;

/// A volume could not be published, scrubbed or unpublished.
///
/// Before the swap a failure leaves the volume as it was; after it, readers have the new files
/// and the next publish finishes what is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The list of files cannot be the content of a volume.
    #[error("the files for {} are refused: {}", dir.display(), join_problems(problems))]
    InvalidPayload {
        /// The volume.
        dir: PathBuf,
        /// Everything that is wrong with the list.
        problems: Vec<PayloadProblem>,
    },
    /// All volumes together would hold more memory than they may. Nothing was written.
    #[error("there is no room for the content of {}", dir.display())]
    MemoryLimitExceeded {
        /// The volume.
        dir: PathBuf,
        /// What it needs, and what there is.
        #[source]
        source: MemoryLimitError,
    },
    /// A system call failed.
    #[error("could not change the volume")]
    Disk(#[from] VolumeDiskError),
    /// The mount of the volume could not be changed.
    #[error("could not change the mount of the volume")]
    Mount(#[from] TmpfsMountError),
}

impl PublishError {
    /// What to do next, where there is something to do.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InvalidPayload { .. } => Some(
                "give every object of the SecretProviderClass a path of its own \
                 (`objectAlias`), none below another's",
            ),
            Self::MemoryLimitExceeded { source, .. } => Some(source.hint()),
            Self::Disk(error) => error.hint(),
            Self::Mount(error) => error.hint(),
        }
    }

    /// Whether the same call may succeed later with nothing changed in the request.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::InvalidPayload { .. } => false,
            Self::MemoryLimitExceeded { source, .. } => !source.can_never_fit,
            Self::Disk(error) => error.is_transient(),
            Self::Mount(error) => error.is_transient(),
        }
    }
}

fn join_problems(problems: &[PayloadProblem]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
