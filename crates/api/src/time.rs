//! Times as Kubernetes writes them.

use jiff::Timestamp;

/// The time as `metav1.Time` keeps it: without parts of a second, which are cut and not rounded, so
/// that no time is told before it has come.
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
