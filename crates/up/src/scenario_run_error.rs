//! Errors of starting or closing a scenario run.

use std::borrow::Cow;

use lanyard_azure::AzureTransportError;
use lanyard_clock::ErrorHint;
use lanyard_credential::ManagedIdentitySettingsError;
use lanyard_emulator::StartError;
use lanyard_vocabulary::Cloud;

use crate::run_directory_error::{CloseRunError, RunDirectoryError};

/// The scenario run could not be started or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioRunError {
    /// The cloud has no fixed endpoints.
    #[error("the endpoints of {0} are not known")]
    Cloud(Cloud),
    /// The local Azure could not be started.
    #[error("the local Azure did not start")]
    Azure(#[from] StartError),
    /// The directory for the volumes cannot be used.
    #[error(transparent)]
    Directory(#[from] RunDirectoryError),
    /// The transport cannot be built.
    #[error("the transport to the local Azure cannot be built")]
    Transport(#[from] AzureTransportError),
    /// The client of the managed identity endpoint cannot be built.
    #[error("the client of the managed identity endpoint cannot be built")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// Volumes or directories of the run could not be removed.
    #[error("not all volumes and directories of the run could be removed")]
    Close(#[from] CloseRunError),
}

impl ErrorHint for ScenarioRunError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Cloud(_) => "set spec.platform.azure.cloud to a cloud with known endpoints",
            // `lanyard azure serve` is the command for sharing a local Azure; a scenario run serves one
            // machine.
            Self::Azure(StartError::AddressReachableRemotely { .. }) => {
                "give --listen a loopback address, or use `lanyard azure serve --allow-remote`"
            }
            Self::Azure(error) => {
                return Some(error.hint().unwrap_or(Cow::Borrowed("see the cause")));
            }
            Self::Directory(RunDirectoryError::InUse { .. }) => {
                "end that run, or choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::LeftoverVolumes { .. }) => {
                "unmount and remove them, or choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::NotOwned { .. }) => {
                "choose another directory with --directory"
            }
            Self::Directory(RunDirectoryError::Io(_)) => {
                "set TMPDIR to a directory that you may write to, or choose another --directory"
            }
            Self::Transport(error) => return error.hint(),
            Self::ManagedIdentity(_) => "run again with --log debug and report the log",
            Self::Close(_) => "the next `lanyard up` tries again; by hand: umount <directory>",
        }))
    }

    /// Whether the HostedCluster or the fault is invalid.
    fn is_invalid_input(&self) -> bool {
        match self {
            Self::Cloud(_) => true,
            Self::Azure(error) => error.is_invalid_plan(),
            _ => false,
        }
    }
}
