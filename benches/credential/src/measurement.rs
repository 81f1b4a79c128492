//! Measurements and their statistics.

use std::time::Duration;

use serde::Serialize;

/// The value of one metric for one library. The goals are in `xtask/src/bench/credential.rs`.
#[derive(Debug, Serialize)]
pub struct CredentialMeasurement {
    /// The library and its version.
    pub subject: &'static str,
    /// The name of the metric; the same for every library.
    pub metric: &'static str,
    pub unit: &'static str,
    pub value: f64,
}

impl CredentialMeasurement {
    /// A measurement in the given unit.
    pub fn count(
        subject: &'static str,
        metric: &'static str,
        unit: &'static str,
        value: f64,
    ) -> Self {
        Self { subject, metric, unit, value }
    }

    /// A measured time in nanoseconds.
    pub fn nanoseconds(subject: &'static str, metric: &'static str, value: f64) -> Self {
        Self { subject, metric, unit: "ns", value }
    }

    /// A measured time, reported in milliseconds.
    pub fn milliseconds(subject: &'static str, metric: &'static str, value: Duration) -> Self {
        Self { subject, metric, unit: "ms", value: value.as_secs_f64() * 1e3 }
    }
}

/// The median of the samples.
pub fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 500)
}

/// The quantile of the samples in thousandths, by the nearest-rank method. NaN without samples.
pub fn quantile(samples: &mut [f64], per_mille: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let rank = (samples.len() * per_mille).div_ceil(1_000);
    samples.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Converts a count to `f64`; infinity above 32 bits.
pub fn count_as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_uses_nearest_rank() {
        let mut samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let cases = [(500, 500.0), (999, 999.0), (1_000, 1_000.0), (1, 1.0)];
        for (per_mille, expected) in cases {
            let difference = quantile(&mut samples, per_mille) - expected;
            assert!(difference.abs() < f64::EPSILON, "{per_mille}");
        }
        assert!((quantile(&mut [7.0], 999) - 7.0).abs() < f64::EPSILON);
        assert!(median(&mut []).is_nan());
    }
}
