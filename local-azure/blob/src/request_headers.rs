//! Request headers that several operations share.

use jiff::Timestamp;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::container::BlobMetadata;
use lanyard_emulator_state::storage::stored_blob::{AccessTier, ContentProperties, ExplicitTier};
use uuid::Uuid;

use super::error::BlobErrorCode;

/// The maximum size of metadata, names and values together.
const MAX_METADATA_BYTES: usize = 8 << 10;

/// The metadata in the headers `x-ms-meta-*`.
pub(super) fn parse_metadata(request: &ServiceRequest) -> Result<BlobMetadata, BlobErrorCode> {
    let mut metadata = BlobMetadata::new();
    for (header, value) in &request.headers {
        let Some(name) = header.as_str().strip_prefix("x-ms-meta-") else { continue };
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let value = value.to_str().or(Err(BlobErrorCode::INVALID_METADATA))?;
        if !is_identifier {
            return Err(BlobErrorCode::INVALID_METADATA);
        }
        metadata.insert(name.to_owned(), value.trim().to_owned());
    }
    let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MAX_METADATA_BYTES { Err(BlobErrorCode::METADATA_TOO_LARGE) } else { Ok(metadata) }
}

/// The id in a header such as `x-ms-lease-id`, if the request has it.
pub(super) fn parse_lease_id(
    request: &ServiceRequest,
    name: &str,
) -> Result<Option<Uuid>, ServiceReply> {
    match request.header(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(id) => Ok(Some(id)),
            Err(_) => Err(BlobErrorCode::invalid_header(name)),
        },
    }
}

/// The properties in the headers `x-ms-blob-*`.
pub(super) fn parse_blob_properties(request: &ServiceRequest) -> ContentProperties {
    let text = |name| request.header(name).filter(|text| !text.is_empty()).map(str::to_owned);
    ContentProperties {
        content_type: text("x-ms-blob-content-type"),
        content_encoding: text("x-ms-blob-content-encoding"),
        content_language: text("x-ms-blob-content-language"),
        content_disposition: text("x-ms-blob-content-disposition"),
        cache_control: text("x-ms-blob-cache-control"),
        content_md5: text("x-ms-blob-content-md5"),
    }
}

/// The access tier in `x-ms-access-tier`.
pub(super) fn parse_tier(
    request: &ServiceRequest,
    now: Timestamp,
) -> Result<Option<ExplicitTier>, ServiceReply> {
    let Some(text) = request.header("x-ms-access-tier") else { return Ok(None) };
    if text.eq_ignore_ascii_case("archive") {
        return Err(BlobErrorCode::feature_not_supported("the access tier Archive"));
    }
    match AccessTier::parse(text) {
        Some(tier) => Ok(Some(ExplicitTier { tier, changed: now })),
        None => Err(BlobErrorCode::invalid_header("x-ms-access-tier")),
    }
}

/// Rejects headers of features that change the result of a write and that the emulator does not implement.
pub(super) fn reject_unsupported_headers(request: &ServiceRequest) -> Result<(), ServiceReply> {
    const UNSUPPORTED: [&str; 6] = [
        "x-ms-encryption-key",
        "x-ms-encryption-scope",
        "x-ms-immutability-policy-until-date",
        "x-ms-immutability-policy-mode",
        "x-ms-legal-hold",
        "x-ms-source-if-tags",
    ];
    match UNSUPPORTED.into_iter().find(|name| request.headers.contains_key(*name)) {
        Some(name) => Err(BlobErrorCode::feature_not_supported(name)),
        None => Ok(()),
    }
}

/// The number in a query parameter such as `maxresults`, between 1 and `most`.
pub(super) fn parse_page_size(
    request: &ServiceRequest,
    most: usize,
) -> Result<usize, ServiceReply> {
    match request.query("maxresults").map(str::parse::<usize>) {
        None => Ok(most),
        Some(Ok(0)) => Err(BlobErrorCode::OUT_OF_RANGE_QUERY_PARAMETER
            .with_detail("QueryParameterName", "maxresults")),
        Some(Ok(size)) => Ok(size.min(most)),
        Some(Err(_)) => Err(BlobErrorCode::invalid_query_parameter("maxresults")),
    }
}

/// The values of the query parameter `include`. Fails for a value that is not in `known`.
pub(super) fn parse_include<'a>(
    request: &'a ServiceRequest,
    known: &[&str],
) -> Result<Vec<&'a str>, ServiceReply> {
    let values: Vec<_> = request
        .query("include")
        .unwrap_or_default()
        .split(',')
        .filter(|value| !value.is_empty())
        .collect();
    if values.iter().all(|value| known.contains(value)) {
        Ok(values)
    } else {
        Err(BlobErrorCode::invalid_query_parameter("include"))
    }
}
