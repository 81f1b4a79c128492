//! Removes stacks of resources that a journal records.

use lanyard_changes::{
    DestroyPlan, KeptGroup, PlannedRemoval, RecordedStacks, RecordedState, RunOptions, RunSettings,
    StackName, StackRemoval,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{AzureSubscription, ClusterIdentifiers};
use lanyard_vocabulary::ArmResourceId;

use super::{RunArgs, subscription_of};
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _};
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
        let name = self.name.parse().or_invalid("--name")?;
        let infra_id = self.infra_id.parse().or_invalid("--infra-id")?;
        ClusterIdentifiers::new(name, infra_id).or_invalid("--infra-id")
    }
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
        recorded_cluster_stacks(&account, &identifiers, stacks, run, environment, &clock)?;
    print_result(&remove(&recorded, &account, args, &clock).await?, args.output.format)
}

/// Stacks of a cluster, with the journal of the cluster.
pub(in crate::commands) fn recorded_cluster_stacks(
    account: &AzureAccount,
    identifiers: &ClusterIdentifiers,
    stacks: Vec<StackName>,
    run: &RunArgs,
    environment: &ProcessEnvironment,
    clock: &SharedClock,
) -> Result<RecordedStacks<AzureSubscription>, CommandError> {
    let cluster = identifiers.journal_cluster(&account.subscription);
    let context = run.journal_context(account, environment, clock);
    let journal = run.state.journal(context, cluster, identifiers.infra_id().as_str())?;
    let (rules, tags) = (subscription_of(account), identifiers.ownership_tags());
    Ok(RecordedStacks { rules, journal, tags, stacks })
}

/// Removes the resources of the stacks.
pub(in crate::commands) async fn remove(
    recorded: &RecordedStacks<AzureSubscription>,
    account: &AzureAccount,
    args: &DestroyArgs,
    clock: &SharedClock,
) -> Result<StackRemoval, CommandError> {
    let known = recorded.read_recorded().await?;
    if args.dry_run {
        let planned = recorded.plan(&known).await?;
        print_removal(&planned);
        recorded.check(&planned, args.include_unrecorded).await?;
        return Ok(StackRemoval::planned(planned));
    }
    remove_planned(recorded, account, &args.run, args.include_unrecorded, clock, async |state| {
        let planned = recorded.plan(&state).await?;
        print_removal(&planned);
        Ok(planned)
    })
    .await
}

/// Plans, checks and removes, as [`RecordedStacks::remove`].
pub(in crate::commands) async fn remove_planned(
    recorded: &RecordedStacks<AzureSubscription>,
    account: &AzureAccount,
    run: &RunArgs,
    include_unrecorded: bool,
    clock: &SharedClock,
    plan: impl AsyncFnOnce(RecordedState) -> Result<PlannedRemoval, CommandError>,
) -> Result<StackRemoval, CommandError> {
    let caller = &account.caller().await?.creator_names;
    let options = RunOptions { removes_unrecorded: include_unrecorded, ..run.options() };
    let progress = &run.progress();
    let settings = RunSettings { caller, clock, progress, options };
    let removal = recorded.remove(settings, plan).await;
    progress.end();
    removal
}

/// Prints the resources that would be removed, and the groups that stay.
pub(in crate::commands) fn print_removal(planned: &PlannedRemoval) {
    output::print_stderr(&plan_text(&planned.plan));
    for group in &planned.plan.kept_groups {
        let text = kept_group_text(group);
        output::print_stderr(&output::fit_lines(&text, output::stderr_width()));
    }
}

/// Prints the unrecorded resources of the removed groups, which another program removes before the groups.
pub(in crate::commands) fn print_unrecorded(planned: &PlannedRemoval) {
    if !planned.unrecorded.is_empty() {
        let ids: Vec<_> = planned.unrecorded.iter().map(|it| it.id.as_str()).collect();
        output::print_stderr(&format!(
            "note: the resource groups to delete also contain resources that are not part of this removal:\n{}",
            ids.join("\n")
        ));
    }
}

/// Prints the result in a format.
pub(in crate::commands) fn print_result(
    removal: &StackRemoval,
    format: CliOutputFormat,
) -> CommandResult {
    // Without a run, the table is empty: the plan was printed before.
    if format != CliOutputFormat::Table || removal.run.is_some() {
        let text = removal.run.as_ref().map(ToString::to_string);
        output::print_value(removal, format, |_| text.unwrap_or_default())?;
    }
    Ok(if removal.succeeded() { CommandExit::Success } else { CommandExit::Failed })
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

/// Key, the container whose deletion removes it, group and name of each resource.
pub(super) fn removed_rows(plan: &DestroyPlan) -> impl Iterator<Item = [&str; 4]> {
    plan.resources.iter().map(|resource| {
        let with = resource.removed_with.as_ref().map_or("", |key| key.as_str());
        [resource.key.as_str(), with, resource.id.group(), resource.id.name()]
    })
}
