//! `lanyard fleet plan`: shows what `lanyard fleet apply` would change.

use lanyard_changes::CheckedPlan;
use lanyard_clock::SystemClock;
use lanyard_infra::PERMISSIONS_CHECK;
use serde::Serialize;

use super::FleetArgs;
use crate::commands::azure_account::AccountArgs;
use crate::commands::azure_resources::journal_args::{JournalContext, StateArgs};
use crate::commands::azure_resources::report::{PlanDocument, plan_text};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard fleet plan --exit-code
  lanyard fleet plan -f shop.yaml --cluster weu-1 -o json";

/// Show how the clusters of a fleet differ from its file
///
/// Sends GET requests only. The plan of each cluster contains each difference, and what the checks before the first
/// write found.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    /// Exit with 1 also if there are changes; without this flag, only if a plan cannot be applied
    #[arg(long)]
    exit_code: bool,
    /// Do not report missing permissions, for an identity that may only read
    #[arg(long)]
    ignore_missing_permissions: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// The plans of a fleet as a document.
#[derive(Serialize)]
struct FleetPlan<'a> {
    clusters: Vec<ClusterPlan<'a>>,
}

#[derive(Serialize)]
struct ClusterPlan<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    plan: PlanDocument<'a>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let fleet = args.fleet.sign_in(&args.account, &environment, clock).await?;
    let context = JournalContext {
        account: &fleet.account,
        environment: &environment,
        clock: &fleet.clock,
        lock_timeout: None,
    };
    let mut plans: Vec<(&str, CheckedPlan)> = Vec::new();
    for cluster in fleet.fleet.clusters.iter().filter(|it| fleet.is_selected(it)) {
        let target = fleet.target(cluster, context, &args.state).await?;
        let recorded = target.stack.journal.read().await?.unwrap_or_default();
        let mut checked = target.stack.plan(&recorded, &|_| target.findings.clone()).await?;
        if args.ignore_missing_permissions {
            checked.findings.retain(|finding| finding.check != PERMISSIONS_CHECK);
        }
        plans.push((cluster.name.as_str(), checked));
    }
    let document = plans
        .iter()
        .map(|(cluster, checked)| ClusterPlan { cluster, plan: PlanDocument::new(checked) });
    let document = FleetPlan { clusters: document.collect() };
    output::print_value(&document, args.output.format, |line_width| {
        let text = |(cluster, checked): &(&str, CheckedPlan)| {
            format!("Cluster {cluster}\n\n{}", plan_text(checked, line_width).trim_end())
        };
        plans.iter().map(text).collect::<Vec<_>>().join("\n\n")
    })?;
    let is_applicable = plans.iter().all(|(_, checked)| checked.is_applicable());
    let has_changes = plans.iter().any(|(_, checked)| checked.plan.writes().next().is_some());
    if !is_applicable || (args.exit_code && has_changes) {
        return Ok(CommandExit::Failed);
    }
    Ok(CommandExit::Success)
}
