//! Timestamps in the precision of the Kubernetes API.

use jiff::Timestamp;

/// Truncates a timestamp to whole seconds, the precision of `metav1.Time`. It never rounds up, so
/// that no reported time lies in the future.
pub fn truncate_to_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_second_are_cut_and_not_rounded() {
        for time in ["2026-01-01T00:00:00.999Z", "2026-01-01T00:00:00Z"] {
            let time: Timestamp = time.parse().unwrap();
            assert_eq!(truncate_to_second(time).to_string(), "2026-01-01T00:00:00Z");
        }
    }
}
