//! Removes stacks of resources that a journal records.

use std::collections::BTreeMap;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use lanyard_azure::RateLimitHeadroom;
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{
    ClusterIdentifiers, DestroyPlan, JournalCluster, JournalLocation, ResourceStack, RunContext,
    RunReport, destroy, find_unrecorded_resources, wait_for_interrupted_writes,
};
use lanyard_vocabulary::ArmResourceId;
use serde::{Serialize, Serializer};

use super::report::RunSummary;
use super::target_journal::{TargetJournal, journal_error};
use super::{RunArgs, interrupted_write_error};
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// The flags that name the cluster.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct ClusterArgs {
    /// The name of the hosted cluster
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The infrastructure id
    #[arg(long, value_name = "ID")]
    infra_id: String,
    /// Accepted for compatibility with HyperShift; resources are found by their ids
    #[arg(long, hide = true, value_name = "REGION")]
    location: Option<String>,
}

/// The flags of a removal.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct DestroyArgs {
    /// Print what would be removed, and change nothing
    #[arg(long)]
    pub(in crate::commands) dry_run: bool,
    /// Also remove resources in the removed groups that neither the journal nor a tag of the cluster records
    #[arg(long)]
    include_unrecorded: bool,
    /// The output format of the result
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    pub(in crate::commands) output: CliOutputFormat,
    #[command(flatten)]
    pub(in crate::commands) account: AccountArgs,
    #[command(flatten)]
    pub(in crate::commands) run: RunArgs,
}

impl ClusterArgs {
    fn identifiers(&self) -> Result<ClusterIdentifiers, CommandError> {
        let name = self
            .name
            .parse()
            .map_err(|error: lanyard_infra::ClusterIdentifierError| invalid("--name", &error))?;
        let infra_id =
            self.infra_id.parse().map_err(|error: lanyard_vocabulary::ParseIdentifierError| {
                invalid("--infra-id", &error)
            })?;
        ClusterIdentifiers::new(name, infra_id).map_err(|error| invalid("--infra-id", &error))
    }
}

fn invalid(flag: &str, error: &dyn std::error::Error) -> CommandError {
    CommandError::invalid_input(flag).with_cause(error)
}

/// Stacks whose resources a journal records.
pub(in crate::commands) struct RecordedStacks<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    pub(in crate::commands) journal: TargetJournal,
    pub(in crate::commands) identifiers: ClusterIdentifiers,
    /// The stacks of the journal that are removed.
    pub(in crate::commands) stacks: Vec<ResourceStack>,
}

/// Removes what the journal of a cluster records for the stack.
pub(in crate::commands) async fn destroy_cluster_stack(
    cluster: &ClusterArgs,
    args: &DestroyArgs,
    stack: ResourceStack,
    environment: &ProcessEnvironment,
) -> CommandResult {
    let identifiers = cluster.identifiers()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, environment, &clock).await?;
    let (run, stacks) = (&args.run, vec![stack]);
    let recorded =
        RecordedStacks::of_cluster(&account, &identifiers, stacks, run, environment, &clock)?;
    recorded.destroy(args, &clock).await
}

impl<'a> RecordedStacks<'a> {
    /// Stacks of a cluster, with the journal of the cluster.
    pub(in crate::commands) fn of_cluster(
        account: &'a AzureAccount,
        identifiers: &ClusterIdentifiers,
        stacks: Vec<ResourceStack>,
        run: &RunArgs,
        environment: &ProcessEnvironment,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let cluster = JournalCluster {
            name: identifiers.name().clone(),
            infra_id: identifiers.infra_id().clone(),
            subscription: account.subscription.to_string(),
        };
        let context = run.journal_context(account, environment, clock);
        let journal = run.state.journal(context, cluster, identifiers.infra_id().as_str())?;
        let identifiers = identifiers.clone();
        Ok(Self { account, journal, identifiers, stacks })
    }

    /// Removes the resources of the stacks and prints the result.
    pub(in crate::commands) async fn destroy(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> CommandResult {
        self.remove(args, clock).await?.print(args.output)
    }

    /// Removes the resources of the stacks.
    pub(in crate::commands) async fn remove(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<StackRemoval, CommandError> {
        let plan = self.check(args).await?;
        output::print_stderr(&plan_text(&plan));
        if args.dry_run {
            return Ok(StackRemoval::planned(plan));
        }
        self.remove_checked(args, clock).await
    }

    /// Plans the removal, and checks that the removed groups contain nothing else. Sends GET requests only.
    pub(in crate::commands) async fn check(
        &self,
        args: &DestroyArgs,
    ) -> Result<DestroyPlan, CommandError> {
        let Some(recorded) = self.journal.read().await? else {
            return Err(no_journal(&self.journal.location));
        };
        let plan = DestroyPlan::new(&recorded, &self.stacks);
        let arm = &self.account.arm;
        let unrecorded = find_unrecorded_resources(arm, &plan, &recorded, &self.identifiers)
            .await
            .map_err(|error| {
                CommandError::unavailable("listing the resources of the groups failed")
                    .with_cause(&error)
                    .with_hint(error.hint())
            })?;
        if !unrecorded.is_empty() && !args.include_unrecorded {
            let hint =
                "move or delete them, or remove them with the groups by --include-unrecorded";
            return Err(unrecorded_error(&unrecorded, hint));
        }
        Ok(plan)
    }

    /// Removes the resources after [`RecordedStacks::check`].
    pub(in crate::commands) async fn remove_checked(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<StackRemoval, CommandError> {
        let arm = &self.account.arm;
        let removal = self.journal.write(async |journal| {
            let progress = args.run.progress();
            let options = args.run.options();
            let context = RunContext { arm, journal, clock, progress: &progress, options };
            let waited = wait_for_interrupted_writes(context).await;
            waited.map_err(|error| interrupted_write_error(&error))?;
            let plan = DestroyPlan::new(&journal.state(), &self.stacks);
            let report = destroy(context, &plan, &self.stacks).await;
            progress.end();
            let report = report.map_err(|error| journal_error(&error))?;
            let is_empty = DestroyPlan::new(&journal.state(), &self.stacks).resources.is_empty();
            Ok(StackRemoval { is_empty, ..StackRemoval::ran(plan, report, arm.lowest_headroom()) })
        });
        removal.await
    }
}

/// What a removal planned and did.
pub(in crate::commands) struct StackRemoval {
    plan: DestroyPlan,
    /// `None` after `--dry-run`.
    run: Option<(RunReport, Option<RateLimitHeadroom>)>,
    /// Whether the journal records nothing of the stack any more.
    is_empty: bool,
}

impl StackRemoval {
    /// The result of `--dry-run`.
    pub(in crate::commands) const fn planned(plan: DestroyPlan) -> Self {
        Self { plan, run: None, is_empty: false }
    }

    /// The result of a run that removed the resources of the plan.
    pub(in crate::commands) const fn ran(
        plan: DestroyPlan,
        report: RunReport,
        headroom: Option<RateLimitHeadroom>,
    ) -> Self {
        Self { plan, run: Some((report, headroom)), is_empty: false }
    }

    /// Whether nothing of the stack is left, also after a failure.
    pub(in crate::commands) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(in crate::commands) fn succeeded(&self) -> bool {
        self.run.as_ref().is_none_or(|(report, _)| report.succeeded())
    }

    /// Prints the result in a format.
    pub(in crate::commands) fn print(&self, format: CliOutputFormat) -> CommandResult {
        match format {
            CliOutputFormat::Table => self.print_text()?,
            format => output::print_stdout(&self.to_document(format))?,
        }
        Ok(if self.succeeded() { CommandExit::Success } else { CommandExit::Failed })
    }

    /// Prints the result of the run; the plan was printed before it.
    pub(in crate::commands) fn print_text(&self) -> Result<(), CommandError> {
        self.summary().map_or(Ok(()), |summary| output::print_stdout(&summary.to_text()))
    }

    fn to_document(&self, format: CliOutputFormat) -> String {
        output::serialize_document(self, format)
    }

    fn summary(&self) -> Option<RunSummary> {
        let (report, headroom) = self.run.as_ref()?;
        Some(RunSummary::with_dependencies(report, &BTreeMap::new(), *headroom))
    }
}

impl Serialize for StackRemoval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.summary() {
            Some(summary) => summary.serialize(serializer),
            None => self.plan.serialize(serializer),
        }
    }
}

fn no_journal(location: &JournalLocation) -> CommandError {
    CommandError::invalid_input(format!("there is no journal in {location}"))
        .with_hint("name its directory or container with --state; for a cluster of another tool, run `lanyard import azure` first")
}

pub(in crate::commands) fn unrecorded_error(
    unrecorded: &[ArmResourceId],
    hint: &str,
) -> CommandError {
    let ids: Vec<_> = unrecorded.iter().map(ArmResourceId::as_str).collect();
    CommandError::invalid_input(format!(
        "the resource groups contain resources that lanyard did not create; nothing was removed:\n{}",
        ids.join("\n")
    ))
    .with_hint(hint)
}

/// The resources that are removed, as a table.
pub(in crate::commands) fn plan_text(plan: &DestroyPlan) -> String {
    if plan.resources.is_empty() {
        return "Nothing to remove.".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["REMOVE", "WITH", "GROUP", "NAME"]);
    for row in removed_rows(plan) {
        table.add_row(row);
    }
    table.trim_fmt()
}

/// Key, container that is removed with it, group and name of each resource.
pub(super) fn removed_rows(plan: &DestroyPlan) -> impl Iterator<Item = [&str; 4]> {
    plan.resources.iter().map(|resource| {
        let with = resource.removed_with.as_ref().map_or("", |key| key.as_str());
        let group = resource.id.resource_group().unwrap_or_default();
        [resource.key.as_str(), with, group, resource.id.name()]
    })
}
