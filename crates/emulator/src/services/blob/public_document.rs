//! Reads of public documents by other services of the emulator: the token service fetches the discovery
//! document and the keys of an OpenID issuer that is stored in a blob.

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

use super::access::{BlobAccess, BlobCaller};
use super::permission::BlobPermission;
use super::static_website::find_public_page;
use super::target::BlobTarget;
use crate::azure_state::AzureState;
use crate::hosts;
use crate::operations::AzureService;
use crate::request::{RequestScheme, ServiceRequest};

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PublicDocumentError {
    /// The URL is not that of a blob or of a static website.
    #[error("`{0}` is not the URL of a storage account")]
    NotStorage(Url),
    /// The document does not exist, or it is not public.
    #[error("`{url}` is not readable without authentication: {reason}")]
    NotReadable {
        url: Url,
        /// The error code of the Blob service.
        reason: String,
    },
}

/// Whether a URL is that of a blob or of a static website.
pub(crate) fn is_storage_document(url: &Url) -> bool {
    url.scheme() == "https" && url.host_str().is_some_and(hosts::is_blob_host)
}

/// Reads the document at a URL as an anonymous client, honouring the public access of the container and of
/// the account.
pub(crate) fn read_public_document(
    azure: &AzureState,
    url: &Url,
    now: jiff::Timestamp,
) -> Result<Bytes, PublicDocumentError> {
    let endpoint = url.host_str().and_then(hosts::endpoint_of_host);
    let endpoint = endpoint
        .filter(|_| is_storage_document(url))
        .ok_or_else(|| PublicDocumentError::NotStorage(url.clone()))?;
    let refuse = |reason: &str| PublicDocumentError::NotReadable {
        url: url.clone(),
        reason: reason.to_owned(),
    };
    let host = url.host_str().unwrap_or_default();
    if endpoint.service == AzureService::StaticWebsite {
        return find_public_page(&azure.storage, host, url.path())
            .ok_or_else(|| refuse("WebContentNotFound"));
    }
    let request = ServiceRequest {
        method: Method::GET,
        scheme: RequestScheme::Https,
        host: host.to_owned(),
        client_ip: None,
        path: url.path().to_owned(),
        query: Vec::new(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let access = BlobAccess { azure, request: &request, cloud: endpoint.cloud, now };
    let target = BlobTarget::blob(&request).map_err(|error| refuse(error.code))?;
    access
        .check_permission(&target, &BlobCaller::Anonymous, &BlobPermission::READ_BLOB)
        .map_err(|reply| refuse(reply.rejection_reason.as_deref().unwrap_or("ResourceNotFound")))?;
    let key = target.blob_key();
    match azure.storage.blob(&key) {
        Some(_) => Ok(azure.storage.content(&key)),
        None => Err(refuse("BlobNotFound")),
    }
}
