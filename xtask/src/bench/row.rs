//! Compares lanyard's measurements with those of upstream programs and with goals.

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
    /// At most this many times another measurement of an upstream program.
    AtMostTimesUpstream {
        factor: f64,
        program: &'static str,
        metric: &'static str,
    },
    /// At most this many times the upstream value, and at most `limit` if it is set.
    AtMostOfUpstream {
        factor: f64,
        limit: Option<f64>,
    },
    /// At least this many times the upstream value.
    AtLeastOfUpstream(f64),
}

/// A program or library that lanyard is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamProgram {
    pub(super) name: &'static str,
    /// Why it was not measured.
    pub(super) absence_reason: Option<&'static str>,
}

/// A metric, its goal, and the upstream programs with the same metric.
#[derive(Debug, Clone)]
pub(super) struct BenchMetric {
    pub(super) name: &'static str,
    pub(super) goal: MetricGoal,
    pub(super) upstream: Vec<UpstreamProgram>,
}

/// One row of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct BenchRow {
    metric: &'static str,
    unit: String,
    /// Lanyard's value.
    lanyard: f64,
    /// The name of the upstream program, with the reason if it was not measured.
    upstream: Option<String>,
    upstream_value: Option<f64>,
    /// Lanyard's value divided by the upstream value.
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

/// One row for each metric and upstream program, in the order of the metrics.
///
/// # Errors
///
/// The missing measurements.
pub(super) fn compare_measurements(
    lanyard_subject: &str,
    metrics: &[BenchMetric],
    measurements: &[ReportedMeasurement],
) -> Result<Vec<BenchRow>, Vec<String>> {
    let keyed = measurements.iter().map(|it| ((it.subject.as_str(), it.metric.as_str()), it));
    let numbers = MeasurementIndex(keyed.collect());
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for metric in metrics {
        match metric_rows(lanyard_subject, metric, &numbers) {
            Ok(found) => rows.extend(found),
            Err(problem) => missing.push(problem),
        }
    }
    if missing.is_empty() { Ok(rows) } else { Err(missing) }
}

fn metric_rows(
    lanyard_subject: &str,
    metric: &BenchMetric,
    numbers: &MeasurementIndex<'_>,
) -> Result<Vec<BenchRow>, String> {
    let measured = numbers.find(lanyard_subject, metric.name)?;
    let limit = match metric.goal {
        // Requires the upstream value.
        MetricGoal::None
        | MetricGoal::AtMostOfUpstream { .. }
        | MetricGoal::AtLeastOfUpstream(_) => None,
        MetricGoal::AtMost(value) | MetricGoal::Exactly(value) => Some(value),
        MetricGoal::AtMostTimes(factor, of) | MetricGoal::AtLeastTimes(factor, of) => {
            Some(factor * numbers.find(lanyard_subject, of)?.value)
        }
        MetricGoal::AtMostTimesUpstream { factor, program, metric } => {
            Some(factor * numbers.find(program, metric)?.value)
        }
    };
    let alone = BenchRow {
        metric: metric.name,
        unit: measured.unit.clone(),
        lanyard: measured.value,
        upstream: None,
        upstream_value: None,
        ratio: None,
        goal: metric.goal.to_text(),
        met: limit.map(|limit| metric.goal.is_met(measured.value, limit)),
    };
    if metric.upstream.is_empty() {
        return Ok(vec![alone]);
    }
    metric
        .upstream
        .iter()
        .map(|program| upstream_row(&alone, metric.goal, program, numbers))
        .collect()
}

fn upstream_row(
    alone: &BenchRow,
    goal: MetricGoal,
    program: &UpstreamProgram,
    numbers: &MeasurementIndex<'_>,
) -> Result<BenchRow, String> {
    if let Some(absence) = program.absence_reason {
        return Ok(BenchRow {
            upstream: Some(format!("{} ({absence})", program.name)),
            ..alone.clone()
        });
    }
    let found = numbers.find(program.name, alone.metric)?;
    if found.unit != alone.unit {
        return Err(format!("{}: {} in {}", program.name, alone.metric, alone.unit));
    }
    let ratio = (found.value > 0.0).then(|| alone.lanyard / found.value);
    let met = match goal {
        MetricGoal::AtMostOfUpstream { factor, limit } => {
            let limit = limit.unwrap_or(f64::INFINITY).min(factor * found.value);
            Some(goal.is_met(alone.lanyard, limit))
        }
        MetricGoal::AtLeastOfUpstream(factor) => {
            Some(goal.is_met(alone.lanyard, factor * found.value))
        }
        _ => alone.met,
    };
    let upstream = Some(program.name.to_owned());
    Ok(BenchRow { upstream, upstream_value: Some(found.value), ratio, met, ..alone.clone() })
}

impl MetricGoal {
    fn is_met(self, value: f64, limit: f64) -> bool {
        match self {
            Self::None => true,
            Self::AtMost(_)
            | Self::AtMostTimes(..)
            | Self::AtMostTimesUpstream { .. }
            | Self::AtMostOfUpstream { .. } => value <= limit,
            Self::AtLeastTimes(..) | Self::AtLeastOfUpstream(_) => value >= limit,
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
            Self::AtMostTimesUpstream { factor, program, metric } => {
                Some(format!("≤ {factor} × {metric} of {program}"))
            }
            Self::AtLeastOfUpstream(factor) => Some(format!("≥ {factor} × upstream")),
            Self::AtMostOfUpstream { factor, limit: None } => {
                Some(format!("≤ {factor} × upstream"))
            }
            Self::AtMostOfUpstream { factor, limit: Some(limit) } => {
                Some(format!("≤ {limit}, ≤ {factor} × upstream"))
            }
        }
    }
}

/// Formats the rows as a table, and the number of met goals.
pub(super) fn format_table(rows: &[BenchRow]) -> Vec<String> {
    let heads = ["metric", "unit", "lanyard", "upstream", "upstream value", "ratio", "goal", "met"];
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
            format_number(self.lanyard),
            self.upstream.clone().unwrap_or_default(),
            number(self.upstream_value),
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

    const TEST_UPSTREAM: UpstreamProgram =
        UpstreamProgram { name: "other 1", absence_reason: None };

    fn test_measurement(subject: &str, metric: &str, value: f64) -> ReportedMeasurement {
        ReportedMeasurement {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: "ns".to_owned(),
            value,
        }
    }

    fn test_metric(
        name: &'static str,
        goal: MetricGoal,
        upstream: &[UpstreamProgram],
    ) -> BenchMetric {
        BenchMetric { name, goal, upstream: upstream.to_vec() }
    }

    #[test]
    fn goals_are_met_up_to_their_limit_and_not_beyond() {
        let measurements = [
            test_measurement("lanyard", "a", 100.0),
            test_measurement("lanyard", "b", 120.0),
            test_measurement("other 1", "c", 1000.0),
        ];
        let of_other =
            |factor| MetricGoal::AtMostTimesUpstream { factor, program: "other 1", metric: "c" };
        let cases = [
            (of_other(0.12), Some(true)),
            (of_other(0.11), Some(false)),
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
            let rows =
                compare_measurements("lanyard", &[test_metric("b", goal, &[])], &measurements)
                    .expect("all measurements exist");
            assert_eq!(rows[0].met, met, "{goal:?}");
        }
    }

    #[test]
    fn upstream_goal_applies_factor_and_absolute_limit() {
        let measurements =
            [test_measurement("lanyard", "a", 50.0), test_measurement("other 1", "a", 200.0)];
        for (factor, limit, met) in [
            (0.25, None, true),
            (0.2, None, false),
            (0.25, Some(50.0), true),
            (0.25, Some(49.0), false),
        ] {
            let goal = MetricGoal::AtMostOfUpstream { factor, limit };
            let rows = compare_measurements(
                "lanyard",
                &[test_metric("a", goal, &[TEST_UPSTREAM])],
                &measurements,
            );
            assert_eq!(rows.expect("all measurements exist")[0].met, Some(met), "{goal:?}");
        }
    }

    #[test]
    fn at_least_goal_compares_with_the_upstream_value() {
        let measurements =
            [test_measurement("lanyard", "a", 80.0), test_measurement("other 1", "a", 100.0)];
        for (factor, met) in [(0.8, true), (0.81, false)] {
            let metrics =
                [test_metric("a", MetricGoal::AtLeastOfUpstream(factor), &[TEST_UPSTREAM])];
            let rows = compare_measurements("lanyard", &metrics, &measurements)
                .expect("all measurements exist");
            assert_eq!(rows[0].met, Some(met), "{factor}");
        }
    }

    #[test]
    fn row_contains_lanyard_and_upstream_values() {
        let measurements =
            [test_measurement("lanyard", "a", 50.0), test_measurement("other 1", "a", 200.0)];
        let rows = compare_measurements(
            "lanyard",
            &[test_metric("a", MetricGoal::AtMost(60.0), &[TEST_UPSTREAM])],
            &measurements,
        )
        .expect("all measurements exist");
        let json = serde_json::to_value(&rows).expect("rows are JSON");
        let expected = serde_json::json!([{
            "metric": "a", "unit": "ns", "lanyard": 50.0, "upstream": "other 1",
            "upstream_value": 200.0, "ratio": 0.25, "goal": "≤ 60", "met": true,
        }]);
        assert_eq!(json, expected);
    }

    #[test]
    fn absent_upstream_program_has_a_row_with_the_reason() {
        let absent =
            UpstreamProgram { name: "other 1", absence_reason: Some("Go is not installed") };
        let rows = compare_measurements(
            "lanyard",
            &[test_metric("a", MetricGoal::None, &[absent])],
            &[test_measurement("lanyard", "a", 1.0)],
        )
        .expect("all measurements exist");
        assert_eq!(rows[0].upstream.as_deref(), Some("other 1 (Go is not installed)"));
        assert_eq!(rows[0].upstream_value, None);
    }

    #[test]
    fn missing_measurements_are_reported() {
        let metrics = [
            test_metric("a", MetricGoal::None, &[TEST_UPSTREAM]),
            test_metric("b", MetricGoal::None, &[]),
        ];
        let missing =
            compare_measurements("lanyard", &metrics, &[test_measurement("lanyard", "a", 1.0)]);
        assert_eq!(missing, Err(vec!["other 1: a".to_owned(), "lanyard: b".to_owned()]));
        let empty = [test_measurement("lanyard", "b", f64::NAN)];
        assert_eq!(
            compare_measurements("lanyard", &metrics[1..], &empty),
            Err(vec!["lanyard: b".to_owned()])
        );
    }

    #[test]
    fn values_in_different_units_are_not_compared() {
        let other =
            ReportedMeasurement { unit: "ms".to_owned(), ..test_measurement("other 1", "a", 1.0) };
        let metrics = [test_metric("a", MetricGoal::None, &[TEST_UPSTREAM])];
        assert!(
            compare_measurements(
                "lanyard",
                &metrics,
                &[test_measurement("lanyard", "a", 1.0), other]
            )
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
    fn goal_with_two_upstream_programs_must_be_met_against_both() {
        let other = UpstreamProgram { name: "other 2", absence_reason: None };
        let measurements = [
            test_measurement("lanyard", "a", 50.0),
            test_measurement("other 1", "a", 25.0),
            test_measurement("other 2", "a", 200.0),
        ];
        let goal = MetricGoal::AtMostOfUpstream { factor: 1.0, limit: None };
        let rows = compare_measurements(
            "lanyard",
            &[test_metric("a", goal, &[TEST_UPSTREAM, other])],
            &measurements,
        );
        let lines = format_table(&rows.expect("all measurements exist"));
        assert_eq!(lines.last().map(String::as_str), Some("0 of 1 goals met"));
    }

    #[test]
    fn the_table_counts_each_goal_once() {
        let other = UpstreamProgram { name: "other 2", absence_reason: None };
        let measurements = [
            test_measurement("lanyard", "a", 50.0),
            test_measurement("other 1", "a", 200.0),
            test_measurement("other 2", "a", 25.0),
            test_measurement("lanyard", "b", 7.0),
        ];
        let metrics = [
            test_metric("a", MetricGoal::AtMost(60.0), &[TEST_UPSTREAM, other]),
            test_metric("b", MetricGoal::AtMost(6.0), &[]),
        ];
        let lines = format_table(
            &compare_measurements("lanyard", &metrics, &measurements)
                .expect("all measurements exist"),
        );
        let expected = [
            "metric  unit  lanyard  upstream  upstream value  ratio  goal  met",
            "a       ns       50.0  other 1              200   0.25  ≤ 60  yes",
            "a       ns       50.0  other 2             25.0   2.00  ≤ 60  yes",
            "b       ns       7.00                                   ≤ 6   NO",
            "",
            "1 of 2 goals met",
        ];
        assert_eq!(lines, expected);
    }
}
