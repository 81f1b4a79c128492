//! The deadline of a request of the API server.

use std::time::Duration;

use tonic::metadata::MetadataMap;

use crate::retry;

/// The time limit of a request without a deadline; API servers always send one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(20);

/// The time that the plugin has for a request: its deadline minus the time for the response.
pub(super) fn request_timeout(metadata: &MetadataMap) -> Duration {
    let header = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
    retry::usable_time(header.and_then(parse_timeout).unwrap_or(DEFAULT_TIMEOUT))
}

/// Parses `grpc-timeout`: at most eight digits and a unit ("gRPC over HTTP/2", Requests).
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_every_unit() {
        let cases = [
            ("3S", Some(3_000_000_000)),
            ("2999967u", Some(2_999_967_000)),
            ("35000m", Some(35_000_000_000)),
            ("1M", Some(60_000_000_000)),
            ("1H", Some(3_600_000_000_000)),
            ("99999999n", Some(99_999_999)),
            ("", None),
            ("S", None),
            ("3", None),
            ("-3S", None),
            ("123456789S", None),
            ("3s", None),
            ("3ä", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_timeout(text).map(|it| it.as_nanos()), expected, "{text}");
        }
    }

    #[test]
    fn timeout_leaves_margin_for_the_reply() {
        let mut metadata = MetadataMap::new();
        assert_eq!(request_timeout(&metadata), Duration::from_millis(19_900));
        metadata.insert("grpc-timeout", "3S".parse().unwrap());
        assert_eq!(request_timeout(&metadata), Duration::from_millis(2_900));
    }
}
