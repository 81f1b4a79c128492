//! Conditional headers.
//!
//! Reference: "Specifying conditional headers for Blob service operations".

use jiff::Timestamp;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::blob_etag::BlobEtag;

use super::error::BlobErrorCode;
use super::http_date::parse_http_date;

/// The conditional headers of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestConditions {
    matching: Option<EtagCondition>,
    none_matching: Option<EtagCondition>,
    modified_since: Option<Timestamp>,
    unmodified_since: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EtagCondition {
    /// `*`
    Any,
    Tag(String),
}

impl EtagCondition {
    fn parse(text: &str) -> Result<Self, BlobErrorCode> {
        match text.trim() {
            "*" => Ok(Self::Any),
            tag if tag.contains(',') => Err(BlobErrorCode::MULTIPLE_CONDITIONS),
            tag => Ok(Self::Tag(tag.trim_start_matches("W/").trim_matches('"').to_owned())),
        }
    }

    fn matches(&self, etag: BlobEtag) -> bool {
        match self {
            Self::Any => true,
            Self::Tag(tag) => tag.eq_ignore_ascii_case(&etag.to_string()),
        }
    }
}

/// The entity tag and the modification time of an existing resource.
pub(super) type ResourceVersion = (BlobEtag, Timestamp);

impl RequestConditions {
    /// Parses the conditions on the resource of the request.
    pub(super) fn parse(request: &ServiceRequest) -> Result<Self, ServiceReply> {
        Self::parse_headers(
            request,
            ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"],
        )
    }

    /// Parses the conditions on the source of a copy.
    pub(super) fn parse_source(request: &ServiceRequest) -> Result<Self, ServiceReply> {
        Self::parse_headers(
            request,
            [
                "x-ms-source-if-match",
                "x-ms-source-if-none-match",
                "x-ms-source-if-modified-since",
                "x-ms-source-if-unmodified-since",
            ],
        )
    }

    fn parse_headers(request: &ServiceRequest, names: [&str; 4]) -> Result<Self, ServiceReply> {
        if request.header("x-ms-if-tags").is_some() {
            return Err(BlobErrorCode::feature_not_supported("x-ms-if-tags"));
        }
        let [matching, none_matching, modified, unmodified] = names;
        let tag = |name: &str| request.header(name).map(EtagCondition::parse).transpose();
        let time = |name: &str| match request.header(name) {
            None => Ok(None),
            Some(text) => match parse_http_date(text) {
                Some(time) => Ok(Some(time)),
                None => Err(BlobErrorCode::invalid_header(name)),
            },
        };
        Ok(Self {
            matching: tag(matching)?,
            none_matching: tag(none_matching)?,
            modified_since: time(modified)?,
            unmodified_since: time(unmodified)?,
        })
    }

    /// Whether the request requires that the resource does not exist: `If-None-Match: *`.
    pub(super) fn requires_absence(&self) -> bool {
        self.none_matching == Some(EtagCondition::Any)
    }

    /// Checks the conditions of a read operation on an existing resource.
    pub(super) fn check_read(
        &self,
        (etag, modified): ResourceVersion,
    ) -> Result<(), BlobErrorCode> {
        if self.matching.as_ref().is_some_and(|tag| !tag.matches(etag))
            || self.unmodified_since.is_some_and(|since| whole_seconds(modified) > since)
        {
            return Err(BlobErrorCode::CONDITION_NOT_MET);
        }
        if self.requires_absence() {
            return Err(BlobErrorCode::UNSATISFIABLE_CONDITION);
        }
        let is_other = self.none_matching.as_ref().map(|tag| !tag.matches(etag));
        let is_newer = self.modified_since.map(|since| whole_seconds(modified) > since);
        match (is_other, is_newer) {
            (Some(true), _) | (_, Some(true)) | (None, None) => Ok(()),
            _ => Err(BlobErrorCode::NOT_MODIFIED),
        }
    }

    /// Checks the conditions of a write operation on a resource that may exist.
    pub(super) fn check_write(&self, found: Option<ResourceVersion>) -> Result<(), BlobErrorCode> {
        let Some((etag, modified)) = found else {
            // A resource that does not exist has no entity tag.
            return match &self.matching {
                Some(_) => Err(BlobErrorCode::CONDITION_NOT_MET),
                None => Ok(()),
            };
        };
        let is_met = self.matching.as_ref().is_none_or(|tag| tag.matches(etag))
            && self.none_matching.as_ref().is_none_or(|tag| !tag.matches(etag))
            && self.modified_since.is_none_or(|since| whole_seconds(modified) > since)
            && self.unmodified_since.is_none_or(|since| whole_seconds(modified) <= since);
        if is_met { Ok(()) } else { Err(BlobErrorCode::CONDITION_NOT_MET) }
    }
}

/// The time in whole seconds, as in `Last-Modified`.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
