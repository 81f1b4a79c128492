//! Reads of public documents by other services of the emulator: the token service fetches the discovery
//! document and the keys of an issuer of `OpenID` tokens that are stored in blobs.

use bytes::Bytes;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::storage::container::PublicAccess;
use lanyard_emulator_state::storage::store::{BlobStore, ContainerKey};
use url::Url;

use super::error::BlobErrorCode;
use super::static_website::find_public_page;
use super::target::split_blob_path;

/// Reads the blob or the page at a URL as an anonymous client, with the public access of the container and of
/// the account. `None` if the URL is not that of a blob or of a static website.
pub(crate) fn read_public_document(
    azure: &AzureState,
    clouds: &AzureClouds,
    url: &Url,
) -> Option<Result<Bytes, &'static str>> {
    let (storage, host) = (&azure.storage, url.host_str()?);
    let content = match clouds.endpoint_of_url(url)?.service {
        AzureService::Blob => read_blob(storage, host, url.path()),
        AzureService::StaticWebsite => {
            find_public_page(storage, host, url.path()).ok_or(BlobErrorCode::RESOURCE_NOT_FOUND)
        }
        _ => return None,
    };
    Some(content.map_err(|error| error.code))
}

fn read_blob(storage: &BlobStore, host: &str, path: &str) -> Result<Bytes, BlobErrorCode> {
    let account = storage.account(host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    if !account.settings.allow_blob_public_access {
        return Err(BlobErrorCode::PUBLIC_ACCESS_NOT_PERMITTED);
    }
    let (container, blob) = split_blob_path(path)?;
    let key = ContainerKey { host: host.to_owned(), name: container }.blob(&blob);
    let container = storage.container(&key.container);
    if container.is_none_or(|container| container.public_access == PublicAccess::None) {
        return Err(BlobErrorCode::RESOURCE_NOT_FOUND);
    }
    storage.blob(&key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?;
    Ok(storage.content(&key))
}
