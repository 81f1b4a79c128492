//! `lanyard destroy iam azure`: removes the identities of one self-managed hosted cluster.

use std::path::PathBuf;

use lanyard_infra::stacks;

use crate::commands::azure_resources::destroy_stack::{
    ClusterArgs, DestroyArgs, destroy_cluster_stack,
};
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy iam azure --name harbour --infra-id harbour-x7k2p --azure-creds creds.json";

/// Remove the identities of a self-managed hosted cluster from Azure
///
/// Removes the managed identities and federated credentials that the journal records as created or imported.
/// Their role assignments belong to the infrastructure: remove them first with `lanyard destroy infra azure`.
/// The resource group is removed only if the create command of this cluster created it, and stays if it contains
/// anything else.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Accepted for compatibility with HyperShift; the journal names the identities
    #[arg(long, hide = true, value_name = "FILE")]
    workload_identities_file: Option<PathBuf>,
    /// Accepted for compatibility with HyperShift; the journal names the resource group
    #[arg(long, hide = true, value_name = "NAME")]
    resource_group_name: Option<String>,
    /// Accepted for compatibility with HyperShift; the journal names the role assignments
    #[arg(long, hide = true, value_name = "NAME")]
    dns_zone_rg_name: Option<String>,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    destroy_cluster_stack(&args.cluster, &args.destroy, stacks::IAM, &environment).await
}
