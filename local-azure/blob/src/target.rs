//! The container and the blob in the URL of a request.

use lanyard_emulator_state::request::ServiceRequest;
use lanyard_emulator_state::storage::names::{ROOT_CONTAINER, check_container_name};
use lanyard_emulator_state::storage::store::{BlobKey, ContainerKey};
use percent_encoding::percent_decode_str;

use super::error::BlobErrorCode;

/// The account, container and blob of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlobTarget {
    /// The host name of the account's Blob service.
    pub(super) host: String,
    pub(super) container: Option<String>,
    pub(super) blob: Option<String>,
}

impl BlobTarget {
    /// The account of the request, without a container and a blob.
    pub(super) fn account(request: &ServiceRequest) -> Self {
        Self { host: request.host.clone(), container: None, blob: None }
    }

    /// The container in the path.
    pub(super) fn container(request: &ServiceRequest) -> Result<Self, BlobErrorCode> {
        let container = decode(request.path.trim_matches('/'))?;
        check_container_name(&container)?;
        Ok(Self { host: request.host.clone(), container: Some(container), blob: None })
    }

    /// The blob in the path. A path of one segment names a blob in the root container.
    pub(super) fn blob(request: &ServiceRequest) -> Result<Self, BlobErrorCode> {
        let (container, blob) = split_blob_path(&request.path)?;
        Ok(Self { host: request.host.clone(), container: Some(container), blob: Some(blob) })
    }

    pub(super) fn container_key(&self) -> ContainerKey {
        let name = self.container.clone().unwrap_or_default();
        ContainerKey { host: self.host.clone(), name }
    }

    pub(super) fn blob_key(&self) -> BlobKey {
        self.container_key().blob(self.blob.as_deref().unwrap_or_default())
    }
}

/// The decoded names of the container and of the blob in a path.
pub(super) fn split_blob_path(path: &str) -> Result<(String, String), BlobErrorCode> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (container, blob) = path.split_once('/').unwrap_or((ROOT_CONTAINER, path));
    let (container, blob) = (decode(container)?, decode(blob)?);
    check_container_name(&container)?;
    check_blob_name(&blob)?;
    Ok((container, blob))
}

/// Checks the name of a blob: 1 to 1,024 characters.
fn check_blob_name(name: &str) -> Result<(), BlobErrorCode> {
    match name.chars().count() {
        0 => Err(BlobErrorCode::INVALID_URI),
        1..=1_024 if name.chars().any(char::is_control) => Err(BlobErrorCode::INVALID_URI),
        1..=1_024 => Ok(()),
        _ => Err(BlobErrorCode::OUT_OF_RANGE_INPUT),
    }
}

fn decode(text: &str) -> Result<String, BlobErrorCode> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).or(Err(BlobErrorCode::INVALID_URI))
}
