//! `lanyard destroy aks azure`: removes a management cluster that lanyard created.

use lanyard_clock::SystemClock;
use lanyard_infra::stacks;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy aks azure --prefix harbour-dev";

/// Remove a management cluster that lanyard created from Azure
///
/// Removes the cluster, its resource group, the identities and their roles. The resource group of the nodes, which
/// AKS creates itself, goes with the cluster. The persistent resource group of the identities is removed only if the
/// create command of this cluster created it, and stays if it contains anything else.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The prefix of the environment, which ends the names of the components' identities (`cpo-PREFIX`) and
    /// begins the name of the management cluster (`PREFIX-aks-cluster`)
    #[arg(long, value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: &args.prefix,
        stack: stacks::AKS,
        environment: &environment,
    };
    stack.destroy(&args.destroy, &clock).await
}
