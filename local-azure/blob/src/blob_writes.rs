//! Writes of whole blobs: upload, deletion, properties, metadata and tier.

use bytes::Bytes;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::{Lease, LeasedResource};
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::{
    BlobKind, CommittedBlock, CompletedCopy, ContentProperties, StoredBlob,
};

use super::access::authorize_blob;
use super::append_blob::create_append_blob;
use super::blob_reads::{find_blob, reject_snapshot};
use super::blob_tags::parse_tags_header;
use super::checksum::{VerifiedChecksum, check_md5_form, md5_base64, verify_body_checksums};
use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::lease_check::check_lease_for_write;
use super::permission::BlobPermission;
use super::reply::{reply_with_etag, with_optional_header};
use super::request_headers::{
    parse_blob_properties, parse_metadata, parse_tier, reject_unsupported_headers,
};

/// `PUT /{container}/{blob}`
pub(super) fn put_blob(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::PUT_BLOB)?;
    match call.request.header("x-ms-blob-type") {
        None => {
            return Err(
                BlobErrorCode::MISSING_REQUIRED_HEADER.with_detail("HeaderName", "x-ms-blob-type")
            );
        }
        Some("BlockBlob") => {}
        Some("AppendBlob") => return create_append_blob(call, key),
        Some("PageBlob") => return Err(BlobErrorCode::feature_not_supported("page blobs")),
        Some(_) => return Err(BlobErrorCode::invalid_header("x-ms-blob-type")),
    }
    let checksum = verify_body_checksums(call.request)?;
    let mut properties = parse_upload_properties(call.request);
    let md5 = checksum.md5.clone().unwrap_or_else(|| md5_base64(&call.request.body));
    match &properties.content_md5 {
        None => properties.content_md5 = Some(md5.clone()),
        Some(given) if *given == md5 => {}
        Some(given) => {
            check_md5_form(given)?;
            return Err(BlobErrorCode::MD5_MISMATCH.to_reply());
        }
    }
    let content = call.request.body.clone();
    let kind = BlobKind::Block;
    let upload = BlobUpload { kind, content, properties, blocks: Vec::new(), copy: None };
    let reply = store_upload(call, key, upload, StatusCode::CREATED)?;
    Ok(with_checksum(reply, VerifiedChecksum { md5: Some(md5), ..checksum }))
}

/// The properties of an uploaded blob. Without the headers of the blob, those of the request describe it.
pub(super) fn parse_upload_properties(request: &ServiceRequest) -> ContentProperties {
    let mut properties = parse_blob_properties(request);
    let header = |name| request.header(name).map(str::to_owned);
    properties.content_type = properties.content_type.or_else(|| header("content-type"));
    properties.content_encoding =
        properties.content_encoding.or_else(|| header("content-encoding"));
    properties.content_language =
        properties.content_language.or_else(|| header("content-language"));
    properties.cache_control = properties.cache_control.or_else(|| header("cache-control"));
    properties
}

/// Adds the checksums that the service computed.
pub(super) fn with_checksum(reply: ServiceReply, checksum: VerifiedChecksum) -> ServiceReply {
    let reply = with_optional_header(reply, "content-md5", checksum.md5);
    with_optional_header(reply, "x-ms-content-crc64", checksum.crc64)
}

/// The new content of a blob, with the properties that follow from the way of its upload.
#[derive(Debug)]
pub(super) struct BlobUpload {
    pub(super) kind: BlobKind,
    pub(super) content: Bytes,
    pub(super) properties: ContentProperties,
    pub(super) blocks: Vec<CommittedBlock>,
    pub(super) copy: Option<CompletedCopy>,
}

/// Checks conditions and lease of a write to a blob that may exist, and returns the existing blob.
pub(super) fn check_upload<'c>(
    call: &'c OperationContext<'_>,
    key: &BlobKey,
) -> Result<Option<&'c StoredBlob>, ServiceReply> {
    reject_unsupported_headers(call.request)?;
    reject_snapshot(call.request)?;
    let storage = &call.azure().storage;
    if storage.container(&key.container).is_none() {
        return Err(BlobErrorCode::CONTAINER_NOT_FOUND.to_reply());
    }
    let existing = storage.blob(key);
    let conditions = RequestConditions::parse(call.request)?;
    if existing.is_some() && conditions.requires_absence() {
        return Err(BlobErrorCode::BLOB_ALREADY_EXISTS.to_reply());
    }
    conditions.check_write(existing.map(|blob| (blob.etag, blob.last_modified)))?;
    let lease = existing.map_or(&Lease::Available, |blob| &blob.lease);
    check_lease_for_write(call, lease, LeasedResource::Blob)?;
    Ok(existing)
}

/// Stores a blob with the metadata, tags and tier of the request.
pub(super) fn store_upload(
    call: &mut OperationContext<'_>,
    key: BlobKey,
    upload: BlobUpload,
    status: StatusCode,
) -> Result<ServiceReply, ServiceReply> {
    let metadata = parse_metadata(call.request)?;
    let tags = parse_tags_header(call.request)?;
    let tier = parse_tier(call.request, call.now)?;
    let now = call.now;
    let existing = check_upload(call, &key)?;
    let created = existing.map_or(now, |blob| blob.created);
    let lease = existing.map_or(Lease::Available, |blob| blob.lease.after_write(now));
    let storage = &mut call.azure_mut().storage;
    let etag = storage.next_etag(now);
    let BlobUpload { kind, content, properties, blocks, copy } = upload;
    let blob = StoredBlob {
        created,
        last_modified: now,
        etag,
        kind,
        length: content.len(),
        properties,
        metadata,
        tags,
        lease,
        blocks,
        copy,
        tier,
    };
    storage.insert_blob(key, blob, content);
    Ok(reply_with_etag(status, etag, now).with_header("x-ms-request-server-encrypted", "true"))
}

/// `DELETE /{container}/{blob}`
pub(super) fn delete_blob(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::DELETE_BLOB)?;
    reject_snapshot(call.request)?;
    match call.request.header("x-ms-delete-snapshots") {
        None | Some("include") => {}
        // The blob has no snapshots, so there is nothing to delete.
        Some("only") => {
            find_blob(&call.azure().storage, &key)?;
            return Ok(ServiceReply::empty(StatusCode::ACCEPTED));
        }
        Some(_) => return Err(BlobErrorCode::invalid_header("x-ms-delete-snapshots")),
    }
    check_change(call, &key)?;
    call.azure_mut().storage.remove_blob(&key);
    Ok(ServiceReply::empty(StatusCode::ACCEPTED).with_header("x-ms-delete-type-permanent", "true"))
}

/// Checks conditions and lease of a change of an existing blob.
pub(super) fn check_change(call: &OperationContext<'_>, key: &BlobKey) -> Result<(), ServiceReply> {
    reject_unsupported_headers(call.request)?;
    reject_snapshot(call.request)?;
    let blob = find_blob(&call.azure().storage, key)?;
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_write(Some((blob.etag, blob.last_modified)))?;
    check_lease_for_write(call, &blob.lease, LeasedResource::Blob)
}

/// Changes an existing blob, with a new entity tag.
fn change_blob(
    call: &mut OperationContext<'_>,
    key: &BlobKey,
    change: impl FnOnce(&mut StoredBlob),
) -> Result<ServiceReply, ServiceReply> {
    check_change(call, key)?;
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let etag = storage.next_etag(now);
    let blob = storage.blob_mut(key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?;
    change(blob);
    blob.touch(etag, now);
    Ok(reply_with_etag(StatusCode::OK, etag, now))
}

/// `PUT /{container}/{blob}?comp=properties`: properties without a header are cleared.
pub(super) fn set_blob_properties(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::WRITE_BLOB)?;
    let properties = parse_blob_properties(call.request);
    if let Some(md5) = &properties.content_md5 {
        check_md5_form(md5)?;
    }
    change_blob(call, &key, |blob| blob.properties = properties)
}

/// `PUT /{container}/{blob}?comp=metadata`
pub(super) fn set_blob_metadata(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::WRITE_BLOB)?;
    let metadata = parse_metadata(call.request)?;
    let reply = change_blob(call, &key, |blob| blob.metadata = metadata)?;
    Ok(reply.with_header("x-ms-request-server-encrypted", "true"))
}

/// `PUT /{container}/{blob}?comp=tier`: does not change the entity tag.
pub(super) fn set_blob_tier(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::WRITE_BLOB)?;
    let Some(tier) = parse_tier(call.request, call.now)? else {
        return Err(
            BlobErrorCode::MISSING_REQUIRED_HEADER.with_detail("HeaderName", "x-ms-access-tier")
        );
    };
    check_change(call, &key)?;
    let storage = &mut call.azure_mut().storage;
    if find_blob(storage, &key)?.kind != BlobKind::Block {
        return Err(BlobErrorCode::INVALID_BLOB_TYPE.to_reply());
    }
    storage.blob_mut(&key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?.tier = Some(tier);
    Ok(ServiceReply::empty(StatusCode::OK))
}
