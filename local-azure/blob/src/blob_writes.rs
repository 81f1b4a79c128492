//! Writes of whole blobs: upload, deletion, properties, metadata and tier.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::{BlobKind, StoredBlob};

use super::access::authorize_blob;
use super::append_blob::create_append_blob;
use super::blob_reads::{find_blob, reject_snapshot};
use super::blob_upload::{BlobUpload, parse_upload_properties, store_upload, with_checksum};
use super::checksum::{VerifiedChecksum, check_md5_form, md5_base64, verify_body_checksums};
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::reply::reply_with_etag;
use super::request_headers::{parse_blob_properties, parse_metadata, parse_tier};
use super::write_checks::check_change;

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
