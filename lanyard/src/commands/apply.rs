//! `lanyard apply azure`: creates and repairs the Azure resources of a cluster.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_infra::RawConfiguration;

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::RunArgs;
use super::azure_resources::cluster_stacks::ClusterRun;
use super::azure_resources::roll_back::RollBackArgs;
use crate::exit::CommandResult;
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard apply azure -f cluster.yaml --infra-output-file infra.yaml
  lanyard apply azure -f cluster.yaml \\
    --state https://account.blob.core.windows.net/journals/harbour";

/// Create and repair the Azure resources of a cluster
///
/// Creates what is missing, changes what differs, and deletes what an earlier run created and the file no longer
/// contains. `lanyard plan azure` shows these changes. Resources that are as configured are not written. Run the command again to continue after an interruption, or with --roll-back to undo the interrupted run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The configuration file of the cluster, see `lanyard plan azure --help`
    #[arg(long, short = 'f', value_name = "FILE")]
    filename: PathBuf,
    /// Write the infrastructure output, which `create cluster azure --infra-json` reads, as YAML
    #[arg(long, value_name = "FILE")]
    infra_output_file: Option<PathBuf>,
    /// Write the client ids of the created identities as JSON
    #[arg(long, value_name = "FILE")]
    iam_output_file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let configuration = RawConfiguration::read(&args.filename)?.parse()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let context = args.run.journal_context(&account, &environment, &clock);
    let run = ClusterRun {
        context,
        run: &args.run,
        roll_back: args.roll_back,
        format: args.output.format,
        infra_output: args.infra_output_file,
        iam_output: args.iam_output_file,
    };
    run.apply(&configuration).await
}
