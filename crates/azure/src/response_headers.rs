//! The response headers that callers decide on: polling URLs, pauses, rate limits and ids for support.

use std::str::FromStr;
use std::time::Duration;

use azure_core::http::headers::{HeaderName, Headers};
use lanyard_credential::reply;

/// The headers of a successful reply, as far as callers use them. A header that is absent or unreadable is
/// `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// `Azure-AsyncOperation`: the URL of the status of a long-running operation. It may contain a signature.
    pub azure_async_operation: Option<String>,
    /// `Location`: the URL of the result of a long-running operation. It may contain a signature.
    pub location: Option<String>,
    /// The time until the next request for the same operation, from `x-ms-retry-after-ms`, `retry-after-ms` or
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
    /// `ETag`, with its quotes, for `If-Match`.
    pub etag: Option<String>,
    /// `x-ms-request-id`.
    pub request_id: Option<String>,
    /// `x-ms-correlation-request-id`, which finds the request in the activity log.
    pub correlation_id: Option<String>,
    /// The number of reads that Azure Resource Manager still accepts at once: the smaller one of
    /// `x-ms-ratelimit-remaining-subscription-reads` and `…-subscription-global-reads`.
    pub remaining_reads: Option<u32>,
    /// Like `remaining_reads`, for writes.
    pub remaining_writes: Option<u32>,
    /// Like `remaining_reads`, for deletions.
    pub remaining_deletes: Option<u32>,
}

impl ResponseHeaders {
    pub(crate) fn parse(headers: &Headers) -> Self {
        let text = |name| header_value::<String>(headers, name).filter(|it| !it.is_empty());
        let smaller = |local, global| {
            let values = [local, global].map(|name| header_value::<u32>(headers, name));
            values.into_iter().flatten().min()
        };
        Self {
            azure_async_operation: text("azure-asyncoperation"),
            location: text("location"),
            retry_after: reply::retry_after_from_headers(headers),
            etag: text("etag"),
            request_id: text("x-ms-request-id"),
            correlation_id: text("x-ms-correlation-request-id"),
            remaining_reads: smaller(
                "x-ms-ratelimit-remaining-subscription-reads",
                "x-ms-ratelimit-remaining-subscription-global-reads",
            ),
            remaining_writes: smaller(
                "x-ms-ratelimit-remaining-subscription-writes",
                "x-ms-ratelimit-remaining-subscription-global-writes",
            ),
            remaining_deletes: smaller(
                "x-ms-ratelimit-remaining-subscription-deletes",
                "x-ms-ratelimit-remaining-subscription-global-deletes",
            ),
        }
    }
}

fn header_value<T: FromStr>(headers: &Headers, name: &'static str) -> Option<T> {
    headers.get_optional_str(&HeaderName::from_static(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_become_typed_fields_and_unreadable_ones_are_ignored() {
        let mut headers = Headers::new();
        for (name, value) in [
            ("azure-asyncoperation", "https://management.azure.com/operations/1"),
            ("location", " https://management.azure.com/results/1 "),
            ("retry-after", "7"),
            ("etag", "\"1\""),
            ("x-ms-request-id", "r"),
            ("x-ms-correlation-request-id", "c"),
            ("x-ms-ratelimit-remaining-subscription-reads", "11999"),
            ("x-ms-ratelimit-remaining-subscription-global-reads", "3749"),
            ("x-ms-ratelimit-remaining-subscription-writes", "many"),
            ("x-ms-ratelimit-remaining-subscription-global-deletes", "2999"),
        ] {
            headers.insert(name, value);
        }
        let expected = ResponseHeaders {
            azure_async_operation: Some("https://management.azure.com/operations/1".to_owned()),
            location: Some("https://management.azure.com/results/1".to_owned()),
            retry_after: Some(Duration::from_secs(7)),
            etag: Some("\"1\"".to_owned()),
            request_id: Some("r".to_owned()),
            correlation_id: Some("c".to_owned()),
            remaining_reads: Some(3749),
            remaining_writes: None,
            remaining_deletes: Some(2999),
        };
        assert_eq!(ResponseHeaders::parse(&headers), expected);
        assert_eq!(ResponseHeaders::parse(&Headers::new()), ResponseHeaders::default());
    }
}
