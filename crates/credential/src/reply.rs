//! Parses error responses of Azure services and of the gateways in front of them.
//!
//! The body of a response is untrusted text. It may echo the request with its bearer token, and several
//! header formats carry the retry delay. All code that displays or obeys a response uses this module.

mod service_message;

use std::time::Duration;

use azure_core::http::headers::{
    HeaderName, Headers, RETRY_AFTER, RETRY_AFTER_MS, X_MS_RETRY_AFTER_MS,
};
use azure_core::time::parse_rfc7231;
use jiff::Timestamp;

pub(crate) use self::service_message::MAX_MESSAGE_LENGTH;
pub use self::service_message::service_message;
use crate::transport::redact;

/// The requested retry delay: milliseconds (`x-ms-retry-after-ms` and `retry-after-ms`, Azure's own headers)
/// before seconds or a date (`Retry-After`, RFC 9110, 10.2.3).
///
/// A date is measured against the `Date` header of the same response, so that no clock has to be correct;
/// without that header against `now`, the local time of arrival. Zero, past dates and unreadable values are
/// ignored, and the next header is used.
pub fn retry_after(headers: &Headers, now: Timestamp) -> Option<Duration> {
    let date = header_text(headers, &HeaderName::from_static("date"))
        .and_then(|date| parse_rfc7231(date).ok())
        .and_then(|date| Timestamp::from_second(date.unix_timestamp()).ok());
    let now = date.unwrap_or(now);
    let milliseconds = [X_MS_RETRY_AFTER_MS, RETRY_AFTER_MS]
        .into_iter()
        .filter_map(|name| header_text(headers, &name)?.parse().ok())
        .find(|milliseconds| *milliseconds > 0);
    if let Some(milliseconds) = milliseconds {
        return Some(Duration::from_millis(milliseconds));
    }
    let pause = header_text(headers, &RETRY_AFTER)?;
    let seconds = pause.parse().ok().or_else(|| seconds_until(pause, now))?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Like [`retry_after`], without the local clock: a date is ignored if the response has no `Date` header.
pub fn retry_after_from_headers(headers: &Headers) -> Option<Duration> {
    retry_after(headers, Timestamp::MAX)
}

fn header_text<'a>(headers: &'a Headers, name: &HeaderName) -> Option<&'a str> {
    headers.get_optional_str(name).map(str::trim)
}

/// The seconds until an HTTP date.
fn seconds_until(date: &str, now: Timestamp) -> Option<u64> {
    let date = parse_rfc7231(date).ok()?;
    u64::try_from(date.unix_timestamp() - now.as_second()).ok()
}

/// The beginning of a body as one readable line of at most 400 bytes, with everything redacted that looks
/// like a token, an assertion or a key.
pub fn excerpt(body: &[u8]) -> String {
    excerpt_text(&String::from_utf8_lossy(body))
}

/// Like [`excerpt`], for parsed text, for example an error's code or message.
pub fn excerpt_text(text: &str) -> String {
    excerpt_redacting(text, &[])
}

/// Like [`excerpt_text`], and also redacts the given secrets of the request, regardless of their form.
pub fn excerpt_redacting(text: &str, secrets: &[&str]) -> String {
    // Truncate after redaction: a truncated token would not be recognised.
    redact::excerpt(&redact::redact(text, secrets))
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestHeaderPairs = &'static [(&'static str, &'static str)];

    fn read(pairs: TestHeaderPairs) -> Option<Duration> {
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert(*name, *value);
        }
        retry_after(&headers, "2026-11-21T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn retry_after_is_read_in_every_form() {
        let cases: [(TestHeaderPairs, Option<u64>); 15] = [
            (&[], None),
            (&[("retry-after", "60")], Some(60_000)),
            (&[("retry-after", " 7 ")], Some(7_000)),
            (&[("retry-after-ms", "250")], Some(250)),
            (&[("x-ms-retry-after-ms", "1500")], Some(1_500)),
            (&[("retry-after", "2"), ("retry-after-ms", "50")], Some(50)),
            (&[("retry-after", "Sat, 21 Nov 2026 12:01:00 GMT")], Some(60_000)),
            (&[("retry-after", "Sat, 21 Nov 2026 11:00:00 GMT")], None),
            // The local clock is an hour behind.
            (
                &[
                    ("retry-after", "Sat, 21 Nov 2026 13:00:30 GMT"),
                    ("date", "Sat, 21 Nov 2026 13:00:00 GMT"),
                ],
                Some(30_000),
            ),
            (&[("retry-after", "0")], None),
            (&[("retry-after", "2"), ("retry-after-ms", "0")], Some(2_000)),
            (&[("x-ms-retry-after-ms", "0"), ("retry-after-ms", "9")], Some(9)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-5")], None),
            (&[("retry-after", "3"), ("retry-after-ms", "soon")], Some(3_000)),
        ];
        for (pairs, expected) in cases {
            assert_eq!(read(pairs), expected.map(Duration::from_millis), "{pairs:?}");
        }
    }

    #[test]
    fn echoed_token_is_redacted_and_the_page_text_kept() {
        let token = format!("eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.{}.{}", "p".repeat(43), "sig");
        let page = format!(
            "<html>\r\n<h1>502 Bad Gateway</h1>\n<pre>GET /secrets/x\nAuthorization: Bearer {token}</pre>"
        );
        let shown = excerpt(page.as_bytes());
        assert!(shown.contains("502 Bad Gateway") && !shown.contains('\n'), "{shown}");
        for part in token.split('.') {
            assert!(!shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn authorization_header_values_are_always_redacted() {
        for line in ["Authorization: Bearer opaque.t/k~n", "authorization: bearer opaque.t/k~n"] {
            let shown = excerpt_text(line);
            assert!(shown.ends_with("[redacted]") && !shown.contains("opaque"), "{shown}");
        }
        let challenge = "Bearer authorization=\"https://login.example/t\"";
        assert_eq!(excerpt_text(challenge), challenge);
        assert_eq!(excerpt_text("a bearer token is needed"), "a bearer token is needed");
    }

    #[test]
    fn truncated_excerpt_contains_no_partial_token() {
        let text = format!("{} {}", "word ".repeat(76), "Q".repeat(2_000));
        let shown = excerpt(text.as_bytes());
        assert!(shown.len() <= 400 + "…".len() && !shown.contains("QQ"), "{shown}");
    }

    #[test]
    fn binary_bodies_become_readable_excerpts() {
        assert_eq!(excerpt(b"\xff\x00bad\x1b[31m"), "\u{fffd} bad [31m");
        assert_eq!(excerpt(b""), "");
    }
}
