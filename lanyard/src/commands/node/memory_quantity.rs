//! Amounts of memory in the notation of Kubernetes.

use std::fmt;
use std::str::FromStr;

/// An amount of memory of at least one byte: an integer Kubernetes quantity such as `64Mi`, `2G` or
/// `67108864`. Fractions and exponents are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemoryQuantity(u64);

impl MemoryQuantity {
    pub(super) const fn bytes(self) -> u64 {
        self.0
    }

    pub(super) const fn half(self) -> Self {
        Self(self.0.div_ceil(2))
    }
}

impl FromStr for MemoryQuantity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let message = "give bytes, such as 64Mi or 67108864";
        let digits = text.len() - text.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        let (number, suffix) = text.split_at(digits);
        let factor =
            UNIT_SUFFIXES.iter().find(|(name, _)| *name == suffix).map(|(_, factor)| factor);
        let bytes = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(*factor));
        bytes.filter(|bytes| *bytes > 0).map(Self).ok_or(message)
    }
}

/// Formats the amount in the largest binary unit that represents it exactly.
impl fmt::Display for MemoryQuantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary =
            UNIT_SUFFIXES.iter().filter(|(name, _)| name.is_empty() || name.ends_with('i'));
        let exact = binary.filter(|(_, factor)| self.0.is_multiple_of(*factor));
        let (name, factor) = exact.max_by_key(|(_, factor)| *factor).unwrap_or(&("", 1));
        write!(formatter, "{}{name}", self.0 / factor)
    }
}

const UNIT_SUFFIXES: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_like_kubernetes() {
        let cases = [
            ("1", Some(1)),
            ("134217728", Some(128 << 20)),
            ("64Mi", Some(64 << 20)),
            ("64M", Some(64_000_000)),
            ("1k", Some(1000)),
            ("2Gi", Some(2 << 30)),
            ("16777215Ti", Some(16_777_215 << 40)),
            ("16777216Ti", None),
            ("99999999999999999999", None),
            ("0", None),
            ("0Mi", None),
            ("", None),
            ("Mi", None),
            ("-1", None),
            ("+1", None),
            ("1 Mi", None),
            ("1mi", None),
            ("1m", None),
            ("1K", None),
            ("$(CONTAINER_MEMORY_LIMIT)", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<MemoryQuantity>().ok().map(MemoryQuantity::bytes);
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn quantity_round_trips_through_text() {
        for (bytes, text) in [(1, "1"), (1000, "1000"), (1536 << 10, "1536Ki"), (1 << 30, "1Gi")] {
            assert_eq!(MemoryQuantity(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(MemoryQuantity(bytes)));
        }
    }
}
