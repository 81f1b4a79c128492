//! Index tags of blobs.

use std::collections::BTreeMap;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use serde::Deserialize;

use super::access::authorize_blob;
use super::blob_reads::find_readable_blob;
use super::checksum::verify_body_checksums;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::write_checks::check_change;
use super::xml_body::parse_xml;
use super::xml_writer::XmlWriter;

type BlobTags = BTreeMap<String, String>;

/// The maximum number of tags of a blob.
const MAX_TAGS: usize = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TagsDocument {
    tag_set: TagSet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TagSet {
    tag: Vec<Tag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Tag {
    key: String,
    value: String,
}

/// `GET /{container}/{blob}?comp=tags`
pub(super) fn get_blob_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::READ_TAGS)?;
    let blob = find_readable_blob(call, &key)?;
    let mut xml = XmlWriter::document();
    xml.open("Tags");
    write_tag_set(&mut xml, &blob.tags);
    xml.close("Tags");
    Ok(xml_reply(StatusCode::OK, xml))
}

/// Writes the element `TagSet`.
pub(super) fn write_tag_set(xml: &mut XmlWriter, tags: &BlobTags) {
    xml.open("TagSet");
    for (key, value) in tags {
        xml.open("Tag");
        xml.element("Key", key);
        xml.element("Value", value);
        xml.close("Tag");
    }
    xml.close("TagSet");
}

/// `PUT /{container}/{blob}?comp=tags`: does not change the entity tag.
pub(super) fn set_blob_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::WRITE_TAGS)?;
    verify_body_checksums(call.request)?;
    let document: TagsDocument = parse_xml(&call.request.body)?;
    let tags = document.tag_set.tag.into_iter().map(|tag| (tag.key, tag.value));
    let tags = check_tags(tags)?;
    check_change(call, &key)?;
    let storage = &mut call.azure_mut().storage;
    storage.blob_mut(&key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?.tags = tags;
    Ok(ServiceReply::empty(StatusCode::NO_CONTENT))
}

/// The tags in `x-ms-tags`, in the form of a query.
pub(super) fn parse_tags_header(request: &ServiceRequest) -> Result<BlobTags, BlobErrorCode> {
    let text = request.header("x-ms-tags").unwrap_or_default();
    check_tags(url::form_urlencoded::parse(text.as_bytes()).into_owned())
}

/// Checks the names, the values and the number of tags. Reference: "Setting blob index tags".
fn check_tags(given: impl Iterator<Item = (String, String)>) -> Result<BlobTags, BlobErrorCode> {
    let is_valid =
        |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || " +-./:=_".contains(c));
    let mut tags = BlobTags::new();
    for (key, value) in given {
        if key.is_empty() {
            return Err(BlobErrorCode::EMPTY_TAG_NAME);
        }
        if key.len() > 128 || value.len() > 256 {
            return Err(BlobErrorCode::TAGS_TOO_LARGE);
        }
        if !is_valid(&key) || !is_valid(&value) {
            return Err(BlobErrorCode::INVALID_TAGS);
        }
        if tags.insert(key, value).is_some() {
            return Err(BlobErrorCode::DUPLICATE_TAG_NAMES);
        }
    }
    if tags.len() > MAX_TAGS { Err(BlobErrorCode::TAGS_TOO_LARGE) } else { Ok(tags) }
}
