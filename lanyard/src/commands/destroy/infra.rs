//! `lanyard destroy infra azure`: removes the infrastructure of one hosted cluster.

use lanyard_infra::stacks;

use crate::commands::azure_resources::destroy_stack::{
    ClusterArgs, DestroyArgs, destroy_cluster_stack,
};
use crate::commands::go_bool::GoBool;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy infra azure --name harbour --infra-id harbour-x7k2p --azure-creds creds.json";

/// Remove the infrastructure of a hosted cluster from Azure
///
/// Removes the resources of the stack `infra` that the journal records as created or imported, in reverse order.
/// Resources of the user stay: a resource group that existed before is never deleted, nor are existing networks.
///
/// If a resource group to remove contains resources that neither the journal nor a tag of the cluster records, the
/// command ends with an error before the first deletion. --include-unrecorded deletes them with the group.
/// Machines, disks and addresses of the cluster's own controllers are removed with the group; they have a tag with
/// the infrastructure id. A lock that prevents a deletion ends the command before the first one. Run the command again
/// to continue after an interruption.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Accepted for compatibility with HyperShift; groups that existed before are always kept
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    preserve_resource_group: GoBool,
    /// Accepted for compatibility with HyperShift; the journal names the resource groups
    #[arg(long, hide = true, value_name = "NAME")]
    resource_group_name: Option<String>,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    destroy_cluster_stack(&args.cluster, &args.destroy, stacks::INFRA, &environment).await
}
