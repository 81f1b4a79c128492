//! Formats the report of `lanyard up` as a table: a row per component, a column per hop.

use lanyard_up::{ComponentReport, HopReport, ReaderCounts, ScenarioReport, StepFailure};
use lanyard_vocabulary::{Component, Hop, HopOutcome};

use crate::output::{ColumnKind, TextTable};

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Formats the whole report. Colour never carries meaning alone.
pub(super) fn render_report(
    report: &ScenarioReport,
    colour: bool,
    line_width: Option<usize>,
) -> String {
    let paint = |text: &str, code: &str| {
        if colour { format!("{code}{text}{PLAIN}") } else { text.to_owned() }
    };
    let mut text = hop_table(report, line_width);
    text.push_str("\n\n");
    for component in report.components.iter().filter(|component| !component.all_hops_ok()) {
        text.push_str(&failure_text(component, |text| paint(text, RED)));
    }
    if !report.rotation.is_empty() {
        text.push_str(&rotation_table(report, line_width));
    }
    let good = report.components.iter().filter(|component| component.all_hops_ok()).count();
    let all = report.components.len();
    let verdict = format!("{good} of {all} components good");
    text.push_str(&paint(&verdict, if report.ok { GREEN } else { RED }));
    text
}

/// Formats the results of the reader threads.
pub(super) fn reader_summary(readers: ReaderCounts) -> String {
    format!(
        "{} reader threads made {} reads during the rotation: {} torn, {} missing",
        readers.threads, readers.reads, readers.torn, readers.missing
    )
}

fn hop_table(report: &ScenarioReport, line_width: Option<usize>) -> String {
    let component = (ColumnKind::Name, "COMPONENT (MS)".to_owned());
    let hops =
        Hop::CERTIFICATE_PATH.iter().map(|hop| (ColumnKind::Number, hop.name().to_uppercase()));
    let mut table = TextTable::with_columns(std::iter::once(component).chain(hops));
    for component in &report.components {
        let cells = component.hops.iter().map(hop_cell);
        table.add_row(std::iter::once(component.name.to_string()).chain(cells));
    }
    table.render(line_width)
}

fn hop_cell(hop: &HopReport) -> String {
    match hop.outcome {
        HopOutcome::Succeeded => format!("{:.1}", hop.millis),
        HopOutcome::Failed => "FAILED".to_owned(),
        HopOutcome::NotReached => "-".to_owned(),
    }
}

fn failure_text(component: &ComponentReport, paint: impl Fn(&str) -> String) -> String {
    let Some(hop) = component.failed_hop() else {
        return String::new();
    };
    let head = paint(&format!("{}: {} failed", component.name, hop.name));
    let hint = hop.hint.as_deref().map(|hint| format!("  hint: {hint}\n")).unwrap_or_default();
    format!("{head}: {}\n{hint}  the hops after it were not reached\n\n", hop.detail)
}

fn rotation_table(report: &ScenarioReport, line_width: Option<usize>) -> String {
    let mut table = TextTable::new([
        (ColumnKind::Name, "ROTATED COMPONENT"),
        (ColumnKind::Number, "MS TO FIRST TOKEN WITH NEW KEY"),
    ]);
    let mut failures = String::new();
    for rotated in &report.rotation {
        if let Some(failure) = &rotated.failure {
            failures.push_str(&rotation_failure_text(rotated.name, failure));
        }
        let millis = rotated.millis.map_or_else(|| "FAILED".to_owned(), |m| format!("{m:.1}"));
        table.add_row([rotated.name.to_string(), millis]);
    }
    format!("{}\n\n{failures}", table.render(line_width))
}

/// Formats the failure of a rotation with its hint.
fn rotation_failure_text(component: Component, failure: &StepFailure) -> String {
    format!("{component}: rotation failed: {}\n  hint: {}\n\n", failure.detail, failure.hint)
}

#[cfg(test)]
mod tests {
    use lanyard_up::RotationReport;

    use super::*;

    /// The report of a run in which one component failed, and its rotation as well.
    fn report() -> ScenarioReport {
        let hop = |place: u8, failed: Option<u8>| {
            let outcome = match failed {
                Some(failed) if place == failed => HopOutcome::Failed,
                Some(failed) if place > failed => HopOutcome::NotReached,
                _ => HopOutcome::Succeeded,
            };
            HopReport {
                name: Hop::CERTIFICATE_PATH[usize::from(place)],
                ok: outcome == HopOutcome::Succeeded,
                millis: f64::from(place) * 12.5,
                detail: "AADSTS700016: the application is unknown in the tenant".to_owned(),
                hint: Some("register the application in the tenant of the credential".to_owned()),
                outcome,
            }
        };
        let component = |name, failed| ComponentReport {
            name,
            hops: (0..11).map(|place| hop(place, failed)).collect(),
        };
        let rotated = |name, failure: Option<StepFailure>| RotationReport {
            name,
            millis: failure.is_none().then_some(109.1),
            failure,
        };
        let failure = StepFailure::new("no token with the new key after 10 s", "see the log");
        ScenarioReport::new(
            vec![component(Component::Disk, None), component(Component::Ingress, Some(7))],
            vec![rotated(Component::Disk, None), rotated(Component::Ingress, Some(failure))],
        )
    }

    #[test]
    fn report_at_each_width() {
        let shown = [60, 80, 200].map(|columns| {
            format!("--- {columns} columns\n{}\n", render_report(&report(), false, Some(columns)))
        });
        insta::assert_snapshot!(shown.concat());
    }
}
