//! Uploads: the new content of a blob, its properties, and its storage.

use bytes::Bytes;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::Lease;
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::{
    BlobKind, CommittedBlock, CompletedCopy, ContentProperties, StoredBlob,
};

use super::blob_tags::parse_tags_header;
use super::checksum::VerifiedChecksum;
use super::reply::{reply_with_etag, with_optional_header};
use super::request_headers::{parse_blob_properties, parse_metadata, parse_tier};
use super::write_checks::check_upload;

/// The new content of a blob, with the properties that depend on the kind of upload.
#[derive(Debug)]
pub(super) struct BlobUpload {
    pub(super) kind: BlobKind,
    pub(super) content: Bytes,
    pub(super) properties: ContentProperties,
    pub(super) blocks: Vec<CommittedBlock>,
    pub(super) copy: Option<CompletedCopy>,
}

/// The properties of an uploaded blob: the headers `x-ms-blob-*`, or else the standard headers of
/// the request.
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

/// Adds the checksums that the service computed.
pub(super) fn with_checksum(reply: ServiceReply, checksum: VerifiedChecksum) -> ServiceReply {
    let reply = with_optional_header(reply, "content-md5", checksum.md5);
    with_optional_header(reply, "x-ms-content-crc64", checksum.crc64)
}
