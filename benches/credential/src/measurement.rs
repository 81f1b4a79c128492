//! One measured number, and the statistics that it is made with.

use std::time::Duration;

use serde::Serialize;

/// One number about one library. What it should be is not known here.
#[derive(Debug, Serialize)]
pub struct CredentialMeasurement {
    /// The library and its version.
    pub subject: &'static str,
    /// What was measured; the same word for every library.
    pub metric: &'static str,
    /// The unit of `value`.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
}

impl CredentialMeasurement {
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
    quantile(samples, 500)
}

/// The sample that so many of a thousand samples do not exceed (nearest rank).
pub fn quantile(samples: &mut [f64], of_thousand: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let rank = (samples.len() * of_thousand).div_ceil(1_000);
    samples.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// A number of things as a value; none of them is counted beyond 32 bits.
pub fn count_as_f64(things: usize) -> f64 {
    u32::try_from(things).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_by_nearest_rank() {
        let mut samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let cases = [(500, 500.0), (999, 999.0), (1_000, 1_000.0), (1, 1.0)];
        for (of_thousand, expected) in cases {
            let difference = quantile(&mut samples, of_thousand) - expected;
            assert!(difference.abs() < f64::EPSILON, "{of_thousand}");
        }
        assert!((quantile(&mut [7.0], 999) - 7.0).abs() < f64::EPSILON);
        assert!(median(&mut []).is_nan());
    }
}
