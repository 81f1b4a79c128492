//! Formats timestamps of the Azure SDK.

use azure_core::time::OffsetDateTime;
use jiff::Timestamp;

/// Formats a time as RFC 3339 in UTC, with seconds.
pub(crate) fn rfc3339(time: OffsetDateTime) -> String {
    Timestamp::from_second(time.unix_timestamp()).map_or_else(|_| "-".to_owned(), |t| t.to_string())
}
