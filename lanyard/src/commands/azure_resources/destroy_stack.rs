//! Removes stacks of resources that a journal records.

use std::collections::BTreeMap;

use lanyard_azure::RateLimitHeadroom;
use lanyard_changes::{
    AzureAccess, DestroyPlan, JournalLocation, KeptGroup, OwnershipTags, RecordedState, ResourceId,
    RunContext, RunOptions, RunReport, StackName, UnrecordedResource, destroy,
    find_unrecorded_resources, wait_for_interrupted_writes,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{
    ClusterIdentifiers, LockedResource, find_locked_deletions, removal_keeping_shared_groups,
};
use lanyard_vocabulary::ArmResourceId;
use serde::{Serialize, Serializer};

use super::report::RunSummary;
use super::target_journal::{TargetJournal, journal_error};
use super::{RunArgs, interrupted_write_error};
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, ColumnKind, OutputArgs, TextTable};
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
    pub(in crate::commands) include_unrecorded: bool,
    #[command(flatten)]
    pub(in crate::commands) output: OutputArgs,
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
    /// The tags of the resources that lanyard created for the stacks.
    pub(in crate::commands) tags: OwnershipTags,
    /// The stacks of the journal that are removed.
    pub(in crate::commands) stacks: Vec<StackName>,
}

/// Removes what the journal of a cluster records for the stack.
pub(in crate::commands) async fn destroy_cluster_stack(
    cluster: &ClusterArgs,
    args: &DestroyArgs,
    stack: StackName,
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
        stacks: Vec<StackName>,
        run: &RunArgs,
        environment: &ProcessEnvironment,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let cluster = identifiers.journal_cluster(&account.subscription);
        let context = run.journal_context(account, environment, clock);
        let journal = run.state.journal(context, cluster, identifiers.infra_id().as_str())?;
        let tags = identifiers.ownership_tags();
        Ok(Self { account, journal, tags, stacks })
    }

    /// Removes the resources of the stacks and prints the result.
    pub(in crate::commands) async fn destroy(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> CommandResult {
        self.remove(args, clock).await?.print(args.output.format)
    }

    /// Removes the resources of the stacks.
    pub(in crate::commands) async fn remove(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<StackRemoval, CommandError> {
        let recorded = self.read_recorded().await?;
        if args.dry_run {
            let planned = self.plan(&recorded).await?;
            planned.print();
            self.check(&planned, args.include_unrecorded).await?;
            return Ok(StackRemoval::planned(planned));
        }
        let removal =
            self.remove_planned(&args.run, args.include_unrecorded, clock, async |state| {
                let planned = self.plan(&state).await?;
                planned.print();
                Ok(planned)
            });
        removal.await
    }

    /// What the journal records. A journal must exist.
    pub(in crate::commands) async fn read_recorded(&self) -> Result<RecordedState, CommandError> {
        self.journal.read().await?.ok_or_else(|| no_journal(&self.journal.location))
    }

    /// Plans the removal of the stacks' known resources. Reads what is in their resource groups: a group that other
    /// stacks use stays.
    pub(in crate::commands) async fn plan(
        &self,
        known: &RecordedState,
    ) -> Result<PlannedRemoval, CommandError> {
        let whole = DestroyPlan::new::<AzureAccess>(known, &self.stacks);
        let mut unrecorded = self.find_unrecorded(&whole).await?;
        let plan = removal_keeping_shared_groups(known, &self.stacks, &unrecorded);
        unrecorded.retain(|it| !plan.kept_groups.iter().any(|group| group.id == it.group));
        Ok(PlannedRemoval { plan, unrecorded })
    }

    /// Plans, checks and removes while no other command can use the journal: `plan` gets the state of the journal
    /// after the writes of an interrupted run have ended. A lock of a resource, and unrecorded resources that are not
    /// included, stop the removal before its first write.
    pub(in crate::commands) async fn remove_planned(
        &self,
        run: &RunArgs,
        include_unrecorded: bool,
        clock: &SharedClock,
        plan: impl AsyncFnOnce(RecordedState) -> Result<PlannedRemoval, CommandError>,
    ) -> Result<StackRemoval, CommandError> {
        let (arm, tags) = (&self.account.arm, &self.tags);
        let caller = &self.account.caller().await?.creator_names;
        let options = RunOptions { removes_unrecorded: include_unrecorded, ..run.options() };
        let removal = self.journal.write(async |journal| {
            let progress = run.progress();
            let (access, progress) = (&self.account.access(), &progress);
            let context = RunContext { access, journal, tags, caller, clock, progress, options };
            let waited = wait_for_interrupted_writes(context).await;
            waited.map_err(|error| interrupted_write_error(&error))?;
            let planned = plan(journal.state()).await?;
            self.check(&planned, include_unrecorded).await?;
            let report = destroy(context, &planned.plan, &self.stacks).await;
            progress.end();
            let report = report.map_err(|error| journal_error(&error))?;
            let left = DestroyPlan::new::<AzureAccess>(&journal.state(), &self.stacks);
            let is_empty = left.resources.is_empty();
            let run = Some((report, arm.lowest_headroom()));
            Ok(StackRemoval { plan: planned.plan, run, is_empty })
        });
        removal.await
    }

    /// Fails if the removed groups contain unrecorded resources that are not included, or if a lock prevents a
    /// deletion.
    pub(in crate::commands) async fn check(
        &self,
        planned: &PlannedRemoval,
        include_unrecorded: bool,
    ) -> Result<(), CommandError> {
        planned.check_unrecorded(include_unrecorded)?;
        self.check_locks(planned).await
    }

    /// Fails if a lock prevents a deletion. Locks that the signed-in identity may not read are not checked.
    pub(in crate::commands) async fn check_locks(
        &self,
        planned: &PlannedRemoval,
    ) -> Result<(), CommandError> {
        let locked = find_locked_deletions(&self.account.arm, &planned.plan).await;
        let locked = locked.map_err(|error| {
            CommandError::unavailable("listing the locks of the subscription failed")
                .with_cause(&error)
                .with_hint_of(&error)
        })?;
        if locked.is_empty() { Ok(()) } else { Err(locked_error(&locked)) }
    }

    /// The resources in the removed groups that do not belong to the stacks.
    pub(super) async fn find_unrecorded(
        &self,
        plan: &DestroyPlan,
    ) -> Result<Vec<UnrecordedResource>, CommandError> {
        find_unrecorded_resources(&self.account.access(), plan, &self.tags).await.map_err(|error| {
            CommandError::unavailable("listing the resources of the groups failed")
                .with_cause(&error)
                .with_hint_of(&error)
        })
    }
}

/// A removal that has not begun.
pub(in crate::commands) struct PlannedRemoval {
    plan: DestroyPlan,
    /// The resources in the removed groups that do not belong to the stacks.
    unrecorded: Vec<UnrecordedResource>,
}

impl PlannedRemoval {
    /// Prints the resources that would be removed, and the groups that stay.
    pub(in crate::commands) fn print(&self) {
        output::print_stderr(&plan_text(&self.plan));
        for group in &self.plan.kept_groups {
            let text = kept_group_text(group);
            output::print_stderr(&output::fit_lines(&text, output::stderr_width()));
        }
    }

    /// Fails if the removed groups contain unrecorded resources, unless they are included.
    pub(in crate::commands) fn check_unrecorded(
        &self,
        include_unrecorded: bool,
    ) -> Result<(), CommandError> {
        if self.unrecorded.is_empty() || include_unrecorded {
            return Ok(());
        }
        let hint = "if they belong to another stack of lanyard, destroy that stack first; otherwise move or delete them, or remove them with the groups by --include-unrecorded";
        Err(unrecorded_error(&self.unrecorded, hint))
    }

    /// Prints the unrecorded resources of the removed groups, which another program removes before the groups.
    pub(in crate::commands) fn print_unrecorded(&self) {
        if !self.unrecorded.is_empty() {
            output::print_stderr(&format!(
                "note: the resource groups to delete also contain resources that are not part of this removal:\n{}",
                id_lines(&self.unrecorded)
            ));
        }
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
    pub(in crate::commands) fn planned(planned: PlannedRemoval) -> Self {
        Self { plan: planned.plan, run: None, is_empty: false }
    }

    /// Whether nothing of the stack is left, also after a failure.
    pub(in crate::commands) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The ids of the resources that the command removed, or planned to remove.
    pub(in crate::commands) fn ids(&self) -> impl Iterator<Item = &ResourceId> {
        self.plan.resources.iter().map(|resource| &resource.id)
    }

    pub(in crate::commands) fn succeeded(&self) -> bool {
        self.run.as_ref().is_none_or(|(report, _)| report.succeeded())
    }

    /// Prints the result in a format.
    pub(in crate::commands) fn print(&self, format: CliOutputFormat) -> CommandResult {
        // Without a run, the table is empty: the plan was printed before.
        if format != CliOutputFormat::Table || self.run.is_some() {
            output::print_value(self, format, |_| self.to_text().unwrap_or_default())?;
        }
        Ok(if self.succeeded() { CommandExit::Success } else { CommandExit::Failed })
    }

    /// The result of the run as text; `None` after `--dry-run`, whose plan was printed before.
    pub(in crate::commands) fn to_text(&self) -> Option<String> {
        self.summary().map(|summary| summary.to_text())
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

pub(super) fn unrecorded_error(unrecorded: &[UnrecordedResource], hint: &str) -> CommandError {
    CommandError::invalid_input(format!(
        "the resource groups to delete also contain resources that are not part of this removal; nothing in Azure was removed:\n{}",
        id_lines(unrecorded)
    ))
    .with_hint(hint)
}

fn locked_error(locked: &[LockedResource]) -> CommandError {
    let line = |LockedResource { lock, id, .. }: &LockedResource| {
        format!("the lock `{lock}` prevents the deletion of `{id}`")
    };
    let lines: Vec<_> = locked.iter().map(line).collect();
    CommandError::unavailable(format!("{}; nothing in Azure was removed", lines.join("\n")))
        .with_hint("remove the lock, or ask the person who set it; then run the command again")
}

/// Why a group stays, what is in it, and how to delete it later.
fn kept_group_text(group: &KeptGroup) -> String {
    let subscription = group.id.arm().map_or("", ArmResourceId::subscription);
    let name = group.id.name();
    format!(
        "note: the resource group `{name}` stays, because it contains resources that are not part of this removal:\n{}\nhint: after the removal, lanyard no longer records the group, and does not delete it; when nothing needs it, run `az group delete --subscription {subscription} --name {name}`",
        group.other_resources.join("\n")
    )
}

fn id_lines(resources: &[UnrecordedResource]) -> String {
    resources.iter().map(|resource| resource.id.as_str()).collect::<Vec<_>>().join("\n")
}

/// The resources that are removed, as a table.
fn plan_text(plan: &DestroyPlan) -> String {
    if plan.resources.is_empty() {
        return "Nothing to remove.".to_owned();
    }
    let mut table = TextTable::new([
        (ColumnKind::Name, "REMOVE"),
        (ColumnKind::Name, "WITH"),
        (ColumnKind::Identifier, "GROUP"),
        (ColumnKind::Identifier, "NAME"),
    ]);
    for row in removed_rows(plan) {
        table.add_row(row);
    }
    table.render(output::stderr_width())
}

/// Key, container that is removed with it, group and name of each resource.
pub(super) fn removed_rows(plan: &DestroyPlan) -> impl Iterator<Item = [&str; 4]> {
    plan.resources.iter().map(|resource| {
        let with = resource.removed_with.as_ref().map_or("", |key| key.as_str());
        [resource.key.as_str(), with, resource.id.group(), resource.id.name()]
    })
}
