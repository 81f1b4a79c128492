//! What the commands that create and remove Azure resources share: from the desired resources to the plan, the
//! run and the report.

pub(in crate::commands) mod cluster_configuration;
pub(in crate::commands) mod cluster_target;
pub(in crate::commands) mod destroy_stack;
pub(in crate::commands) mod output_files;
pub(in crate::commands) mod progress;
pub(in crate::commands) mod report;
pub(in crate::commands) mod roll_back;
pub(in crate::commands) mod shared_stack;
pub(in crate::commands) mod target_journal;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use lanyard_changes::{
    AzureAccess, AzureGraph, EffectAccess as _, FindingSeverity, LiveState, OwnershipTags, Plan,
    PreflightFinding, RecordedState, ResourceError, ResourceKey, RunContext, RunOptions, RunReport,
    UnrecordedResource, find_unrecorded_resources, wait_for_interrupted_writes,
};
use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_infra::{check_names, check_plan, plan_changes};
use lanyard_vocabulary::format_error_chain;

use self::progress::{ProgressArgs, ProgressOutput};
use self::target_journal::{JournalContext, LockArgs, StateArgs, TargetJournal, journal_error};
use super::azure_account::AzureAccount;
use super::rotation_timing::parse_duration;
use crate::exit::CommandError;
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// The flags of a command that changes Azure resources.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Run")]
pub(in crate::commands) struct RunArgs {
    #[command(flatten)]
    pub(in crate::commands) state: StateArgs,
    #[command(flatten)]
    pub(in crate::commands) lock: LockArgs,
    /// The number of resources that are written at the same time
    #[arg(long, default_value = "16", value_name = "N")]
    parallel: NonZeroUsize,
    /// How long a write is repeated that Azure rejects for now, such as `15m`; also the longest wait for one
    /// long-running operation
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    progress: ProgressArgs,
}

impl RunArgs {
    pub(in crate::commands) fn options(&self) -> RunOptions {
        let (parallel, retry_timeout) = (self.parallel.get(), self.timeout);
        RunOptions { parallel, retry_timeout, ..RunOptions::default() }
    }

    /// What the journal of the command depends on.
    pub(in crate::commands) const fn journal_context<'a>(
        &self,
        account: &'a AzureAccount,
        environment: &'a ProcessEnvironment,
        clock: &'a SharedClock,
    ) -> JournalContext<'a> {
        let lock_timeout = self.lock.lock_timeout;
        JournalContext { account, environment, clock, lock_timeout }
    }

    pub(in crate::commands) fn progress(&self) -> ProgressOutput {
        self.progress.output()
    }
}

/// Desired resources with the account that creates them and the journal that records them.
#[derive(Debug)]
pub(in crate::commands) struct StackTarget<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    pub(in crate::commands) journal: TargetJournal,
    pub(in crate::commands) graph: AzureGraph,
    /// Whether the graph has all resources of the command; otherwise a further run of the same command follows.
    pub(in crate::commands) is_complete: bool,
    pub(in crate::commands) tags: OwnershipTags,
    /// Whether resources stay that lanyard created for an earlier configuration.
    pub(in crate::commands) keeps_superseded: bool,
}

/// A plan with what the checks before the first write found.
#[derive(Debug)]
pub(in crate::commands) struct CheckedPlan {
    pub(in crate::commands) plan: Plan,
    pub(in crate::commands) live: LiveState,
    pub(in crate::commands) findings: Vec<PreflightFinding>,
}

impl CheckedPlan {
    /// Whether the plan can be applied.
    pub(in crate::commands) fn is_applicable(&self) -> bool {
        self.plan.problems().next().is_none()
            && !self.findings.iter().any(|it| it.severity == FindingSeverity::Error)
    }
}

/// Checks the live resources for a command; returns findings beside those of every command.
pub(in crate::commands) type LiveCheck<'a> =
    &'a (dyn Fn(&LiveState) -> Vec<PreflightFinding> + Sync);

/// The check of commands without findings of their own.
pub(in crate::commands) fn no_live_check(_live: &LiveState) -> Vec<PreflightFinding> {
    Vec::new()
}

/// Reads the live resources of a target.
pub(in crate::commands) async fn read_live(
    target: &StackTarget<'_>,
) -> Result<LiveState, CommandError> {
    lanyard_changes::read_live(&target.account.access(), &target.graph).await.map_err(|errors| {
        let text: Vec<_> = errors.iter().map(|error| format_error_chain(error)).collect();
        let failure = CommandError::unavailable(text.join("\n"));
        match errors.first() {
            Some(first) => failure.with_hint_of(&first.source),
            None => failure.with_hint("run the command again"),
        }
    })
}

/// Compares the live resources with the target, and checks whether the writes can succeed. Sends GET requests only.
pub(in crate::commands) async fn make_plan(
    target: &StackTarget<'_>,
    recorded: &RecordedState,
    live_check: LiveCheck<'_>,
) -> Result<CheckedPlan, CommandError> {
    let live = read_live(target).await?;
    let mut plan = plan_changes(&target.graph, &live, recorded, &target.tags);
    let obsolete = obsolete_records(target, &plan).await?;
    let recorded = &recorded.without(&obsolete);
    if !obsolete.is_empty() {
        plan = plan_changes(&target.graph, &live, recorded, &target.tags);
    }
    // The resources of a further run are not obsolete.
    let keeps_others = target.keeps_superseded || !target.is_complete;
    let plan = if keeps_others { plan.without_deletions() } else { plan };
    let mut findings = live_check(&live);
    let account = target.account;
    let renamed = plan.problems().filter_map(|(_, problem)| problem.recorded_id());
    let renamed: Vec<_> = renamed.cloned().collect();
    let removals = plan.removals::<AzureAccess>(recorded);
    let access = account.access();
    let unrecorded = find_unrecorded_resources(&access, &removals, &target.tags).await;
    let mut unrecorded = unrecorded.map_err(|error| preflight_error(&error))?;
    let is_renamed = |id: &str| renamed.iter().any(|it| it.as_str().eq_ignore_ascii_case(id));
    unrecorded.retain(|it| !is_renamed(&it.id));
    findings.extend(unrecorded.iter().map(|UnrecordedResource { id, .. }| {
        PreflightFinding::error(
            "resource groups",
            format!("the plan deletes the resource group of `{id}`, and not this resource"),
            "move or delete the resource, or restore the configuration with which lanyard created the group",
        )
    }));
    let checked = check_plan(&account.arm, &account.subscription, &plan, &target.graph).await;
    findings.extend(checked.map_err(|error| preflight_error(&error))?);
    Ok(CheckedPlan { plan, live, findings })
}

/// The records whose resource has another id by the configuration and does not exist any more, or never did. For
/// ccoctl, all records with another id: its removal finds resources by their tags.
async fn obsolete_records(
    target: &StackTarget<'_>,
    plan: &Plan,
) -> Result<BTreeSet<ResourceKey>, CommandError> {
    let mut obsolete = BTreeSet::new();
    for (key, problem) in plan.problems() {
        let Some(id) = problem.recorded_id() else { continue };
        if !target.keeps_superseded {
            let found = target.account.access().read(id).await;
            if found.map_err(|error| preflight_error(&error))?.is_some() {
                continue;
            }
        }
        obsolete.insert(key.clone());
    }
    Ok(obsolete)
}

fn preflight_error<E: std::error::Error + ErrorHint>(error: &E) -> CommandError {
    CommandError::unavailable("the checks before the first write failed")
        .with_cause(error)
        .with_hint_of(error)
}

/// Converts the error of a write that has not ended into an error for the user.
fn interrupted_write_error(error: &ResourceError) -> CommandError {
    CommandError::unavailable("a write of an interrupted run has not ended")
        .with_cause(error)
        .with_hint_of(error)
}

/// Ends the writes of an interrupted run, plans, checks and applies. Prints the plan before the first write.
///
/// Returns `None` if the plan cannot be applied; nothing was written then.
pub(in crate::commands) async fn plan_and_apply(
    target: &StackTarget<'_>,
    run: &RunArgs,
    live_check: LiveCheck<'_>,
    clock: &SharedClock,
) -> Result<Option<RunReport>, CommandError> {
    let (progress, tags) = (run.progress(), &target.tags);
    let caller = &target.account.caller().await?.creator_names;
    let applied = target.journal.write(async |journal| {
        let options = RunOptions { ends_run: target.is_complete, ..run.options() };
        let arm = &target.account.arm;
        let progress = &progress;
        let access = &target.account.access();
        let context = RunContext { access, journal, tags, caller, clock, progress, options };
        let waited = wait_for_interrupted_writes(context).await;
        waited.map_err(|error| interrupted_write_error(&error))?;
        let mut checked = make_plan(target, &journal.state(), live_check).await?;
        let subscription = &target.account.subscription;
        let names = check_names(arm, subscription, &checked.plan, &target.graph).await;
        checked.findings.extend(names.map_err(|error| preflight_error(&error))?);
        let line_width = output::stderr_width();
        let text = report::plan_text(&checked, line_width);
        output::print_stderr(&output::fit_lines(text.trim_end(), line_width));
        if !checked.is_applicable() {
            return Ok(None);
        }
        progress.begin(&target.graph);
        let CheckedPlan { plan, live, .. } = checked;
        let report = lanyard_changes::apply(context, &target.graph, &plan, live).await;
        progress.end();
        report.map(Some).map_err(|error| journal_error(&error))
    });
    applied.await
}

/// Prints the result of a run.
pub(in crate::commands) fn print_report(
    target: &StackTarget<'_>,
    report: &RunReport,
    format: CliOutputFormat,
) -> Result<(), CommandError> {
    let headroom = target.account.arm.lowest_headroom();
    let summary = report::RunSummary::new(report, &target.graph, headroom);
    output::print_value(&summary, format, |_| summary.to_text())
}
