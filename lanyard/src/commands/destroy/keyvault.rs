//! `lanyard destroy keyvault azure`: removes a vault that lanyard created.

use lanyard_clock::SystemClock;
use lanyard_infra::ResourceStack;
use lanyard_vocabulary::VaultName;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy keyvault azure --name harbour-dev";

/// Remove a Key Vault that lanyard created from Azure
///
/// Everything in the vault is deleted with it, also what other tools stored. Azure keeps the deleted vault and its name
/// for the retention time of the vault. `lanyard create keyvault azure --recover` restores it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the vault
    #[arg(long, value_name = "NAME")]
    name: VaultName,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: args.name.as_str(),
        stack: ResourceStack::Keyvault,
        environment: &environment,
    };
    stack.destroy(&args.destroy, &clock).await
}
