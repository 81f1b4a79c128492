//! The text and the documents of plans and runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_azure::RateLimitHeadroom;
use lanyard_changes::{
    AzureGraph, FindingSeverity, PlanProblem, PlannedResource, PreflightFinding,
    PropertyDifference, ResourceChange, ResourceId, ResourceKey, ResourceOutcome, RunReport,
    critical_path,
};
use lanyard_clock::ErrorHint as _;
use lanyard_infra::{PRICES_OF, ResourceCost, monthly_cost};
use lanyard_vocabulary::format_error_chain;
use serde::Serialize;

use super::CheckedPlan;
use crate::output::{ColumnKind, TextTable};

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

/// The result of a run as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct RunSummary {
    succeeded: bool,
    seconds: f64,
    resources: Vec<ResourceSummary>,
    critical_path: Vec<StepSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit_headroom: Option<RateLimitHeadroom>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSummary {
    key: ResourceKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ResourceId>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'static, str>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepSummary {
    key: ResourceKey,
    seconds: f64,
}

impl RunSummary {
    /// Summarizes a run over the resources of a graph.
    pub(in crate::commands) fn new(
        report: &RunReport,
        graph: &AzureGraph,
        headroom: Option<RateLimitHeadroom>,
    ) -> Self {
        Self::with_dependencies(report, &graph.dependencies(), headroom)
    }

    /// Summarizes a run with these dependencies between the resources.
    pub(in crate::commands) fn with_dependencies(
        report: &RunReport,
        dependencies: &BTreeMap<ResourceKey, Vec<ResourceKey>>,
        rate_limit_headroom: Option<RateLimitHeadroom>,
    ) -> Self {
        let resources = report.outcomes.iter().map(|(key, outcome)| {
            let timing = report.timings.get(key);
            let (error, hint) = failure(outcome);
            ResourceSummary {
                key: key.clone(),
                id: report.live.get(key).map(|live| live.id.clone()),
                result: outcome_word(outcome),
                seconds: timing.map(|it| seconds(it.finished.saturating_sub(it.started))),
                error,
                hint,
            }
        });
        let path = critical_path(&report.timings, dependencies);
        let steps =
            path.into_iter().map(|it| StepSummary { key: it.key, seconds: seconds(it.duration) });
        let end = report.timings.values().map(|it| it.finished).max().unwrap_or_default();
        Self {
            succeeded: report.succeeded(),
            seconds: seconds(end),
            resources: resources.collect(),
            critical_path: steps.collect(),
            rate_limit_headroom,
        }
    }

    /// Whether every resource is as desired.
    pub(in crate::commands) const fn succeeded(&self) -> bool {
        self.succeeded
    }

    /// The summary for people.
    pub(in crate::commands) fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for failed in self.resources.iter().filter(|it| it.error.is_some()) {
            let error = failed.error.as_deref().unwrap_or_default();
            lines.push(format!("{}: {error}", failed.key));
            if let Some(hint) = &failed.hint {
                lines.push(format!("  hint: {hint}"));
            }
        }
        let count = |word: &str| self.resources.iter().filter(|it| it.result == word).count();
        for kept in self.resources.iter().filter(|it| it.result == KEPT) {
            lines.push(format!(
                "{}: kept, because neither its tags nor its creator show that lanyard created it; the journal no longer records it as lanyard's",
                kept.key
            ));
        }
        let words =
            ["created", "updated", "replaced", "deleted", KEPT, "unchanged", "failed", "blocked"];
        let counts: Vec<_> = words
            .into_iter()
            .filter(|word| count(word) > 0)
            .map(|word| format!("{} {word}", count(word)))
            .collect();
        let counts = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
        lines.push(format!("{counts} in {:.1} s", self.seconds));
        if self.critical_path.len() > 1 {
            let steps: Vec<_> = self
                .critical_path
                .iter()
                .map(|it| format!("{} {:.1} s", it.key, it.seconds))
                .collect();
            lines.push(format!("critical path: {}", steps.join(" -> ")));
        }
        if let Some(headroom) = &self.rate_limit_headroom {
            lines.push(headroom.to_string());
        }
        lines.join("\n")
    }
}

const KEPT: &str = "kept";

const fn outcome_word(outcome: &ResourceOutcome) -> &'static str {
    match outcome {
        ResourceOutcome::Unchanged => "unchanged",
        ResourceOutcome::Created => "created",
        ResourceOutcome::Updated => "updated",
        ResourceOutcome::Replaced => "replaced",
        ResourceOutcome::Deleted => "deleted",
        ResourceOutcome::Kept => KEPT,
        ResourceOutcome::Failed(_) => "failed",
        ResourceOutcome::Blocked(_) => "blocked",
    }
}

fn failure(outcome: &ResourceOutcome) -> (Option<String>, Option<Cow<'static, str>>) {
    match outcome {
        ResourceOutcome::Failed(error) => (Some(format_error_chain(error)), error.hint()),
        ResourceOutcome::Blocked(by) => (Some(format!("not written, because `{by}` failed")), None),
        _ => (None, None),
    }
}

/// Seconds with three decimals.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000.0).round() / 1_000.0
}
