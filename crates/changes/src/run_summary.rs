//! The result of a run as a document, and as text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lanyard_azure::RateLimitHeadroom;
use lanyard_clock::ErrorHint as _;
use lanyard_vocabulary::format_error_chain;
use serde::Serialize;

use crate::progress::critical_path;
use crate::resource_id::ResourceId;
use crate::resource_key::ResourceKey;
use crate::run_report::{ResourceOutcome, RunReport};
use crate::stack_rules::StackRules;
use crate::stack_target::StackTarget;

/// The result of a run as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
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
    /// Summarizes a run over the resources of a target.
    pub fn new<R: StackRules>(report: &RunReport, target: &StackTarget<R>) -> Self {
        Self::with_dependencies(report, &target.graph.dependencies(), &target.rules)
    }

    /// Summarizes a removal or a roll-back, whose resources have no graph.
    pub(crate) fn without_graph(report: &RunReport, rules: &impl StackRules) -> Self {
        Self::with_dependencies(report, &BTreeMap::new(), rules)
    }

    fn with_dependencies(
        report: &RunReport,
        dependencies: &BTreeMap<ResourceKey, Vec<ResourceKey>>,
        rules: &impl StackRules,
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
            rate_limit_headroom: rules.rate_limit_headroom(),
        }
    }

    /// Whether every resource is as desired.
    pub const fn succeeded(&self) -> bool {
        self.succeeded
    }
}

impl fmt::Display for RunSummary {
    /// The summary for people: what failed with its hint, counts, times and the rate limit.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        formatter.write_str(&lines.join("\n"))
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
        ResourceOutcome::Blocked(by) => (Some(format!("skipped, because `{by}` failed")), None),
        _ => (None, None),
    }
}

/// Seconds with three decimals.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000.0).round() / 1_000.0
}
