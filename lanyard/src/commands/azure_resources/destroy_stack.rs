//! Removes one stack of resources that a journal records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use lanyard_azure::RateLimitHeadroom;
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{
    ClusterIdentifiers, DestroyPlan, JournalCluster, ResourceStack, RunContext, RunReport, destroy,
    find_unrecorded_resources, open_directory, read_directory, wait_for_interrupted_writes,
};
use lanyard_vocabulary::ArmResourceId;
use serde::{Serialize, Serializer};

use super::report::RunSummary;
use super::{RunArgs, journal_error};
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

/// A journal whose resources are removed.
pub(in crate::commands) struct RecordedStack<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    pub(in crate::commands) directory: PathBuf,
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
    let directory = args.run.state.directory(
        environment.state_directory.as_ref(),
        account.subscription.as_str(),
        identifiers.infra_id().as_str(),
    )?;
    let stacks = vec![stack];
    let recorded = RecordedStack { account: &account, directory, identifiers, stacks };
    recorded.destroy(args, &clock).await
}

impl RecordedStack<'_> {
    /// Removes the resources of the stack and prints the result.
    pub(in crate::commands) async fn destroy(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> CommandResult {
        let removal = self.remove(args, clock).await?;
        match args.output {
            CliOutputFormat::Table => removal.print_text()?,
            format => output::print_stdout(&removal.to_document(format))?,
        }
        Ok(if removal.succeeded() { CommandExit::Success } else { CommandExit::Failed })
    }

    /// Removes the resources of the stack.
    pub(in crate::commands) async fn remove(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<StackRemoval, CommandError> {
        let cluster = JournalCluster {
            name: self.identifiers.name().clone(),
            infra_id: self.identifiers.infra_id().clone(),
            subscription: self.account.subscription.to_string(),
        };
        let recorded =
            read_directory(&self.directory, &cluster).map_err(|error| journal_error(&error))?;
        if recorded.resources().next().is_none() && !self.directory.exists() {
            return Err(no_journal(&self.directory));
        }
        let plan = DestroyPlan::new(&recorded, &self.stacks);
        output::print_stderr(&plan_text(&plan));
        let arm = &self.account.arm;
        let unrecorded = find_unrecorded_resources(arm, &plan, &recorded, &self.identifiers)
            .await
            .map_err(|error| {
                CommandError::unavailable("listing the resources of the groups failed")
                    .with_cause(&error)
                    .with_hint(error.hint())
            })?;
        if !unrecorded.is_empty() && !args.include_unrecorded {
            return Err(unrecorded_error(&unrecorded));
        }
        if args.dry_run {
            return Ok(StackRemoval { plan, run: None });
        }
        let journal = open_directory(self.directory.clone(), &cluster)
            .map_err(|error| journal_error(&error))?;
        let progress = args.run.progress();
        let options = args.run.options();
        let context = RunContext { arm, journal: &journal, clock, progress: &progress, options };
        wait_for_interrupted_writes(context).await.map_err(|error| {
            CommandError::unavailable("a write of an interrupted run has not ended")
                .with_cause(&error)
                .with_hint(error.hint())
        })?;
        let plan = DestroyPlan::new(&journal.state(), &self.stacks);
        let report = destroy(context, &plan).await;
        progress.end();
        Ok(StackRemoval { plan, run: Some((report, arm.lowest_headroom())) })
    }
}

/// What a removal planned and did.
pub(in crate::commands) struct StackRemoval {
    plan: DestroyPlan,
    /// `None` after `--dry-run`.
    run: Option<(RunReport, Option<RateLimitHeadroom>)>,
}

impl StackRemoval {
    pub(in crate::commands) fn succeeded(&self) -> bool {
        self.run.as_ref().is_none_or(|(report, _)| report.succeeded())
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

fn no_journal(directory: &Path) -> CommandError {
    CommandError::invalid_input(format!("there is no journal in {}", directory.display()))
        .with_hint("name its directory with --state; for a cluster of another tool, run `lanyard import azure` first")
}

fn unrecorded_error(unrecorded: &[ArmResourceId]) -> CommandError {
    let ids: Vec<_> = unrecorded.iter().map(ArmResourceId::as_str).collect();
    CommandError::invalid_input(format!(
        "the resource groups contain resources that lanyard did not create; nothing was removed:\n{}",
        ids.join("\n")
    ))
    .with_hint("move or delete them, or remove them with the groups by --include-unrecorded")
}

fn plan_text(plan: &DestroyPlan) -> String {
    if plan.resources.is_empty() {
        return "Nothing to remove.".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["REMOVE", "WITH", "GROUP", "NAME"]);
    for resource in &plan.resources {
        let with = resource.removed_with.as_ref().map_or("", |key| key.as_str());
        let group = resource.id.resource_group().unwrap_or_default();
        table.add_row([resource.key.as_str(), with, group, resource.id.name()]);
    }
    table.trim_fmt()
}
