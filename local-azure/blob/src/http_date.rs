//! Dates in HTTP headers and in shared access signatures.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;

/// Formats a time as an HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Parses an HTTP date.
pub(super) fn parse_http_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text.trim()).ok()
}

/// Parses a time of a shared access signature: ISO 8601 in UTC, where the time or its seconds may be absent.
pub(super) fn parse_iso_date(text: &str) -> Option<Timestamp> {
    if let Ok(date) = text.parse::<Date>()
        && text.len() == 10
    {
        return date.to_zoned(TimeZone::UTC).ok().map(|start| start.timestamp());
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read_and_written_in_rfc_1123() {
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        let time = parse_http_date(text).unwrap();
        assert_eq!(time, "1994-11-06T08:49:37Z".parse().unwrap());
        assert_eq!(http_date(time), text);
        for bad in ["", "1994-11-06T08:49:37Z", "Sun, 06 Nov 1994"] {
            assert_eq!(parse_http_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn dates_of_signatures_have_optional_times_and_seconds() {
        for (text, expected) in [
            ("2026-11-21", "2026-11-21T00:00:00Z"),
            ("2026-11-21T12:30Z", "2026-11-21T12:30:00Z"),
            ("2026-11-21T12:30:15Z", "2026-11-21T12:30:15Z"),
            ("2026-11-21T12:30:15.1234567Z", "2026-11-21T12:30:15.1234567Z"),
        ] {
            assert_eq!(parse_iso_date(text), Some(expected.parse().unwrap()), "{text}");
        }
        for bad in ["", "2026", "2026-11-21T12:30", "tomorrow"] {
            assert_eq!(parse_iso_date(bad), None, "{bad}");
        }
    }
}
