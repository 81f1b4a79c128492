//! `lanyard fleet apply`: brings the clusters of a fleet to the state of its file.

use lanyard_changes::{
    CheckedPlan, ProgressEvent, ProgressObserver, ResourceKey, RunSettings, RunSummary,
};
use lanyard_clock::SystemClock;
use lanyard_fleet::{FleetCluster, FleetLabel, Wave, run_waves};
use serde::Serialize;
use serde_json::Value;

use super::{FleetArgs, SignedInFleet};
use crate::commands::azure_account::AccountArgs;
use crate::commands::azure_resources::RunArgs;
use crate::commands::azure_resources::journal_args::JournalContext;
use crate::commands::azure_resources::progress::ProgressOutput;
use crate::commands::azure_resources::report::{PlanDocument, print_plan};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard fleet apply --cluster weu-1
  lanyard fleet apply --wave canary
  lanyard fleet apply -f shop.yaml \\
    --state https://account.blob.core.windows.net/journals/fleets";

/// Bring the clusters of a fleet to the state of its file
///
/// Changes the clusters in the waves of the file; without waves, one after another. If more clusters of a wave fail than
/// it allows, no further one is started. What is as desired is not written. Run the command again to continue after an
/// interruption.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    /// Only the wave with this name; can be repeated
    #[arg(long = "wave", value_name = "NAME")]
    waves: Vec<String>,
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
    /// The clusters that were not started, because too many others failed.
    not_started: Vec<&'a str>,
}

#[derive(Serialize)]
struct ClusterRun<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    result: ClusterResult,
}

#[derive(Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
enum ClusterResult {
    /// The plan was applied. Single resources can have failed.
    Applied { run: RunSummary },
    /// The plan has problems. Nothing was written.
    PlanRejected { plan: Value },
    /// Nothing was written, or the journal cannot be written.
    Failed { error: String },
}

/// Reports the progress of one cluster.
#[derive(Debug)]
struct ClusterProgress<'a> {
    cluster: &'a FleetLabel,
    output: &'a ProgressOutput,
}

impl ProgressObserver for ClusterProgress<'_> {
    fn observe(&self, event: &ProgressEvent) {
        let key = ResourceKey::new(format!("{}/{}", self.cluster, event.key));
        self.output.observe(&ProgressEvent { key, ..event.clone() });
    }
}

impl ClusterResult {
    fn succeeded(&self) -> bool {
        matches!(self, Self::Applied { run } if run.succeeded())
    }
}

impl ClusterRun<'_> {
    fn text(&self) -> String {
        let result = match &self.result {
            ClusterResult::Applied { run } => run.to_string(),
            ClusterResult::PlanRejected { .. } => {
                "the plan cannot be applied; nothing was written".to_owned()
            }
            ClusterResult::Failed { error } => error.clone(),
        };
        format!("Cluster {}\n{result}", self.cluster)
    }
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let fleet = args.fleet.sign_in(&args.account, &environment, clock).await?;
    let context = args.run.journal_context(&fleet.account, &environment, &fleet.clock);
    let mut waves = fleet.fleet.waves(|cluster| fleet.is_selected(cluster));
    let name_of = |wave: &Wave<'_>| wave.name.map_or("", FleetLabel::as_str).to_owned();
    let known: Vec<_> = waves.iter().map(name_of).collect();
    if let Some(unknown) = args.waves.iter().find(|name| !known.contains(name)) {
        let message = format!("--wave: no wave `{unknown}` has a selected cluster");
        return Err(CommandError::invalid_input(message)
            .with_hint("correct --wave, or `rollout.waves` of the file"));
    }
    waves.retain(|wave| args.waves.is_empty() || args.waves.contains(&name_of(wave)));
    let progress = args.run.progress();
    let change = async |cluster| {
        let applied = apply(&fleet, cluster, context, &args.run, &progress).await;
        applied.unwrap_or_else(|error| ClusterResult::Failed { error: error.to_string() })
    };
    let has_failed = |result: &ClusterResult| !result.succeeded();
    let rollout = run_waves(&waves, &fleet.clock, change, has_failed).await;
    progress.end();
    let clusters = rollout.ended.into_iter();
    let clusters: Vec<_> = clusters
        .map(|(cluster, result)| ClusterRun { cluster: cluster.name.as_str(), result })
        .collect();
    let not_started: Vec<_> = rollout.not_started.iter().map(|it| it.name.as_str()).collect();
    let succeeded = not_started.is_empty() && clusters.iter().all(|it| it.result.succeeded());
    let document = FleetRun { succeeded, clusters, not_started };
    output::print_value(&document, args.output.format, |_| {
        let mut parts: Vec<_> = document.clusters.iter().map(ClusterRun::text).collect();
        if !document.not_started.is_empty() {
            parts.push(format!("Not started: {}", document.not_started.join(", ")));
        }
        parts.join("\n\n")
    })?;
    Ok(if succeeded { CommandExit::Success } else { CommandExit::Failed })
}

/// Plans, checks and applies one cluster. Prints the plan before the first write.
async fn apply(
    fleet: &SignedInFleet,
    cluster: &FleetCluster,
    context: JournalContext<'_>,
    run: &RunArgs,
    progress: &ProgressOutput,
) -> Result<ClusterResult, CommandError> {
    let target = fleet.target(cluster, context, &run.state).await?;
    let caller = &fleet.account.caller().await?.creator_names;
    let progress = &ClusterProgress { cluster: &cluster.name, output: progress };
    let settings = RunSettings { caller, clock: &fleet.clock, progress, options: run.options() };
    let check = |_: &_| target.findings.clone();
    let mut plan = Value::Null;
    let on_plan = |checked: &CheckedPlan| {
        plan = serde_json::to_value(PlanDocument::new(checked)).unwrap_or_default();
        output::print_stderr(&format!("Cluster {}", cluster.name));
        print_plan(checked);
    };
    let report = target.stack.apply(settings, &check, on_plan).await?;
    Ok(match report {
        Some(report) => ClusterResult::Applied { run: RunSummary::new(&report, &target.stack) },
        None => ClusterResult::PlanRejected { plan },
    })
}
