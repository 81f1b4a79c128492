//! `lanyard fleet apply`: brings the clusters of a fleet to the state of its file.

use lanyard_changes::RunSummary;
use lanyard_clock::SystemClock;
use serde::Serialize;

use super::FleetArgs;
use crate::commands::azure_account::AccountArgs;
use crate::commands::azure_resources::{RunArgs, plan_and_apply};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard fleet apply --cluster weu-1
  lanyard fleet apply -f shop.yaml \\
    --state https://account.blob.core.windows.net/journals/fleets";

/// Bring the clusters of a fleet to the state of its file
///
/// Changes one cluster after another, in the order of the file, and stops at the first that fails. What is as desired is
/// not written. Run the command again to continue after an interruption.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// The results of a run over a fleet as a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetRun<'a> {
    succeeded: bool,
    clusters: Vec<ClusterRun<'a>>,
    /// The clusters after the one that failed.
    not_started: Vec<&'a str>,
}

#[derive(Serialize)]
struct ClusterRun<'a> {
    cluster: &'a str,
    /// `None` if the plan cannot be applied.
    run: Option<RunSummary>,
}

impl ClusterRun<'_> {
    fn succeeded(&self) -> bool {
        self.run.as_ref().is_some_and(RunSummary::succeeded)
    }

    fn text(&self) -> String {
        let result = self.run.as_ref().map_or_else(
            || "the plan cannot be applied; nothing was written".to_owned(),
            ToString::to_string,
        );
        format!("Cluster {}\n{result}", self.cluster)
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let fleet = args.fleet.sign_in(&args.account, &environment, clock).await?;
    let context = args.run.journal_context(&fleet.account, &environment, &fleet.clock);
    let mut clusters = fleet.clusters();
    let mut runs = Vec::new();
    for cluster in clusters.by_ref() {
        let target = fleet.target(cluster, context, &args.run.state).await?;
        output::print_stderr(&format!("Cluster {}", cluster.name));
        let check = |_: &_| target.findings.clone();
        let report =
            plan_and_apply(&target.stack, &fleet.account, &args.run, &check, &fleet.clock).await?;
        let run = report.map(|report| RunSummary::new(&report, &target.stack));
        runs.push(ClusterRun { cluster: cluster.name.as_str(), run });
        if !runs.iter().all(ClusterRun::succeeded) {
            break;
        }
    }
    let not_started: Vec<_> = clusters.map(|cluster| cluster.name.as_str()).collect();
    let succeeded = runs.iter().all(ClusterRun::succeeded);
    let document = FleetRun { succeeded, clusters: runs, not_started };
    output::print_value(&document, args.output.format, |_| {
        let mut parts: Vec<_> = document.clusters.iter().map(ClusterRun::text).collect();
        if !document.not_started.is_empty() {
            parts.push(format!("Not started: {}", document.not_started.join(", ")));
        }
        parts.join("\n\n")
    })?;
    Ok(if succeeded { CommandExit::Success } else { CommandExit::Failed })
}
