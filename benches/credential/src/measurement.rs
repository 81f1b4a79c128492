//! One measured number, and the statistics that it is made with.

use std::time::Duration;

use serde::Serialize;

/// One number about one library. What it should be is not known here.
#[derive(Debug, Serialize)]
pub struct Measurement {
    /// The library and its version.
    pub subject: &'static str,
    /// What was measured; the same word for every library.
    pub metric: &'static str,
    /// The unit of `value`.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
}

impl Measurement {
    /// A number of things.
    pub fn count(
        subject: &'static str,
        metric: &'static str,
        unit: &'static str,
        value: f64,
    ) -> Self {
        Self { subject, metric, unit, value }
    }

    /// A time in nanoseconds.
    pub fn nanoseconds(subject: &'static str, metric: &'static str, value: f64) -> Self {
        Self { subject, metric, unit: "ns", value }
    }

    /// A time in milliseconds.
    pub fn milliseconds(subject: &'static str, metric: &'static str, value: Duration) -> Self {
        Self { subject, metric, unit: "ms", value: value.as_secs_f64() * 1e3 }
    }
}

/// The middle of the samples.
pub fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The sample that the given part of all samples does not exceed (nearest rank).
pub fn quantile(samples: &mut [f64], part: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let rank = (part * samples.len() as f64).ceil() as usize;
    samples.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let mut samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        assert_eq!(median(&mut samples), 500.0);
        assert_eq!(quantile(&mut samples, 0.999), 999.0);
        assert_eq!(quantile(&mut samples, 1.0), 1_000.0);
        assert_eq!(quantile(&mut [7.0], 0.999), 7.0);
        assert!(median(&mut []).is_nan());
    }
}
