//! Formats a forecast as a timeline for people.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_desired::forecast::{RenewalMilestone, RenewalState, TimelineEntry};

use crate::output::{ColumnKind, TextTable};

/// Formats the upcoming moments in chronological order, then the identities that need action, then those of
/// `--within`, then a summary.
///
/// Identities of one cluster with the same milestone in the same minute share a line.
pub(super) fn render(
    entries: &[TimelineEntry],
    expiring: &[&TimelineEntry],
    now: Timestamp,
    line_width: Option<usize>,
) -> String {
    let mut sections = Vec::new();
    let moments = upcoming_moments(entries, now);
    if !moments.is_empty() {
        sections.push(timeline_table(&moments, now, line_width));
    }
    let alarming =
        entries.iter().filter(|it| it.forecast.verdict.requires_action() || it.is_unknown());
    let expiring = expiring.iter().map(|entry| expiring_line(entry));
    let lines: Vec<_> = alarming.map(entry_line).chain(expiring).collect();
    if !lines.is_empty() {
        sections.push(lines.join("\n"));
    }
    sections.push(summary_line(entries, now));
    sections.join("\n\n")
}

/// The time, milestone, namespace and cluster of a timeline row.
type TimelineRowKey<'a> = (Timestamp, RenewalMilestone, &'a str, &'a str);

fn upcoming_moments(
    entries: &[TimelineEntry],
    now: Timestamp,
) -> BTreeMap<TimelineRowKey<'_>, Vec<&str>> {
    let mut moments: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in entries {
        for (at, moment) in entry.forecast.milestones() {
            if at > now {
                let happening =
                    (truncate_to_minute(at), moment, &*entry.namespace, &*entry.cluster);
                moments.entry(happening).or_default().push(&*entry.component);
            }
        }
    }
    moments
}

fn timeline_table(
    moments: &BTreeMap<TimelineRowKey<'_>, Vec<&str>>,
    now: Timestamp,
    line_width: Option<usize>,
) -> String {
    let mut table = TextTable::new([
        (ColumnKind::Name, "WHEN"),
        (ColumnKind::Name, "WHAT"),
        (ColumnKind::Name, "HOSTEDCLUSTER"),
        (ColumnKind::Name, "IN"),
        (ColumnKind::Text, "IDENTITIES"),
    ])
    .with_key_columns(2);
    for ((at, moment, namespace, cluster), identities) in moments {
        table.add_row([
            format_minute(*at),
            moment.title().to_owned(),
            format!("{namespace}/{cluster}"),
            time_until(at.duration_since(now)),
            identities.join(", "),
        ]);
    }
    table.render(line_width)
}

fn entry_line(entry: &TimelineEntry) -> String {
    let TimelineEntry { namespace, cluster, component, forecast, .. } = entry;
    let verdict = forecast.verdict;
    format!("{verdict}: {namespace}/{cluster} {component}: {}", forecast.summary())
}

/// A credential that needs no action, but expires within the time of `--within`.
pub(super) fn expiring_line(entry: &TimelineEntry) -> String {
    let TimelineEntry { namespace, cluster, component, forecast, .. } = entry;
    let end = forecast.expires_at.map(|at| format!(" ends at {at}")).unwrap_or_default();
    format!("within: {namespace}/{cluster} {component}: its credential{end}")
}

fn summary_line(entries: &[TimelineEntry], now: Timestamp) -> String {
    let counts = RenewalState::ALL.into_iter().rev().filter_map(|verdict| {
        let count = entries.iter().filter(|entry| entry.forecast.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let counts: Vec<_> = counts.collect();
    let noun = if entries.len() == 1 { "identity" } else { "identities" };
    format!("{} {noun} at {}: {}", entries.len(), format_minute(now), counts.join(", "))
}

fn truncate_to_minute(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second() - at.as_second().rem_euclid(60)).unwrap_or(at)
}

/// Formats a time to the minute, in UTC.
fn format_minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%MZ").to_string()
}

/// Formats a duration in its two largest units.
fn time_until(time: SignedDuration) -> String {
    let minutes = time.as_mins().max(0);
    let (days, hours, minutes) = (minutes / 1_440, minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m"),
        (0, hours) => format!("{hours}h {minutes}m"),
        (days, 0) => format!("{days}d"),
        (days, hours) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use lanyard_api::HostedClusterIdentities;
    use lanyard_desired::forecast::{RenewalPolicy, renewal_timeline};
    use serde_json::json;

    use super::*;

    fn clusters() -> Vec<HostedClusterIdentities> {
        let identity = |component: &str, renew: &str, end: &str| {
            json!({
                "component": component, "secretProviderClass": "c", "ready": "True", "reason": "AsExpected",
                "renewAfter": renew, "notAfter": end,
            })
        };
        let (renew, end) = ("2026-02-15T00:00:10Z", "2026-04-01T00:00:10Z");
        let value = json!([
            {"metadata": {"namespace": "clusters", "name": "harbour"}, "status": {"identities": [
                identity("disk", renew, end),
                identity("file", "2026-02-15T00:00:50Z", "2026-04-01T00:00:50Z"),
                identity("ingress", "2026-01-20T00:00:00Z", "2026-02-03T00:00:00Z"),
            ]}},
            {"metadata": {"namespace": "clusters", "name": "quay"}},
        ]);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn forecast_table_shows_timeline_and_alarming_identities() {
        let now: Timestamp = "2026-02-01T12:34:56Z".parse().unwrap();
        let entries = renewal_timeline(&clusters(), &RenewalPolicy::default(), now);
        insta::assert_snapshot!(render(&entries, &[], now, None));
    }

    #[test]
    fn time_until_uses_two_largest_units() {
        for (minutes, expected) in
            [(0, "0m"), (59, "59m"), (60, "1h 0m"), (1_440, "1d"), (1_500, "1d 1h"), (-5, "0m")]
        {
            assert_eq!(time_until(SignedDuration::from_mins(minutes)), expected);
        }
    }
}
