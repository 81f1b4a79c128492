//! Uploads in blocks.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::{Lease, LeasedResource};
use lanyard_emulator_state::storage::store::{BlobKey, BlobStore, StagedBlockKey};
use lanyard_emulator_state::storage::stored_blob::{BlobKind, CommittedBlock};
use serde::Deserialize;

use super::access::authorize_blob;
use super::blob_reads::{find_readable_blob, reject_snapshot};
use super::blob_upload::{BlobUpload, store_upload, with_checksum};
use super::checksum::{check_md5_form, crc64_base64, verify_body_checksums};
use super::copy_blob::read_source;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::range::range_within;
use super::reply::with_etag;
use super::request_headers::{parse_blob_properties, parse_lease_id, reject_unsupported_headers};
use super::write_checks::check_upload;
use super::xml_body::parse_xml;
use super::xml_writer::XmlWriter;

/// The maximum number of blocks of a blob.
const MAX_BLOCKS: usize = 50_000;
/// The maximum length of a decoded block id.
const MAX_BLOCK_ID_BYTES: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BlockListDocument {
    #[serde(rename = "$value")]
    blocks: Vec<BlockReference>,
}

/// An element of a block list: where to find the block with this id.
#[derive(Debug, Deserialize)]
enum BlockReference {
    Committed(String),
    Uncommitted(String),
    /// The uncommitted block, or else the committed one.
    Latest(String),
}

/// `PUT /{container}/{blob}?comp=block&blockid={id}`
pub(super) fn put_block(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::PUT_BLOB)?;
    let checksum = verify_body_checksums(call.request)?;
    let content = call.request.body.clone();
    let reply = stage_block(call, key, content)?;
    Ok(with_checksum(reply, checksum))
}

/// `PUT /{container}/{blob}?comp=block&blockid={id}` with `x-ms-copy-source`
pub(super) fn put_block_from_url(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, caller) = authorize_blob(call, &BlobPermission::PUT_BLOB)?;
    let content = read_source(call, &key, &caller)?.content;
    let range = range_within(call.request.header("x-ms-source-range"), content.len())?;
    let content = match range {
        Some(range) => content.slice(range.start..range.end),
        None => content,
    };
    let reply = stage_block(call, key, content.clone())?;
    Ok(reply.with_header("x-ms-content-crc64", crc64_base64(&content)))
}

fn stage_block(
    call: &mut OperationContext<'_>,
    key: BlobKey,
    content: Bytes,
) -> Result<ServiceReply, ServiceReply> {
    let id = parse_block_id(call.request)?;
    reject_unsupported_headers(call.request)?;
    let storage = &call.azure().storage;
    if storage.container(&key.container).is_none() {
        return Err(BlobErrorCode::CONTAINER_NOT_FOUND.to_reply());
    }
    let lease_id = parse_lease_id(call.request, "x-ms-lease-id")?;
    check_is_block_blob(storage, &key)?;
    let lease = storage.blob(&key).map_or(&Lease::Available, |blob| &blob.lease);
    lease.check_write(call.now, lease_id, LeasedResource::Blob).map_err(BlobErrorCode::from)?;
    // All ids of a blob have the same length.
    if storage.staged_blocks(&key).next().is_some_and(|(known, _)| known.id.len() != id.len()) {
        return Err(BlobErrorCode::INVALID_BLOB_OR_BLOCK.to_reply());
    }
    call.azure_mut().storage.stage_block(StagedBlockKey { blob: key, id }, content);
    Ok(ServiceReply::empty(StatusCode::CREATED)
        .with_header("x-ms-request-server-encrypted", "true"))
}

/// Rejects a block for an existing blob that is not a block blob.
fn check_is_block_blob(storage: &BlobStore, key: &BlobKey) -> Result<(), BlobErrorCode> {
    match storage.blob(key) {
        Some(blob) if blob.kind != BlobKind::Block => Err(BlobErrorCode::INVALID_BLOB_TYPE),
        _ => Ok(()),
    }
}

fn parse_block_id(request: &ServiceRequest) -> Result<String, ServiceReply> {
    let id = request.query("blockid").unwrap_or_default();
    match STANDARD.decode(id) {
        Ok(bytes) if (1..=MAX_BLOCK_ID_BYTES).contains(&bytes.len()) => Ok(id.to_owned()),
        _ => Err(BlobErrorCode::invalid_query_parameter("blockid")),
    }
}

/// `PUT /{container}/{blob}?comp=blocklist`
pub(super) fn put_block_list(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::PUT_BLOB)?;
    let checksum = verify_body_checksums(call.request)?;
    let document: BlockListDocument = parse_xml(&call.request.body)?;
    if document.blocks.len() > MAX_BLOCKS {
        return Err(BlobErrorCode::BLOCK_LIST_TOO_LONG.to_reply());
    }
    let properties = parse_blob_properties(call.request);
    if let Some(md5) = &properties.content_md5 {
        check_md5_form(md5)?;
    }
    check_upload(call, &key)?;
    check_is_block_blob(&call.azure().storage, &key)?;
    let (content, blocks) = assemble_blocks(&call.azure().storage, &key, &document.blocks)?;
    let kind = BlobKind::Block;
    let upload = BlobUpload { kind, content, properties, blocks, copy: None };
    let reply = store_upload(call, key, upload, StatusCode::CREATED)?;
    Ok(with_checksum(reply, checksum))
}

/// The content of the listed blocks. A single block is shared, not copied.
fn assemble_blocks(
    storage: &BlobStore,
    key: &BlobKey,
    references: &[BlockReference],
) -> Result<(Bytes, Vec<CommittedBlock>), BlobErrorCode> {
    let committed = committed_blocks(storage, key);
    let staged = |id: &str| {
        let key = StagedBlockKey { blob: key.clone(), id: id.to_owned() };
        storage.staged_block(&key).cloned()
    };
    let mut parts = Vec::with_capacity(references.len());
    let mut blocks = Vec::with_capacity(references.len());
    for reference in references {
        let (id, part) = match reference {
            BlockReference::Committed(id) => (id, committed.get(id.as_str()).cloned()),
            BlockReference::Uncommitted(id) => (id, staged(id)),
            BlockReference::Latest(id) => {
                (id, staged(id).or_else(|| committed.get(id.as_str()).cloned()))
            }
        };
        let part = part.ok_or(BlobErrorCode::INVALID_BLOCK_LIST)?;
        blocks.push(CommittedBlock { id: id.clone(), length: part.len() });
        parts.push(part);
    }
    let content = match parts.as_slice() {
        [part] => part.clone(),
        parts => {
            let length = parts.iter().map(Bytes::len).sum();
            let mut content = BytesMut::with_capacity(length);
            for part in parts {
                content.extend_from_slice(part);
            }
            content.freeze()
        }
    };
    Ok((content, blocks))
}

/// The committed blocks of a blob by id, as parts of its content.
fn committed_blocks<'s>(storage: &'s BlobStore, key: &BlobKey) -> HashMap<&'s str, Bytes> {
    let content = storage.content(key);
    let blocks = storage.blob(key).map_or(&[][..], |blob| &blob.blocks);
    let mut start = 0;
    blocks
        .iter()
        .map(|block| {
            let part = content.slice(start..start + block.length);
            start += block.length;
            (block.id.as_str(), part)
        })
        .collect()
}

/// `GET /{container}/{blob}?comp=blocklist`
pub(super) fn get_block_list(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::READ_BLOB)?;
    reject_snapshot(call.request)?;
    let kind = call.request.query("blocklisttype").unwrap_or("committed").to_ascii_lowercase();
    let (with_committed, with_uncommitted) = match kind.as_str() {
        "committed" => (true, false),
        "uncommitted" => (false, true),
        "all" => (true, true),
        _ => return Err(BlobErrorCode::invalid_query_parameter("blocklisttype")),
    };
    let storage = &call.azure().storage;
    let has_staged = storage.staged_blocks(&key).next().is_some();
    let blob = match storage.blob(&key) {
        None if has_staged => None,
        _ => Some(find_readable_blob(call, &key)?),
    };
    let mut xml = XmlWriter::document();
    xml.open("BlockList");
    let write = |xml: &mut XmlWriter, id: &str, length: usize| {
        xml.open("Block");
        xml.element("Name", id);
        xml.element("Size", length.to_string());
        xml.close("Block");
    };
    if with_committed {
        xml.open("CommittedBlocks");
        for block in blob.map_or(&[][..], |blob| &blob.blocks) {
            write(&mut xml, &block.id, block.length);
        }
        xml.close("CommittedBlocks");
    }
    if with_uncommitted {
        xml.open("UncommittedBlocks");
        for (block, content) in storage.staged_blocks(&key) {
            write(&mut xml, &block.id, content.len());
        }
        xml.close("UncommittedBlocks");
    }
    xml.close("BlockList");
    let length = blob.map_or(0, |blob| blob.length).to_string();
    let reply = ServiceReply::empty(StatusCode::OK).with_header("x-ms-blob-content-length", length);
    let reply = match blob {
        Some(blob) => with_etag(reply, blob.etag, blob.last_modified),
        None => reply,
    };
    Ok(xml.into_reply(reply))
}
