//! `lanyard create keyvault azure`: creates a vault for the credentials of hosted clusters.

use lanyard_azure::AssignedPrincipalType;
use lanyard_changes::PrincipalReference;
use lanyard_clock::SystemClock;
use lanyard_infra::{DEFAULT_LOCATION, KeyvaultParameters, keyvault_resources, stacks};
use lanyard_vocabulary::VaultName;
use uuid::Uuid;

use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandExit, CommandResult};
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create keyvault azure --name harbour-dev --resource-group-name os4-common \\
    --secret-reader 11111111-1111-1111-1111-111111111111";

/// Create or change a Key Vault for the credentials of hosted clusters in Azure
///
/// The vault uses Azure roles. The signed-in identity gets Key Vault Administrator, and each --secret-reader Key
/// Vault Secrets User, both at the vault and not at its resource group. Azure may need 10 minutes until new roles
/// take effect.
///
/// A later run changes resources that differ from the flags. It deletes resources that an earlier run created and
/// the flags no longer describe, for example the role of an object id that --secret-reader no longer names.
///
/// Each identity that runs the command gets a role of its own, which stays when another identity runs the command.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the vault: 3 to 24 letters, digits and `-`, unique in the cloud
    #[arg(long, value_name = "NAME")]
    name: VaultName,
    /// The resource group, which is created if it does not exist
    #[arg(long, default_value = "os4-common", value_name = "NAME")]
    resource_group_name: String,
    /// The region
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    /// The object id of a service principal that reads secrets, such as the Secrets Store add-on; can be repeated
    #[arg(long, value_name = "OBJECT-ID")]
    secret_reader: Vec<Uuid>,
    /// Keep deleted objects until their retention ends; cannot be switched off later
    #[arg(long)]
    enable_purge_protection: bool,
    /// Restore a deleted vault of the same name with its content
    #[arg(long)]
    recover: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: args.name.as_str(),
        stack: stacks::KEYVAULT,
        environment: &environment,
    };
    if args.roll_back.roll_back {
        return stack.roll_back(&args.run, args.output.format, &clock).await;
    }
    let caller = account.caller().await?;
    let administrator = match caller.principal_type {
        AssignedPrincipalType::User => PrincipalReference::User(caller.object_id),
        _ => PrincipalReference::ObjectId(caller.object_id),
    };
    let parameters = KeyvaultParameters {
        subscription: account.subscription.clone(),
        resource_group: args.resource_group_name.clone(),
        location: args.location.clone(),
        name: args.name.clone(),
        tenant: caller.tenant,
        purge_protection: args.enable_purge_protection,
        recover: args.recover,
        administrator: Some(administrator),
        secret_readers: args.secret_reader.clone(),
    };
    let resources = keyvault_resources(&parameters);
    let created = stack.create(resources, &args.run, args.output.format, &clock).await?;
    Ok(if created.is_some() { CommandExit::Success } else { CommandExit::Failed })
}
