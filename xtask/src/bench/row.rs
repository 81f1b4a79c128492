//! Measurements become rows: what is ours, what is a peer's, and whether the goal is met.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// One number about one library, as the programs in `benches/` report it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Measurement {
    pub(super) subject: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: f64,
}

/// What a number of ours should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// It is there to be compared.
    None,
    AtMost(f64),
    Exactly(f64),
    /// At most this many times another number of ours.
    AtMostTimes(f64, &'static str),
    /// At least this many times another number of ours.
    AtLeastTimes(f64, &'static str),
    /// At most this many times the peer's number, and at most a number of its own if there is one.
    AtMostOfPeer {
        factor: f64,
        limit: Option<f64>,
    },
    /// At least this many times the peer's number.
    AtLeastOfPeer(f64),
}

/// A library that we are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// Why it was not measured, if it was not.
    pub(super) absence: Option<&'static str>,
}

/// Something that is measured, who else is measured by it, and what we want it to be.
#[derive(Debug, Clone)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) goal: Goal,
    pub(super) peers: Vec<Peer>,
}

/// One line of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    metric: &'static str,
    unit: String,
    ours: f64,
    peer: Option<String>,
    peer_value: Option<f64>,
    /// Ours as a part of the peer's.
    ratio: Option<f64>,
    goal: Option<String>,
    met: Option<bool>,
}

/// Numbers by library and metric.
struct Numbers<'a>(HashMap<(&'a str, &'a str), &'a Measurement>);

impl Numbers<'_> {
    fn find(&self, subject: &str, metric: &str) -> Result<&Measurement, String> {
        let found = self.0.get(&(subject, metric)).copied().filter(|it| it.value.is_finite());
        found.ok_or_else(|| format!("{subject}: {metric}"))
    }
}

/// One row for each metric and peer, in the order of the metrics.
///
/// # Errors
///
/// Every number that should be there and is not.
pub(super) fn rows(
    ourselves: &str,
    metrics: &[Metric],
    measurements: &[Measurement],
) -> Result<Vec<Row>, Vec<String>> {
    let keyed = measurements.iter().map(|it| ((it.subject.as_str(), it.metric.as_str()), it));
    let numbers = Numbers(keyed.collect());
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for metric in metrics {
        match rows_of(ourselves, metric, &numbers) {
            Ok(found) => rows.extend(found),
            Err(problem) => missing.push(problem),
        }
    }
    if missing.is_empty() { Ok(rows) } else { Err(missing) }
}

fn rows_of(ourselves: &str, metric: &Metric, numbers: &Numbers<'_>) -> Result<Vec<Row>, String> {
    let ours = numbers.find(ourselves, metric.name)?;
    let limit = match metric.goal {
        // The peer's number is not known yet.
        Goal::None | Goal::AtMostOfPeer { .. } | Goal::AtLeastOfPeer(_) => None,
        Goal::AtMost(value) | Goal::Exactly(value) => Some(value),
        Goal::AtMostTimes(factor, of) | Goal::AtLeastTimes(factor, of) => {
            Some(factor * numbers.find(ourselves, of)?.value)
        }
    };
    let alone = Row {
        metric: metric.name,
        unit: ours.unit.clone(),
        ours: ours.value,
        peer: None,
        peer_value: None,
        ratio: None,
        goal: metric.goal.spelled(),
        met: limit.map(|limit| metric.goal.is_met(ours.value, limit)),
    };
    if metric.peers.is_empty() {
        return Ok(vec![alone]);
    }
    metric.peers.iter().map(|peer| beside(&alone, metric.goal, peer, numbers)).collect()
}

fn beside(alone: &Row, goal: Goal, peer: &Peer, numbers: &Numbers<'_>) -> Result<Row, String> {
    if let Some(absence) = peer.absence {
        return Ok(Row { peer: Some(format!("{} ({absence})", peer.name)), ..alone.clone() });
    }
    let theirs = numbers.find(peer.name, alone.metric)?;
    if theirs.unit != alone.unit {
        return Err(format!("{}: {} in {}", peer.name, alone.metric, alone.unit));
    }
    let ratio = (theirs.value > 0.0).then(|| alone.ours / theirs.value);
    let met = match goal {
        Goal::AtMostOfPeer { factor, limit } => {
            let limit = limit.unwrap_or(f64::INFINITY).min(factor * theirs.value);
            Some(goal.is_met(alone.ours, limit))
        }
        Goal::AtLeastOfPeer(factor) => Some(goal.is_met(alone.ours, factor * theirs.value)),
        _ => alone.met,
    };
    let peer = Some(peer.name.to_owned());
    Ok(Row { peer, peer_value: Some(theirs.value), ratio, met, ..alone.clone() })
}

impl Goal {
    fn is_met(self, value: f64, limit: f64) -> bool {
        match self {
            Self::None => true,
            Self::AtMost(_) | Self::AtMostTimes(..) | Self::AtMostOfPeer { .. } => value <= limit,
            Self::AtLeastTimes(..) | Self::AtLeastOfPeer(_) => value >= limit,
            Self::Exactly(_) => (value - limit).abs() < f64::EPSILON,
        }
    }

    fn spelled(self) -> Option<String> {
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

/// The rows in columns, and how many goals are met.
pub(super) fn table(rows: &[Row]) -> Vec<String> {
    let heads = ["metric", "unit", "ours", "peer", "peer's", "ratio", "goal", "met"];
    let mut cells = vec![heads.map(str::to_owned)];
    cells.extend(rows.iter().map(Row::cells));
    let mut widths = [0; 8];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let aligned = |line: &[String; 8]| {
        let padded = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if NUMBERS.contains(&column) {
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

/// The columns that are aligned at their ends.
const NUMBERS: [usize; 3] = [2, 4, 5];

impl Row {
    fn cells(&self) -> [String; 8] {
        let number = |value: Option<f64>| value.map_or_else(String::new, short);
        [
            self.metric.to_owned(),
            self.unit.clone(),
            short(self.ours),
            self.peer.clone().unwrap_or_default(),
            number(self.peer_value),
            number(self.ratio),
            self.goal.clone().unwrap_or_default(),
            self.met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned(),
        ]
    }
}

/// Three digits that count, or all of those before the point.
fn short(value: f64) -> String {
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

    const PEER: Peer = Peer { name: "peer 1", absence: None };

    fn measured(subject: &str, metric: &str, value: f64) -> Measurement {
        Measurement {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: "ns".to_owned(),
            value,
        }
    }

    fn metric(name: &'static str, goal: Goal, peers: &[Peer]) -> Metric {
        Metric { name, goal, peers: peers.to_vec() }
    }

    #[test]
    fn goals_are_met_up_to_their_limit_and_not_beyond() {
        let measurements = [measured("us", "a", 100.0), measured("us", "b", 120.0)];
        let cases = [
            (Goal::AtMost(120.0), Some(true)),
            (Goal::AtMost(119.0), Some(false)),
            (Goal::Exactly(120.0), Some(true)),
            (Goal::Exactly(1.0), Some(false)),
            (Goal::AtMostTimes(1.2, "a"), Some(true)),
            (Goal::AtMostTimes(1.1, "a"), Some(false)),
            (Goal::AtLeastTimes(1.2, "a"), Some(true)),
            (Goal::AtLeastTimes(1.3, "a"), Some(false)),
            (Goal::None, None),
        ];
        for (goal, met) in cases {
            let rows = rows("us", &[metric("b", goal, &[])], &measurements).expect("all is there");
            assert_eq!(rows[0].met, met, "{goal:?}");
        }
    }

    #[test]
    fn a_goal_beside_a_peer_holds_ours_to_both_numbers() {
        let measurements = [measured("us", "a", 50.0), measured("peer 1", "a", 200.0)];
        for (factor, limit, met) in [
            (0.25, None, true),
            (0.2, None, false),
            (0.25, Some(50.0), true),
            (0.25, Some(49.0), false),
        ] {
            let goal = Goal::AtMostOfPeer { factor, limit };
            let rows = rows("us", &[metric("a", goal, &[PEER])], &measurements);
            assert_eq!(rows.expect("all is there")[0].met, Some(met), "{goal:?}");
        }
    }

    #[test]
    fn a_rate_is_to_come_near_to_the_peers() {
        let measurements = [measured("us", "a", 80.0), measured("peer 1", "a", 100.0)];
        for (factor, met) in [(0.8, true), (0.81, false)] {
            let metrics = [metric("a", Goal::AtLeastOfPeer(factor), &[PEER])];
            let rows = rows("us", &metrics, &measurements).expect("all is there");
            assert_eq!(rows[0].met, Some(met), "{factor}");
        }
    }

    #[test]
    fn a_row_sets_ours_beside_the_peers() {
        let measurements = [measured("us", "a", 50.0), measured("peer 1", "a", 200.0)];
        let rows = rows("us", &[metric("a", Goal::AtMost(60.0), &[PEER])], &measurements)
            .expect("all is there");
        let json = serde_json::to_value(&rows).expect("rows are JSON");
        let expected = serde_json::json!([{
            "metric": "a", "unit": "ns", "ours": 50.0, "peer": "peer 1", "peer_value": 200.0,
            "ratio": 0.25, "goal": "≤ 60", "met": true,
        }]);
        assert_eq!(json, expected);
    }

    #[test]
    fn an_absent_peer_has_a_row_that_says_why() {
        let absent = Peer { name: "peer 1", absence: Some("Go is not installed") };
        let rows = rows("us", &[metric("a", Goal::None, &[absent])], &[measured("us", "a", 1.0)])
            .expect("nobody else is asked");
        assert_eq!(rows[0].peer.as_deref(), Some("peer 1 (Go is not installed)"));
        assert_eq!(rows[0].peer_value, None);
    }

    #[test]
    fn every_number_that_is_missing_is_named() {
        let metrics = [metric("a", Goal::None, &[PEER]), metric("b", Goal::None, &[])];
        let missing = rows("us", &metrics, &[measured("us", "a", 1.0)]);
        assert_eq!(missing, Err(vec!["peer 1: a".to_owned(), "us: b".to_owned()]));
        let empty = [measured("us", "b", f64::NAN)];
        assert_eq!(rows("us", &metrics[1..], &empty), Err(vec!["us: b".to_owned()]));
    }

    #[test]
    fn a_peer_in_another_unit_is_not_compared() {
        let other = Measurement { unit: "ms".to_owned(), ..measured("peer 1", "a", 1.0) };
        let metrics = [metric("a", Goal::None, &[PEER])];
        assert!(rows("us", &metrics, &[measured("us", "a", 1.0), other]).is_err());
    }

    #[test]
    fn numbers_keep_the_digits_that_count() {
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
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_goal_beside_two_peers_is_met_only_beside_both() {
        let other = Peer { name: "peer 2", absence: None };
        let measurements = [
            measured("us", "a", 50.0),
            measured("peer 1", "a", 25.0),
            measured("peer 2", "a", 200.0),
        ];
        let goal = Goal::AtMostOfPeer { factor: 1.0, limit: None };
        let rows = rows("us", &[metric("a", goal, &[PEER, other])], &measurements);
        let lines = table(&rows.expect("all is there"));
        assert_eq!(lines.last().map(String::as_str), Some("0 of 1 goals met"));
    }

    #[test]
    fn the_table_counts_each_goal_once() {
        let other = Peer { name: "peer 2", absence: None };
        let measurements = [
            measured("us", "a", 50.0),
            measured("peer 1", "a", 200.0),
            measured("peer 2", "a", 25.0),
            measured("us", "b", 7.0),
        ];
        let metrics =
            [metric("a", Goal::AtMost(60.0), &[PEER, other]), metric("b", Goal::AtMost(6.0), &[])];
        let lines = table(&rows("us", &metrics, &measurements).expect("all is there"));
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
