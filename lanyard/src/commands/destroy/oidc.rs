//! `lanyard destroy oidc azure`: removes a token issuer that lanyard created.

use lanyard_clock::SystemClock;
use lanyard_infra::stacks;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy oidc azure --name harbourdev";

/// Remove a token issuer that lanyard created from Azure
///
/// Entra ID rejects the tokens of the issuer soon afterwards, so remove its clusters first. The key pair in the
/// output directory stays.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the issuer
    #[arg(long, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    destroy: DestroyArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: &args.name,
        stack: stacks::OIDC,
        environment: &environment,
    };
    stack.destroy(&args.destroy, &clock).await
}
