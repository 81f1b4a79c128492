//! `lanyard apply azure`: creates and repairs the Azure resources of a cluster.

use std::path::PathBuf;

use lanyard_changes::role_principals;
use lanyard_clock::SystemClock;

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::RunArgs;
use super::azure_resources::cluster_configuration::RawConfiguration;
use super::azure_resources::cluster_target::{ClusterTarget, OutputPaths, recorded_cluster};
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
    if args.roll_back.roll_back {
        let principals = async || {
            let target = ClusterTarget::load(context, &configuration, &args.run.state).await?;
            Ok(role_principals(&target.stack.graph))
        };
        let recorded = recorded_cluster(context, &configuration, &args.run.state)?;
        return recorded.roll_back(&args.run, args.output.format, principals, &clock).await;
    }
    let target = ClusterTarget::load(context, &configuration, &args.run.state).await?;
    let outputs = OutputPaths { infra: args.infra_output_file, iam: args.iam_output_file };
    target.apply(&args.run, args.output.format, &outputs, &clock).await
}
