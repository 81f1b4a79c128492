//! Ranges of bytes in `x-ms-range` or `Range`.

use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};

use super::error::BlobErrorCode;

/// A range of a content: `start` is included, `end` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The length of the whole content.
    length: usize,
}

impl ContentRange {
    /// The value of `Content-Range`.
    pub(super) fn header_value(&self) -> String {
        format!("bytes {}-{}/{}", self.start, self.end.saturating_sub(1), self.length)
    }
}

/// The range of a request within a content of `length` bytes; `None` for the whole content.
pub(super) fn parse_range(
    request: &ServiceRequest,
    length: usize,
) -> Result<Option<ContentRange>, ServiceReply> {
    let text = request.header("x-ms-range").or_else(|| request.header("range"));
    range_within(text, length)
}

/// The range in the value of a header within a content of `length` bytes; `None` for the whole content.
pub(super) fn range_within(
    text: Option<&str>,
    length: usize,
) -> Result<Option<ContentRange>, ServiceReply> {
    let Some((first, last)) = text.and_then(parse_bounds) else { return Ok(None) };
    if first >= length || last.is_some_and(|last| last < first) {
        return Err(BlobErrorCode::INVALID_RANGE
            .to_reply()
            .with_header("content-range", format!("bytes */{length}")));
    }
    let end = last.map_or(length, |last| last.saturating_add(1).min(length));
    Ok(Some(ContentRange { start: first, end, length }))
}

/// The first and the last byte of a range such as `bytes=0-9` or `bytes=10-`. The service ignores ranges in
/// other forms.
fn parse_bounds(text: &str) -> Option<(usize, Option<usize>)> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let first = first.trim().parse().ok()?;
    match last.trim() {
        "" => Some((first, None)),
        last => Some((first, Some(last.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_from_a_first_byte_are_ranges() {
        for (text, expected) in [
            ("bytes=0-9", Some((0, Some(9)))),
            ("bytes=10-", Some((10, None))),
            ("bytes=-5", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-9", None),
            ("bytes=a-b", None),
        ] {
            assert_eq!(parse_bounds(text), expected, "{text}");
        }
    }
}
