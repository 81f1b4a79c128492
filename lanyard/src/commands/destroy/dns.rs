//! `lanyard destroy dns azure`: removes a public DNS zone that lanyard created.

use lanyard_clock::SystemClock;
use lanyard_infra::{BaseDomain, stacks};

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy dns azure --zone dev.example.com";

/// Remove a public DNS zone that lanyard created from Azure
///
/// Removes the delegation in the parent zone first. The resource group is removed only if the create command of this
/// zone created it, and stays if it contains anything else.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the zone
    #[arg(long, value_name = "DOMAIN")]
    zone: BaseDomain,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: args.zone.as_str(),
        stack: stacks::DNS,
        environment: &environment,
    };
    stack.destroy(&args.destroy, &clock).await
}
