//! Durations in Go's syntax, which flags and annotations of Kubernetes components use.

use std::time::Duration;

/// Parses a duration as Go's `time.ParseDuration` does, without a sign: one or more pairs of decimal
/// number and unit (`90s`, `1h30m`, `1.5h`); `0` needs no unit. Returns `None` for any other text and
/// for durations that do not fit into 64 bits of nanoseconds.
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (amount, after) = rest.split_at(number);
        let unit_length = after
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_length);
        nanos = nanos.checked_add(parse_amount(amount, unit_nanos(unit)?)?)?;
        rest = after;
    }
    (!text.is_empty()).then(|| u64::try_from(nanos).ok().map(Duration::from_nanos)).flatten()
}

fn unit_nanos(name: &str) -> Option<u128> {
    Some(match name {
        "ns" => 1,
        // Go accepts both micro signs.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A decimal number times a unit; digits below a nanosecond are truncated.
fn parse_amount(text: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let fraction = fraction.get(..fraction.len().min(MAX_FRACTION_DIGITS))?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = digits(fraction)?.checked_mul(unit)? / scale;
    digits(whole)?.checked_mul(unit)?.checked_add(part)
}

/// Further digits are less than a nanosecond, even of an hour.
const MAX_FRACTION_DIGITS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_go_parses_them() {
        let cases = [
            ("0", Some(0)),
            ("2m", Some(120_000)),
            ("2m0s", Some(120_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("", None),
            ("2", None),
            ("m", None),
            ("2 m", None),
            ("2d", None),
            ("-2m", None),
            ("1.2.3s", None),
            ("999999999999999999h", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_go_duration(text).map(|it| it.as_millis()), millis, "{text}");
        }
    }
}
