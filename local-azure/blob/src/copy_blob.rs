//! Copies of blobs between the accounts of the emulator. They complete within the request.
//!
//! Reference: "Copy Blob", "Copy Blob From URL", "Put Blob From URL".

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{HTTPS_PORT, ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::{BlobKind, CompletedCopy, StoredBlob};

use super::access::{BlobAccess, BlobCaller, authorize_blob};
use super::blob_reads::find_blob;
use super::blob_tags::parse_tags_header;
use super::blob_upload::{BlobUpload, store_upload};
use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::request_headers::{parse_blob_properties, parse_metadata};
use super::sas::has_signature;
use super::target::BlobTarget;

/// `PUT /{container}/{blob}` with `x-ms-copy-source`
pub(super) fn copy_blob(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, caller) = authorize_blob(call, &BlobPermission::PUT_BLOB)?;
    let CopySource { request: source, blob, content } = read_source(call, &key, &caller)?;
    // Of the copy operations, only `Put Blob From URL` has a blob type.
    let is_upload = call.request.header("x-ms-blob-type").is_some();
    let id = call.ids.next_uuid();
    let copied = CompletedCopy {
        id,
        source: format!("{}{}", source.origin(), source.path),
        completed: call.now,
        length: content.len(),
    };
    let (copy, status) =
        if is_upload { (None, StatusCode::CREATED) } else { (Some(copied), StatusCode::ACCEPTED) };
    // `Put Blob From URL` creates block blobs from block blobs. A copy has the type of its source, and does not
    // change the type of an existing blob.
    let existing = call.azure().storage.blob(&key).map(|existing| existing.kind.name());
    if (is_upload && blob.kind != BlobKind::Block)
        || (!is_upload && existing.is_some_and(|name| name != blob.kind.name()))
    {
        return Err(BlobErrorCode::INVALID_BLOB_TYPE.to_reply());
    }
    let mut upload = BlobUpload {
        kind: blob.kind,
        content,
        properties: blob.properties.clone(),
        blocks: blob.blocks.clone(),
        copy,
    };
    if is_upload {
        let given = parse_blob_properties(call.request);
        let properties = &mut upload.properties;
        properties.content_type = given.content_type.or(properties.content_type.take());
        properties.content_encoding = given.content_encoding.or(properties.content_encoding.take());
        properties.cache_control = given.cache_control.or(properties.cache_control.take());
    }
    let takes_metadata = parse_metadata(call.request)?.is_empty();
    let takes_tags = takes_tags_of_source(call.request)?;
    let reply = store_upload(call, key.clone(), upload, status)?;
    take_from_source(call, &key, blob, takes_metadata, takes_tags);
    if is_upload {
        return Ok(reply);
    }
    Ok(reply.with_header("x-ms-copy-id", id.to_string()).with_header("x-ms-copy-status", "success"))
}

/// The source of a copy.
#[derive(Debug)]
pub(super) struct CopySource {
    request: ServiceRequest,
    blob: StoredBlob,
    pub(super) content: Bytes,
}

/// Reads the source of a copy to `destination`, if it is readable and meets the conditions on it.
pub(super) fn read_source(
    call: &mut OperationContext<'_>,
    destination: &BlobKey,
    caller: &BlobCaller,
) -> Result<CopySource, ServiceReply> {
    let request = parse_source(call.request)?;
    let key = authorize_source(call, &request, destination, caller)?;
    let storage = &call.azure().storage;
    let blob = find_blob(storage, &key).or(Err(BlobErrorCode::CANNOT_VERIFY_COPY_SOURCE))?;
    RequestConditions::parse_source(call.request)?
        .check_read((blob.etag, blob.last_modified))
        .or(Err(BlobErrorCode::CONDITION_NOT_MET))?;
    Ok(CopySource { request, blob: blob.clone(), content: storage.content(&key) })
}

/// Copies the metadata, the tags or both from the source to the blob `key`.
fn take_from_source(
    call: &mut OperationContext<'_>,
    key: &BlobKey,
    source: StoredBlob,
    takes_metadata: bool,
    takes_tags: bool,
) {
    if let Some(copy) = call.azure_mut().storage.blob_mut(key) {
        if takes_metadata {
            copy.metadata = source.metadata;
        }
        if takes_tags {
            copy.tags = source.tags;
        }
    }
}

fn takes_tags_of_source(request: &ServiceRequest) -> Result<bool, ServiceReply> {
    match request.header("x-ms-copy-source-tag-option") {
        Some(option) if option.eq_ignore_ascii_case("copy") => {
            if parse_tags_header(request)?.is_empty() {
                Ok(true)
            } else {
                Err(BlobErrorCode::invalid_header("x-ms-tags"))
            }
        }
        _ => Ok(false),
    }
}

/// The source as a request: with the signature in its URL, or with `x-ms-copy-source-authorization`.
fn parse_source(request: &ServiceRequest) -> Result<ServiceRequest, ServiceReply> {
    let invalid = || BlobErrorCode::invalid_header("x-ms-copy-source");
    let text = request.header("x-ms-copy-source").ok_or_else(invalid)?;
    let url = url::Url::parse(text).map_err(|_malformed| invalid())?;
    let host = url.host_str().filter(|_| url.scheme() == "https").ok_or_else(invalid)?;
    let mut headers = HeaderMap::new();
    if let Some(version) = request.headers.get("x-ms-version") {
        headers.insert(HeaderName::from_static("x-ms-version"), version.clone());
    }
    if let Some(credential) = request.headers.get("x-ms-copy-source-authorization") {
        headers.insert(AUTHORIZATION, credential.clone());
    }
    Ok(ServiceRequest {
        method: Method::GET,
        scheme: request.scheme,
        host: host.to_ascii_lowercase(),
        port: url.port_or_known_default().unwrap_or(HTTPS_PORT),
        client_ip: request.client_ip,
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers,
        body: Bytes::new(),
    })
}

/// Checks that the source is readable. Within an account, the caller's own credential suffices.
fn authorize_source(
    call: &mut OperationContext<'_>,
    source: &ServiceRequest,
    destination: &BlobKey,
    caller: &BlobCaller,
) -> Result<BlobKey, ServiceReply> {
    let target = BlobTarget::blob(source)?;
    let access = BlobAccess {
        azure: call.azure,
        request: source,
        cloud: &call.endpoint.cloud,
        now: call.now,
        system_now: call.system_now,
    };
    let has_own_credential = has_signature(source) || source.headers.contains_key(AUTHORIZATION);
    let is_same_account = target.host == destination.container.host;
    let uses_caller =
        !has_own_credential && is_same_account && !matches!(caller, BlobCaller::Sas(_));
    let unreadable = |reason: ServiceReply| {
        BlobErrorCode::CANNOT_VERIFY_COPY_SOURCE
            .to_reply()
            .with_rejection_reason(reason.rejection_reason.unwrap_or_default())
    };
    let source_caller = if uses_caller {
        caller.clone()
    } else {
        access.authenticate(&target, &mut call.caches.verified_tokens).map_err(unreadable)?
    };
    access
        .check_permission(&target, &source_caller, &BlobPermission::READ_BLOB)
        .map_err(unreadable)?;
    Ok(target.blob_key())
}

/// `PUT /{container}/{blob}?comp=copy`: copies complete within their request, so none is pending.
pub(super) fn abort_copy(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::WRITE_BLOB)?;
    find_blob(&call.azure().storage, &key)?;
    Err(BlobErrorCode::NO_PENDING_COPY.to_reply())
}
