//! XML documents in the bodies of requests.

use serde::de::DeserializeOwned;

use super::error::BlobErrorCode;

/// Parses the document of a request body.
pub(super) fn parse_xml<T: DeserializeOwned>(body: &[u8]) -> Result<T, BlobErrorCode> {
    let text = std::str::from_utf8(body).or(Err(BlobErrorCode::INVALID_XML_DOCUMENT))?;
    let text = text.trim_start_matches('\u{feff}');
    quick_xml::de::from_str(text).or(Err(BlobErrorCode::INVALID_XML_DOCUMENT))
}
