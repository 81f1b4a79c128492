//! Append blobs: creation, and the operation that extends them.
//!
//! Reference: "Put Blob", "Append Block".

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::BlobKind;

use super::access::authorize_blob;
use super::blob_reads::find_blob;
use super::blob_upload::{BlobUpload, parse_upload_properties, store_upload, with_checksum};
use super::checksum::verify_body_checksums;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::reply::reply_with_etag;
use super::write_checks::check_change;

/// The maximum number of blocks of a blob.
const MAX_BLOCKS: usize = 50_000;
/// The maximum size of one block.
pub(super) const MAX_BLOCK_BYTES: usize = 100 << 20;

/// `PUT /{container}/{blob}` with the type `AppendBlob`: creates an empty blob, or empties an existing one.
pub(super) fn create_append_blob(
    call: &mut OperationContext<'_>,
    key: BlobKey,
) -> Result<ServiceReply, ServiceReply> {
    if !call.request.body.is_empty() {
        return Err(BlobErrorCode::invalid_header("Content-Length"));
    }
    if call.request.header("x-ms-access-tier").is_some() {
        return Err(BlobErrorCode::invalid_header("x-ms-access-tier"));
    }
    let properties = parse_upload_properties(call.request);
    let kind = BlobKind::Append { blocks: 0 };
    let upload =
        BlobUpload { kind, content: Bytes::new(), properties, blocks: Vec::new(), copy: None };
    store_upload(call, key, upload, StatusCode::CREATED)
}

/// `PUT /{container}/{blob}?comp=appendblock`
pub(super) fn append_block(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::APPEND_BLOCK)?;
    if call.request.header("x-ms-copy-source").is_some() {
        return Err(BlobErrorCode::feature_not_supported("Append Block From URL"));
    }
    let checksum = verify_body_checksums(call.request)?;
    let block = call.request.body.clone();
    if block.is_empty() {
        return Err(BlobErrorCode::invalid_header("Content-Length"));
    }
    if block.len() > MAX_BLOCK_BYTES {
        return Err(BlobErrorCode::REQUEST_BODY_TOO_LARGE.to_reply());
    }
    check_change(call, &key)?;
    let blob = find_blob(&call.azure().storage, &key)?;
    let BlobKind::Append { blocks } = blob.kind else {
        return Err(BlobErrorCode::INVALID_BLOB_TYPE.to_reply());
    };
    let offset = blob.length;
    check_append_conditions(call.request, offset, block.len())?;
    if blocks >= MAX_BLOCKS {
        return Err(BlobErrorCode::BLOCK_COUNT_EXCEEDS_LIMIT.to_reply());
    }
    let (now, mut blob) = (call.now, blob.clone());
    let storage = &mut call.azure_mut().storage;
    let mut content = BytesMut::from(storage.content(&key));
    content.extend_from_slice(&block);
    let etag = storage.next_etag(now);
    blob.touch(etag, now);
    (blob.length, blob.kind) = (content.len(), BlobKind::Append { blocks: blocks + 1 });
    storage.insert_blob(key, blob, content.freeze());
    let reply = reply_with_etag(StatusCode::CREATED, etag, now)
        .with_header("x-ms-blob-append-offset", offset.to_string())
        .with_header("x-ms-blob-committed-block-count", (blocks + 1).to_string())
        .with_header("x-ms-request-server-encrypted", "true");
    Ok(with_checksum(reply, checksum))
}

/// Checks the conditions on the length of the blob before and after the operation.
fn check_append_conditions(
    request: &ServiceRequest,
    length: usize,
    block: usize,
) -> Result<(), ServiceReply> {
    let number = |name: &str| match request.header(name).map(str::parse::<usize>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(BlobErrorCode::invalid_header(name)),
    };
    if number("x-ms-blob-condition-maxsize")?.is_some_and(|most| length + block > most) {
        return Err(BlobErrorCode::MAX_BLOB_SIZE_CONDITION_NOT_MET.to_reply());
    }
    if number("x-ms-blob-condition-appendpos")?.is_some_and(|position| position != length) {
        return Err(BlobErrorCode::APPEND_POSITION_CONDITION_NOT_MET.to_reply());
    }
    Ok(())
}
