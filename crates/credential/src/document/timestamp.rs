//! A strict parser for RFC 3339 timestamps.

use jiff::Timestamp;

/// Parses `2026-01-02T03:04:05Z`, with a fraction of any length and an offset in place of `Z`.
///
/// General time parsers accept more (annotations, spaces, short offsets), which the Go readers of the same
/// file reject; so the form is checked first. Digits beyond the nanosecond are truncated, as in Go.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (seconds, rest) = text.split_at_checked(SECONDS_PATTERN.len())?;
    if !matches_pattern(seconds, SECONDS_PATTERN) {
        return None;
    }
    let (fraction, offset) = match rest.strip_prefix('.') {
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            after.split_at_checked(digits)?
        }
        None => ("", rest),
    };
    let zulu = matches!(offset, "Z" | "z");
    if !zulu && !matches_pattern(offset, "+00:00") && !matches_pattern(offset, "-00:00") {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{seconds}{point}{fraction}{offset}").parse().ok()
}

const SECONDS_PATTERN: &str = "0000-00-00T00:00:00";

/// Whether `text` matches `form`, in which `0` stands for any digit.
fn matches_pattern(text: &str, form: &str) -> bool {
    text.len() == form.len()
        && text.bytes().zip(form.bytes()).all(|(byte, wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            _ => byte.eq_ignore_ascii_case(&wanted),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_rfc_3339_is_read() {
        let cases = [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05Z"),
            ("2026-01-02T05:34:05+02:30", "2026-01-02T03:04:05Z"),
            ("2026-01-01T22:04:05-05:00", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.5Z"),
            ("2026-01-02T03:04:05.123456789123Z", "2026-01-02T03:04:05.123456789Z"),
            ("2026-01-02T03:04:05.1234567+00:00", "2026-01-02T03:04:05.1234567Z"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_timestamp(text), Some(expected.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn times_that_go_rejects_are_rejected() {
        let cases = [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05+00",
            "2026-01-02T03:04:05+0000",
            "2026-01-02T03:04:05Z[UTC]",
            "2026-13-02T03:04:05Z",
            "2026-01-32T03:04:05Z",
            "2026-01-02T03:04:05Z ",
            "1767323045",
            "２026-01-02T03:04:05Z",
        ];
        for text in cases {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
