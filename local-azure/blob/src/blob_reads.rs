//! Reads of a blob: its content, and its properties.

use bytes::Bytes;
use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::LeasedResource;
use lanyard_emulator_state::storage::store::{BlobKey, BlobStore};
use lanyard_emulator_state::storage::stored_blob::{BlobKind, StoredBlob};

use super::access::authorize_blob;
use super::checksum::{crc64_base64, md5_base64};
use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::http_date::http_date;
use super::lease_check::check_lease_for_read;
use super::permission::BlobPermission;
use super::range::{ContentRange, parse_range};
use super::reply::{reply_with_etag, with_etag, with_lease, with_metadata, with_optional_header};
use super::request_headers::reject_unsupported_headers;
use super::sas::has_signature;

/// The largest range for which the service computes a checksum.
const MAX_CHECKSUM_RANGE: usize = 4 << 20;

/// The blob of an authorized request, or the error for the missing part.
pub(super) fn find_blob<'s>(
    storage: &'s BlobStore,
    key: &BlobKey,
) -> Result<&'s StoredBlob, BlobErrorCode> {
    storage.blob(key).ok_or_else(|| match storage.container(&key.container) {
        Some(_) => BlobErrorCode::BLOB_NOT_FOUND,
        None => BlobErrorCode::CONTAINER_NOT_FOUND,
    })
}

/// Rejects a request for a snapshot or a version: the emulator has none.
pub(super) fn reject_snapshot(request: &ServiceRequest) -> Result<(), ServiceReply> {
    for parameter in ["snapshot", "versionid"] {
        if request.query(parameter).is_some_and(|value| !value.is_empty()) {
            return Err(BlobErrorCode::feature_not_supported(parameter));
        }
    }
    Ok(())
}

/// The blob of a read request whose conditions and lease id are met.
pub(super) fn find_readable_blob<'c>(
    call: &'c OperationContext<'_>,
    key: &BlobKey,
) -> Result<&'c StoredBlob, ServiceReply> {
    reject_snapshot(call.request)?;
    reject_unsupported_headers(call.request)?;
    let blob = find_blob(&call.azure().storage, key)?;
    check_lease_for_read(call, &blob.lease, LeasedResource::Blob)?;
    RequestConditions::parse(call.request)?.check_read((blob.etag, blob.last_modified)).map_err(
        |error| match error {
            BlobErrorCode::NOT_MODIFIED => {
                with_etag(error.to_reply(), blob.etag, blob.last_modified)
            }
            _ => error.to_reply(),
        },
    )?;
    Ok(blob)
}

/// `GET /{container}/{blob}`, and `HEAD` for the properties
pub(super) fn get_blob(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::READ_BLOB)?;
    let blob = find_readable_blob(call, &key)?;
    let content = call.azure().storage.content(&key);
    if call.request.method == Method::HEAD {
        let reply = blob_reply(StatusCode::OK, blob, call.request, call.now);
        let reply =
            with_optional_header(reply, "content-md5", blob.properties.content_md5.as_ref());
        let mut reply = with_tier(reply, blob);
        // The server sends the length without the content.
        reply.body = content;
        return Ok(reply);
    }
    let Some(range) = parse_range(call.request, content.len())? else {
        let reply = blob_reply(StatusCode::OK, blob, call.request, call.now);
        let mut reply =
            with_optional_header(reply, "content-md5", blob.properties.content_md5.as_ref());
        reply.body = content;
        return Ok(reply);
    };
    let part = content.slice(range.start..range.end);
    let reply = blob_reply(StatusCode::PARTIAL_CONTENT, blob, call.request, call.now);
    let mut reply = with_range(reply, call.request, blob, &range, &part)?;
    reply.body = part;
    Ok(reply)
}

/// `GET /{container}/{blob}?comp=metadata`
pub(super) fn get_blob_metadata(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::READ_BLOB)?;
    let blob = find_readable_blob(call, &key)?;
    let reply = reply_with_etag(StatusCode::OK, blob.etag, blob.last_modified);
    Ok(with_metadata(reply, &blob.metadata))
}

/// Adds the headers of the access tier, which only block blobs have.
fn with_tier(reply: ServiceReply, blob: &StoredBlob) -> ServiceReply {
    if blob.kind != BlobKind::Block {
        return reply;
    }
    let tier = blob.tier.map(|tier| tier.tier).unwrap_or_default();
    let reply = reply.with_header("x-ms-access-tier", tier.name());
    match blob.tier {
        None => reply.with_header("x-ms-access-tier-inferred", "true"),
        Some(tier) => reply.with_header("x-ms-access-tier-change-time", http_date(tier.changed)),
    }
}

/// Adds the headers of a partial reply.
fn with_range(
    reply: ServiceReply,
    request: &ServiceRequest,
    blob: &StoredBlob,
    range: &ContentRange,
    part: &Bytes,
) -> Result<ServiceReply, ServiceReply> {
    let reply = reply.with_header("content-range", range.header_value());
    let md5 = blob.properties.content_md5.as_ref();
    let mut reply = with_optional_header(reply, "x-ms-blob-content-md5", md5);
    for (wanted, header) in [
        ("x-ms-range-get-content-md5", "content-md5"),
        ("x-ms-range-get-content-crc64", "x-ms-content-crc64"),
    ] {
        if request.header(wanted).is_none_or(|value| !value.eq_ignore_ascii_case("true")) {
            continue;
        }
        if part.len() > MAX_CHECKSUM_RANGE {
            return Err(BlobErrorCode::invalid_header(wanted));
        }
        let checksum = if header == "content-md5" { md5_base64(part) } else { crc64_base64(part) };
        reply = reply.with_header(header, checksum);
    }
    Ok(reply)
}

/// The headers of a blob. A shared access signature can replace those of the content.
fn blob_reply(
    status: StatusCode,
    blob: &StoredBlob,
    request: &ServiceRequest,
    now: Timestamp,
) -> ServiceReply {
    let properties = &blob.properties;
    let is_signed = has_signature(request);
    let header = |reply, name, parameter: &str, stored: Option<&str>| {
        let replacement = request.query(parameter).filter(|value| is_signed && !value.is_empty());
        with_optional_header(reply, name, replacement.or(stored))
    };
    let reply = reply_with_etag(status, blob.etag, blob.last_modified);
    let reply = header(reply, "content-type", "rsct", Some(blob.content_type()));
    let reply = header(reply, "cache-control", "rscc", properties.cache_control.as_deref());
    let reply =
        header(reply, "content-disposition", "rscd", properties.content_disposition.as_deref());
    let reply = header(reply, "content-encoding", "rsce", properties.content_encoding.as_deref());
    let reply = header(reply, "content-language", "rscl", properties.content_language.as_deref());
    let reply = reply
        .with_header("accept-ranges", "bytes")
        .with_header("x-ms-blob-type", blob.kind.name())
        .with_header("x-ms-server-encrypted", "true")
        .with_header("x-ms-creation-time", http_date(blob.created));
    let blocks = blob.kind.appended_blocks().map(|blocks| blocks.to_string());
    let reply = with_optional_header(reply, "x-ms-blob-committed-block-count", blocks);
    let reply = with_lease(reply, &blob.lease, now);
    let mut reply = with_metadata(reply, &blob.metadata);
    if !blob.tags.is_empty() {
        reply = reply.with_header("x-ms-tag-count", blob.tags.len().to_string());
    }
    if let Some(copy) = &blob.copy {
        reply = reply
            .with_header("x-ms-copy-id", copy.id.to_string())
            .with_header("x-ms-copy-source", &copy.source)
            .with_header("x-ms-copy-status", "success")
            .with_header("x-ms-copy-progress", format!("{0}/{0}", copy.length))
            .with_header("x-ms-copy-completion-time", http_date(copy.completed));
    }
    reply
}
