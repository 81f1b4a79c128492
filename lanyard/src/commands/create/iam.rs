//! `lanyard create iam azure`: creates the identities of one self-managed hosted cluster.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_infra::{DEFAULT_LOCATION, RawConfiguration, RawIam};

use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::RunArgs;
use crate::commands::azure_resources::cluster_stacks::ClusterRun;
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::exit::CommandResult;
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create iam azure --name harbour --infra-id harbour-x7k2p \\
    --resource-group-name identities --azure-creds creds.json \\
    --oidc-issuer-url https://account.blob.core.windows.net/container \\
    --output-file iam.json";

/// Create or change the identities of a self-managed hosted cluster in Azure
///
/// Creates a managed identity for each component, and a federated credential for each of its service accounts.
/// The output file contains the client ids. The resource group is created if it does not exist.
///
/// A later run changes resources that differ from the flags. It deletes resources that an earlier run created and
/// the flags no longer describe, for example the identity of KMS without --enable-kms.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the hosted cluster
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The infrastructure id, a part of the names of all identities
    #[arg(long, value_name = "ID")]
    infra_id: String,
    /// The resource group of the identities
    #[arg(long, value_name = "NAME")]
    resource_group_name: String,
    /// The URL of the cluster's token issuer
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: String,
    /// The region
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    /// Also create the identity that encrypts secrets with a key in a vault
    #[arg(long)]
    enable_kms: bool,
    /// Write the client ids of the identities as JSON
    #[arg(long, value_name = "FILE")]
    output_file: PathBuf,
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
    let raw = RawConfiguration {
        name: Some(args.name.clone()),
        infra_id: Some(args.infra_id.clone()),
        location: Some(args.location.clone()),
        infra: None,
        iam: Some(RawIam {
            resource_group_name: Some(args.resource_group_name.clone()),
            oidc_issuer_url: Some(args.oidc_issuer_url.clone()),
            enable_kms: args.enable_kms,
        }),
    };
    let configuration = raw.parse()?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let context = args.run.journal_context(&account, &environment, &clock);
    let run = ClusterRun {
        context,
        run: &args.run,
        roll_back: args.roll_back,
        format: args.output.format,
        infra_output: None,
        iam_output: Some(args.output_file),
    };
    run.apply(&configuration).await
}
