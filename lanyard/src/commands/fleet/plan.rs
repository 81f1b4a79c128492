//! `lanyard fleet plan`: shows what `lanyard fleet apply` would change.

use lanyard_changes::CheckedPlan;
use lanyard_clock::SystemClock;
use lanyard_fleet::FleetCluster;
use lanyard_infra::PERMISSIONS_CHECK;
use serde::Serialize;

use super::{FleetArgs, SignedInFleet};
use crate::commands::azure_account::AccountArgs;
use crate::commands::azure_resources::journal_args::{JournalContext, StateArgs};
use crate::commands::azure_resources::report::{PlanDocument, plan_text};
use crate::exit::{CommandError, CommandExit, CommandResult};
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
    plan: Option<PlanDocument<'a>>,
    /// Why there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
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
    let mut plans: Vec<(&str, Result<CheckedPlan, CommandError>)> = Vec::new();
    for cluster in fleet.fleet.clusters.iter().filter(|it| fleet.is_selected(it)) {
        let mut planned = plan(&fleet, cluster, context, &args.state).await;
        if let (Ok(checked), true) = (&mut planned, args.ignore_missing_permissions) {
            checked.findings.retain(|finding| finding.check != PERMISSIONS_CHECK);
        }
        plans.push((cluster.name.as_str(), planned));
    }
    let document = plans.iter().map(|(cluster, planned)| ClusterPlan {
        cluster,
        plan: planned.as_ref().ok().map(PlanDocument::new),
        error: planned.as_ref().err().map(ToString::to_string),
    });
    let document = FleetPlan { clusters: document.collect() };
    output::print_value(&document, args.output.format, |line_width| {
        let text = |(cluster, planned): &(&str, Result<CheckedPlan, CommandError>)| {
            let text = match planned {
                Ok(checked) => plan_text(checked, line_width),
                Err(error) => error.to_string(),
            };
            format!("Cluster {cluster}\n\n{}", text.trim_end())
        };
        plans.iter().map(text).collect::<Vec<_>>().join("\n\n")
    })?;
    let is_applicable =
        plans.iter().all(|(_, it)| it.as_ref().is_ok_and(CheckedPlan::is_applicable));
    let mut checked = plans.iter().filter_map(|(_, planned)| planned.as_ref().ok());
    let has_changes = checked.any(|checked| checked.plan.writes().next().is_some());
    if !is_applicable || (args.exit_code && has_changes) {
        return Ok(CommandExit::Failed);
    }
    Ok(CommandExit::Success)
}

/// Plans one cluster.
async fn plan(
    fleet: &SignedInFleet,
    cluster: &FleetCluster,
    context: JournalContext<'_>,
    state: &StateArgs,
) -> Result<CheckedPlan, CommandError> {
    let target = fleet.target(cluster, context, state).await?;
    let recorded = target.stack.journal.read().await?.unwrap_or_default();
    Ok(target.stack.plan(&recorded, &|_| target.findings.clone()).await?)
}
