//! Times of the SDK in the form of ours.

use azure_core::time::OffsetDateTime;
use jiff::Timestamp;

/// RFC 3339 in UTC, to the second.
pub(crate) fn rfc3339(time: OffsetDateTime) -> String {
    Timestamp::from_second(time.unix_timestamp()).map_or_else(|_| "-".to_owned(), |t| t.to_string())
}
