//! Plans as text and as documents.

use lanyard_changes::{
    CheckedPlan, FindingSeverity, PlanProblem, PlannedResource, PreflightFinding,
    PropertyDifference, ResourceChange, ResourceKey,
};
use lanyard_clock::ErrorHint as _;
use lanyard_infra::{PRICES_OF, ResourceCost, monthly_cost};
use serde::Serialize;

use crate::output::{self, ColumnKind, TextTable};

/// A plan as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct PlanDocument<'a> {
    changes: usize,
    applicable: bool,
    resources: &'a [PlannedResource],
    findings: &'a [PreflightFinding],
    monthly_cost: Vec<ResourceCost>,
}

impl<'a> PlanDocument<'a> {
    pub(in crate::commands) fn new(checked: &'a CheckedPlan) -> Self {
        Self {
            changes: checked.plan.writes().count(),
            applicable: checked.is_applicable(),
            resources: &checked.plan.resources,
            findings: &checked.findings,
            monthly_cost: monthly_cost(&checked.plan),
        }
    }
}

/// Prints a plan to standard error.
pub(in crate::commands) fn print_plan(checked: &CheckedPlan) {
    let line_width = output::stderr_width();
    let text = plan_text(checked, line_width);
    output::print_stderr(&output::fit_lines(text.trim_end(), line_width));
}

/// A plan for people: the changes, the findings of the checks, the cost, and a summary.
pub(in crate::commands) fn plan_text(checked: &CheckedPlan, line_width: Option<usize>) -> String {
    let mut sections = Vec::new();
    let changed: Vec<_> =
        checked.plan.resources.iter().filter(|it| change_word(&it.change).is_some()).collect();
    if !changed.is_empty() {
        let mut table = TextTable::new([
            (ColumnKind::Name, "RESOURCE"),
            (ColumnKind::Name, "CHANGE"),
            (ColumnKind::Identifier, "GROUP"),
            (ColumnKind::Identifier, "NAME"),
        ]);
        for planned in &changed {
            let word = change_word(&planned.change).unwrap_or_default();
            let id = &planned.id;
            table.add_row([planned.key.as_str(), word, id.group(), id.name()]);
        }
        sections.push(table.render(line_width));
    }
    let details: Vec<_> = changed.iter().flat_map(|it| change_details(it)).collect();
    if !details.is_empty() {
        sections.push(details.join("\n"));
    }
    let findings = findings_text(&checked.findings);
    if !findings.is_empty() {
        sections.push(findings);
    }
    sections.extend(cost_text(&monthly_cost(&checked.plan)));
    sections.push(summary_line(checked));
    sections.join("\n\n")
}

fn change_word(change: &ResourceChange) -> Option<&'static str> {
    match change {
        ResourceChange::Create => Some("create"),
        ResourceChange::Update { .. } => Some("update"),
        ResourceChange::Replace { .. } => Some("replace"),
        ResourceChange::Delete => Some("delete"),
        ResourceChange::Problem { .. } => Some("problem"),
        ResourceChange::None { .. } => None,
    }
}

fn change_details(planned: &PlannedResource) -> Vec<String> {
    match &planned.change {
        ResourceChange::Update { differences } | ResourceChange::Replace { differences } => {
            differences_text(&planned.key, differences)
        }
        ResourceChange::Problem { problem } => {
            let differences = match problem {
                PlanProblem::NotOurs { differences, .. }
                | PlanProblem::Immutable { differences, .. } => differences.as_slice(),
                PlanProblem::Missing { .. } | PlanProblem::Renamed { .. } => &[],
            };
            let mut lines = differences_text(&planned.key, differences);
            let hint = problem.hint().unwrap_or_default();
            lines.push(format!("{}: {problem}\n  hint: {hint}", planned.key));
            lines
        }
        _ => Vec::new(),
    }
}

fn differences_text(key: &ResourceKey, differences: &[PropertyDifference]) -> Vec<String> {
    let line = |it: &PropertyDifference| {
        let live = if it.live.is_null() { "absent".to_owned() } else { it.live.to_string() };
        format!("{key}: {} is {live}, should be {}", it.path, it.desired)
    };
    differences.iter().map(line).collect()
}

/// The findings of the checks, each with its hint.
pub(in crate::commands) fn findings_text(findings: &[PreflightFinding]) -> String {
    let line = |it: &PreflightFinding| {
        let severity = match it.severity {
            FindingSeverity::Error => "error",
            FindingSeverity::Warning => "warning",
        };
        format!("{severity} ({}): {}\n  hint: {}", it.check, it.message, it.hint)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cost_text(costs: &[ResourceCost]) -> Option<String> {
    let total: u64 = costs.iter().map(|it| it.cents_per_month).sum();
    (total > 0).then(|| {
        format!(
            "New resources cost about ${}.{:02} per month (list prices of {PRICES_OF}, East US, without traffic).",
            total / 100,
            total % 100
        )
    })
}

fn summary_line(checked: &CheckedPlan) -> String {
    let count = |word: &str| {
        let changes = checked.plan.resources.iter().map(|it| change_word(&it.change));
        changes.filter(|it| it.unwrap_or("unchanged") == word).count()
    };
    let parts = ["create", "update", "replace", "delete", "problem"]
        .map(|word| (word, count(word)))
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{count} to {word}"))
        .collect::<Vec<_>>()
        .join(", ")
        .replace("to problem", "with a problem");
    let unchanged = count("unchanged");
    let changes = if parts.is_empty() { "nothing to change".to_owned() } else { parts };
    let blocked = if checked.is_applicable() { "" } else { " The plan cannot be applied." };
    format!("Plan: {changes}, {unchanged} unchanged.{blocked}")
}
