//! Converts the parameters of a class to the files of a volume.

use std::borrow::Cow;

use lanyard_api::ProviderParameters;
use lanyard_clock::{ErrorHint, RetryClass};
use lanyard_vocabulary::Hop;

use crate::decode::{DecodeError, MountedFile, VolumeFileOptions, decode_files};
use crate::fetch::{ReadError, fetch_objects};
use crate::source::VaultSource;

/// Errors of creating the files of a volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// An object could not be fetched.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An object cannot be converted to its file.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl FetchError {
    /// Whether and when the call may succeed.
    pub fn retry(&self) -> RetryClass {
        match self {
            Self::Read(error) => error.retry(),
            // The vault would return the same value.
            Self::Decode(_) => RetryClass::Invalid,
        }
    }

    /// The hop that failed.
    pub fn hop(&self) -> Hop {
        match self {
            Self::Read(error) => error.hop(),
            Self::Decode(_) => Hop::Decode,
        }
    }
}

impl ErrorHint for FetchError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Read(error) => error.hint(),
            Self::Decode(error) => error.hint(),
        }
    }
}

/// Fetches the objects of a class and converts them to the files of its volume: [`fetch_objects`], then
/// [`decode_files`]. Logs the warnings.
pub async fn fetch_files(
    parameters: &ProviderParameters,
    source: &dyn VaultSource,
    options: VolumeFileOptions,
) -> Result<Vec<MountedFile>, FetchError> {
    let objects = fetch_objects(parameters, source).await?;
    let decoded = decode_files(&objects, options)?;
    for warning in &decoded.warnings {
        tracing::warn!(vault = %parameters.vault_name, "{warning}");
    }
    Ok(decoded.files)
}
