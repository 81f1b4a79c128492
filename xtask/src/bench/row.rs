//! Compares measurements with those of peers and with goals.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// One measurement of one library, as the programs in `benches/` report it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ReportedMeasurement {
    pub(super) subject: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: f64,
}

/// The goal of one of lanyard's measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MetricGoal {
    /// No goal; the measurement is for comparison only.
    None,
    AtMost(f64),
    Exactly(f64),
    /// At most this many times another measurement of lanyard.
    AtMostTimes(f64, &'static str),
    /// At least this many times another measurement of lanyard.
    AtLeastTimes(f64, &'static str),
    /// At most this many times the peer's measurement, and at most `limit` if it is set.
    AtMostOfPeer {
        factor: f64,
        limit: Option<f64>,
    },
    /// At least this many times the peer's measurement.
    AtLeastOfPeer(f64),
}

/// A library that lanyard is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BenchPeer {
    pub(super) name: &'static str,
    /// Why it was not measured.
    pub(super) absence_reason: Option<&'static str>,
}

/// A metric, its goal, and the peers with the same metric.
#[derive(Debug, Clone)]
pub(super) struct BenchMetric {
    pub(super) name: &'static str,
    pub(super) goal: MetricGoal,
    pub(super) peers: Vec<BenchPeer>,
}

/// One row of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BenchRow {
    metric: &'static str,
    unit: String,
    ours: f64,
    peer: Option<String>,
    peer_value: Option<f64>,
    /// Lanyard's value divided by the peer's.
    ratio: Option<f64>,
    goal: Option<String>,
    met: Option<bool>,
}

/// Measurements by library and metric.
struct MeasurementIndex<'a>(HashMap<(&'a str, &'a str), &'a ReportedMeasurement>);

impl MeasurementIndex<'_> {
    fn find(&self, subject: &str, metric: &str) -> Result<&ReportedMeasurement, String> {
        let found = self.0.get(&(subject, metric)).copied().filter(|it| it.value.is_finite());
        found.ok_or_else(|| format!("{subject}: {metric}"))
    }
}

/// One row for each metric and peer, in the order of the metrics.
///
/// # Errors
///
/// The missing measurements.
pub(super) fn compare_measurements(
    ourselves: &str,
    metrics: &[BenchMetric],
    measurements: &[ReportedMeasurement],
) -> Result<Vec<BenchRow>, Vec<String>> {
    let keyed = measurements.iter().map(|it| ((it.subject.as_str(), it.metric.as_str()), it));
    let numbers = MeasurementIndex(keyed.collect());
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for metric in metrics {
        match metric_rows(ourselves, metric, &numbers) {
            Ok(found) => rows.extend(found),
            Err(problem) => missing.push(problem),
        }
    }
    if missing.is_empty() { Ok(rows) } else { Err(missing) }
}

fn metric_rows(
    ourselves: &str,
    metric: &BenchMetric,
    numbers: &MeasurementIndex<'_>,
) -> Result<Vec<BenchRow>, String> {
    let ours = numbers.find(ourselves, metric.name)?;
    let limit = match metric.goal {
        // Requires the peer's measurement.
        MetricGoal::None | MetricGoal::AtMostOfPeer { .. } | MetricGoal::AtLeastOfPeer(_) => None,
        MetricGoal::AtMost(value) | MetricGoal::Exactly(value) => Some(value),
        MetricGoal::AtMostTimes(factor, of) | MetricGoal::AtLeastTimes(factor, of) => {
            Some(factor * numbers.find(ourselves, of)?.value)
        }
    };
    let alone = BenchRow {
        metric: metric.name,
        unit: ours.unit.clone(),
        ours: ours.value,
        peer: None,
        peer_value: None,
        ratio: None,
        goal: metric.goal.to_text(),
        met: limit.map(|limit| metric.goal.is_met(ours.value, limit)),
    };
    if metric.peers.is_empty() {
        return Ok(vec![alone]);
    }
    metric.peers.iter().map(|peer| peer_row(&alone, metric.goal, peer, numbers)).collect()
}

fn peer_row(
    alone: &BenchRow,
    goal: MetricGoal,
    peer: &BenchPeer,
    numbers: &MeasurementIndex<'_>,
) -> Result<BenchRow, String> {
    if let Some(absence) = peer.absence_reason {
        return Ok(BenchRow { peer: Some(format!("{} ({absence})", peer.name)), ..alone.clone() });
    }
    let theirs = numbers.find(peer.name, alone.metric)?;
    if theirs.unit != alone.unit {
        return Err(format!("{}: {} in {}", peer.name, alone.metric, alone.unit));
    }
    let ratio = (theirs.value > 0.0).then(|| alone.ours / theirs.value);
    let met = match goal {
        MetricGoal::AtMostOfPeer { factor, limit } => {
            let limit = limit.unwrap_or(f64::INFINITY).min(factor * theirs.value);
            Some(goal.is_met(alone.ours, limit))
        }
        MetricGoal::AtLeastOfPeer(factor) => Some(goal.is_met(alone.ours, factor * theirs.value)),
        _ => alone.met,
    };
    let peer = Some(peer.name.to_owned());
    Ok(BenchRow { peer, peer_value: Some(theirs.value), ratio, met, ..alone.clone() })
}

impl MetricGoal {
    fn is_met(self, value: f64, limit: f64) -> bool {
        match self {
            Self::None => true,
            Self::AtMost(_) | Self::AtMostTimes(..) | Self::AtMostOfPeer { .. } => value <= limit,
            Self::AtLeastTimes(..) | Self::AtLeastOfPeer(_) => value >= limit,
            Self::Exactly(_) => (value - limit).abs() < f64::EPSILON,
        }
    }

    fn to_text(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::AtMost(limit) => Some(format!("≤ {limit}")),
            Self::Exactly(value) => Some(format!("= {value}")),
            Self::AtMostTimes(factor, of) => Some(format!("≤ {factor} × {of}")),
            Self::AtLeastTimes(factor, of) => Some(format!("≥ {factor} × {of}")),
            Self::AtLeastOfPeer(factor) => Some(format!("≥ {factor} × peer's")),
            Self::AtMostOfPeer { factor, limit: None } => Some(format!("≤ {factor} × peer's")),
            Self::AtMostOfPeer { factor, limit: Some(limit) } => {
                Some(format!("≤ {limit}, ≤ {factor} × peer's"))
            }
        }
    }
}

/// Formats the rows as a table, and the number of met goals.
pub(super) fn format_table(rows: &[BenchRow]) -> Vec<String> {
    let heads = ["metric", "unit", "ours", "peer", "peer's", "ratio", "goal", "met"];
    let mut cells = vec![heads.map(str::to_owned)];
    cells.extend(rows.iter().map(BenchRow::cells));
    let mut widths = [0; 8];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let aligned = |line: &[String; 8]| {
        let padded = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if RIGHT_ALIGNED_COLUMNS.contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = cells.iter().map(aligned).collect();
    let mut goals: HashMap<&str, bool> = HashMap::new();
    for row in rows {
        if let Some(met) = row.met {
            *goals.entry(row.metric).or_insert(true) &= met;
        }
    }
    let met = goals.values().filter(|met| **met).count();
    lines.push(String::new());
    lines.push(format!("{met} of {} goals met", goals.len()));
    lines
}

/// The indexes of the right-aligned columns.
const RIGHT_ALIGNED_COLUMNS: [usize; 3] = [2, 4, 5];

impl BenchRow {
    fn cells(&self) -> [String; 8] {
        let number = |value: Option<f64>| value.map_or_else(String::new, format_number);
        [
            self.metric.to_owned(),
            self.unit.clone(),
            format_number(self.ours),
            self.peer.clone().unwrap_or_default(),
            number(self.peer_value),
            number(self.ratio),
            self.goal.clone().unwrap_or_default(),
            self.met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
        ]
    }
}

/// Formats a number with three significant digits, or with all digits before the decimal point.
fn format_number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 || size == 0.0 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        format!("{value:.4}")
    } else {
        format!("{value:.1e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_PEER: BenchPeer = BenchPeer { name: "peer 1", absence_reason: None };

    fn test_measurement(subject: &str, metric: &str, value: f64) -> ReportedMeasurement {
        ReportedMeasurement {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: "ns".to_owned(),
            value,
        }
    }

    fn test_metric(name: &'static str, goal: MetricGoal, peers: &[BenchPeer]) -> BenchMetric {
        BenchMetric { name, goal, peers: peers.to_vec() }
    }

    #[test]
    fn goals_are_met_up_to_their_limit_and_not_beyond() {
        let measurements = [test_measurement("us", "a", 100.0), test_measurement("us", "b", 120.0)];
        let cases = [
            (MetricGoal::AtMost(120.0), Some(true)),
            (MetricGoal::AtMost(119.0), Some(false)),
            (MetricGoal::Exactly(120.0), Some(true)),
            (MetricGoal::Exactly(1.0), Some(false)),
            (MetricGoal::AtMostTimes(1.2, "a"), Some(true)),
            (MetricGoal::AtMostTimes(1.1, "a"), Some(false)),
            (MetricGoal::AtLeastTimes(1.2, "a"), Some(true)),
            (MetricGoal::AtLeastTimes(1.3, "a"), Some(false)),
            (MetricGoal::None, None),
        ];
        for (goal, met) in cases {
            let rows = compare_measurements("us", &[test_metric("b", goal, &[])], &measurements)
                .expect("all measurements exist");
            assert_eq!(rows[0].met, met, "{goal:?}");
        }
    }

    #[test]
    fn peer_goal_applies_factor_and_absolute_limit() {
        let measurements =
            [test_measurement("us", "a", 50.0), test_measurement("peer 1", "a", 200.0)];
        for (factor, limit, met) in [
            (0.25, None, true),
            (0.2, None, false),
            (0.25, Some(50.0), true),
            (0.25, Some(49.0), false),
        ] {
            let goal = MetricGoal::AtMostOfPeer { factor, limit };
            let rows =
                compare_measurements("us", &[test_metric("a", goal, &[TEST_PEER])], &measurements);
            assert_eq!(rows.expect("all measurements exist")[0].met, Some(met), "{goal:?}");
        }
    }

    #[test]
    fn at_least_of_peer_goal_compares_with_the_peer() {
        let measurements =
            [test_measurement("us", "a", 80.0), test_measurement("peer 1", "a", 100.0)];
        for (factor, met) in [(0.8, true), (0.81, false)] {
            let metrics = [test_metric("a", MetricGoal::AtLeastOfPeer(factor), &[TEST_PEER])];
            let rows = compare_measurements("us", &metrics, &measurements)
                .expect("all measurements exist");
            assert_eq!(rows[0].met, Some(met), "{factor}");
        }
    }

    #[test]
    fn row_contains_own_and_peer_values() {
        let measurements =
            [test_measurement("us", "a", 50.0), test_measurement("peer 1", "a", 200.0)];
        let rows = compare_measurements(
            "us",
            &[test_metric("a", MetricGoal::AtMost(60.0), &[TEST_PEER])],
            &measurements,
        )
        .expect("all measurements exist");
        let json = serde_json::to_value(&rows).expect("rows are JSON");
        let expected = serde_json::json!([{
            "metric": "a", "unit": "ns", "ours": 50.0, "peer": "peer 1", "peer_value": 200.0,
            "ratio": 0.25, "goal": "≤ 60", "met": true,
        }]);
        assert_eq!(json, expected);
    }

    #[test]
    fn absent_peer_has_a_row_with_the_reason() {
        let absent = BenchPeer { name: "peer 1", absence_reason: Some("Go is not installed") };
        let rows = compare_measurements(
            "us",
            &[test_metric("a", MetricGoal::None, &[absent])],
            &[test_measurement("us", "a", 1.0)],
        )
        .expect("all measurements exist");
        assert_eq!(rows[0].peer.as_deref(), Some("peer 1 (Go is not installed)"));
        assert_eq!(rows[0].peer_value, None);
    }

    #[test]
    fn missing_measurements_are_reported() {
        let metrics = [
            test_metric("a", MetricGoal::None, &[TEST_PEER]),
            test_metric("b", MetricGoal::None, &[]),
        ];
        let missing = compare_measurements("us", &metrics, &[test_measurement("us", "a", 1.0)]);
        assert_eq!(missing, Err(vec!["peer 1: a".to_owned(), "us: b".to_owned()]));
        let empty = [test_measurement("us", "b", f64::NAN)];
        assert_eq!(
            compare_measurements("us", &metrics[1..], &empty),
            Err(vec!["us: b".to_owned()])
        );
    }

    #[test]
    fn a_peer_in_another_unit_is_not_compared() {
        let other =
            ReportedMeasurement { unit: "ms".to_owned(), ..test_measurement("peer 1", "a", 1.0) };
        let metrics = [test_metric("a", MetricGoal::None, &[TEST_PEER])];
        assert!(
            compare_measurements("us", &metrics, &[test_measurement("us", "a", 1.0), other])
                .is_err()
        );
    }

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        let cases = [
            (1_002_045.4, "1002045"),
            (143.2, "143"),
            (52.96, "53.0"),
            (2.0, "2.00"),
            (0.0, "0.00"),
            (0.0567, "0.0567"),
            (0.000_000_04, "4.0e-8"),
        ];
        for (value, text) in cases {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn goal_with_two_peers_must_be_met_against_both() {
        let other = BenchPeer { name: "peer 2", absence_reason: None };
        let measurements = [
            test_measurement("us", "a", 50.0),
            test_measurement("peer 1", "a", 25.0),
            test_measurement("peer 2", "a", 200.0),
        ];
        let goal = MetricGoal::AtMostOfPeer { factor: 1.0, limit: None };
        let rows = compare_measurements(
            "us",
            &[test_metric("a", goal, &[TEST_PEER, other])],
            &measurements,
        );
        let lines = format_table(&rows.expect("all measurements exist"));
        assert_eq!(lines.last().map(String::as_str), Some("0 of 1 goals met"));
    }

    #[test]
    fn the_table_counts_each_goal_once() {
        let other = BenchPeer { name: "peer 2", absence_reason: None };
        let measurements = [
            test_measurement("us", "a", 50.0),
            test_measurement("peer 1", "a", 200.0),
            test_measurement("peer 2", "a", 25.0),
            test_measurement("us", "b", 7.0),
        ];
        let metrics = [
            test_metric("a", MetricGoal::AtMost(60.0), &[TEST_PEER, other]),
            test_metric("b", MetricGoal::AtMost(6.0), &[]),
        ];
        let lines = format_table(
            &compare_measurements("us", &metrics, &measurements).expect("all measurements exist"),
        );
        let expected = [
            "metric  unit  ours  peer    peer's  ratio  goal  met",
            "a       ns    50.0  peer 1     200   0.25  ≤ 60  yes",
            "a       ns    50.0  peer 2    25.0   2.00  ≤ 60  yes",
            "b       ns    7.00                         ≤ 6   NO",
            "",
            "1 of 2 goals met",
        ];
        assert_eq!(lines, expected);
    }
}
