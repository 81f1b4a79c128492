//! `lanyard destroy keyvault azure`: removes a vault that lanyard created.

use std::time::Duration;

use lanyard_azure::{
    ArmBody as _, AzureCallError, OperationStart, PollPolicy, SoftDeletedVault,
    SoftDeletedVaultProperties, VaultBody,
};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::{ResourceStack, RunOptions};
use lanyard_vocabulary::VaultName;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy keyvault azure --name harbour-dev
  lanyard destroy keyvault azure --name harbour-dev --purge";

/// How often and how long the command waits until Azure lists a vault that it has just deleted.
const LIST_ATTEMPTS: u32 = 6;
const LIST_PAUSE: Duration = Duration::from_secs(5);

/// Remove a Key Vault that lanyard created from Azure
///
/// Everything in the vault is deleted with it, also what other tools stored. Azure keeps the deleted vault and its name
/// for the retention time of the vault. `lanyard create keyvault azure --recover` restores it, and --purge deletes it
/// permanently.
///
/// The resource group is removed only if the create command of this vault created it, and stays if it contains anything
/// else.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the vault
    #[arg(long, value_name = "NAME")]
    name: VaultName,
    /// Delete the vault permanently, also one that an earlier run of this command deleted; its name is free then. Azure
    /// rejects this for a vault with purge protection
    #[arg(long)]
    purge: bool,
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
    let removal = stack.recorded(&args.destroy.run, &clock)?.remove(&args.destroy, &clock).await?;
    let exit = removal.print(args.destroy.output.format)?;
    if args.destroy.dry_run {
        if args.purge {
            print_note(&format!("The deleted vault `{}` would be purged.", args.name));
        }
        return Ok(exit);
    }
    if exit != CommandExit::Success {
        return Ok(exit);
    }
    if args.purge {
        purge(&args, &account, removal.has_resources(), &clock).await?;
    } else if let Ok(Some(vault)) = find_deleted_vault(&account, &args.name).await {
        // Without the permission to list deleted vaults, the removal succeeded all the same.
        print_note(&retention_text(&vault));
    }
    Ok(exit)
}

/// Deletes the deleted vault permanently. `was_removed` is whether the command has just deleted the vault.
async fn purge(
    args: &Args,
    account: &AzureAccount,
    was_removed: bool,
    clock: &SharedClock,
) -> Result<(), CommandError> {
    let name = &args.name;
    let attempts = if was_removed { LIST_ATTEMPTS } else { 1 };
    let Some(vault) = wait_for_deleted_vault(account, name, attempts, clock).await? else {
        print_note(&format!("There is no deleted vault `{name}` to purge."));
        return Ok(());
    };
    if vault.properties.purge_protection_enabled {
        return Err(CommandError::unavailable(format!(
            "the deleted vault `{name}` has purge protection, so Azure keeps it and its name until {}",
            purge_date(&vault)
        ))
        .with_hint(format!("restore it with `{}`", recover_command(&vault))));
    }
    let RunOptions { poll_interval: interval, retry_timeout: timeout, .. } =
        args.destroy.run.options();
    let purged = match account.arm.start(&SoftDeletedVault::purge(&vault.id)).await {
        Ok(OperationStart::Pending(operation)) => {
            account.arm.wait(operation, clock, PollPolicy { interval, timeout }).await.map(drop)
        }
        started => started.map(drop),
    };
    purged.map_err(|error| {
        CommandError::unavailable(format!("purging the deleted vault `{name}` failed"))
            .with_cause(&error)
            .with_hint(error.hint())
    })?;
    print_note(&format!("The deleted vault `{name}` is purged, and its name is free."));
    Ok(())
}

/// The deleted vault of this name. Azure may list a deleted vault some seconds after its deletion.
async fn wait_for_deleted_vault(
    account: &AzureAccount,
    name: &VaultName,
    attempts: u32,
    clock: &SharedClock,
) -> Result<Option<SoftDeletedVault>, CommandError> {
    let mut attempt = 1;
    loop {
        let found = find_deleted_vault(account, name).await.map_err(|error| {
            CommandError::unavailable("listing the deleted vaults failed")
                .with_cause(&error)
                .with_hint(error.hint())
        })?;
        if found.is_some() || attempt >= attempts {
            return Ok(found);
        }
        clock.sleep(LIST_PAUSE).await;
        attempt += 1;
    }
}

async fn find_deleted_vault(
    account: &AzureAccount,
    name: &VaultName,
) -> Result<Option<SoftDeletedVault>, AzureCallError> {
    let path = SoftDeletedVault::list_path(&account.subscription);
    let listed = account.arm.list(&path, VaultBody::API_VERSION, &[]).await?;
    let mut vaults =
        listed.into_iter().filter_map(|body| serde_json::from_value::<SoftDeletedVault>(body).ok());
    Ok(vaults.find(|vault| vault.name.eq_ignore_ascii_case(name.as_str())))
}

/// Prints a text for people. Standard output has the result of the removal only.
fn print_note(text: &str) {
    output::print_stderr(&output::fit_lines(text, output::stderr_width()));
}

/// How long Azure keeps a deleted vault, and what the user can do with it.
fn retention_text(vault: &SoftDeletedVault) -> String {
    let (name, date) = (&vault.name, purge_date(vault));
    let purge = if vault.properties.purge_protection_enabled {
        "purge protection prevents an earlier purge"
    } else {
        "to free the name now, run the command again with --purge"
    };
    format!(
        "note: the name `{name}` stays taken until {date}, when Azure purges the deleted vault\nhint: {purge}; to restore the vault, run `{}`",
        recover_command(vault)
    )
}

fn purge_date(vault: &SoftDeletedVault) -> String {
    vault.properties.scheduled_purge_date.strftime("%Y-%m-%d").to_string()
}

/// The command that restores a deleted vault.
fn recover_command(vault: &SoftDeletedVault) -> String {
    let SoftDeletedVaultProperties { vault_id, location, .. } = &vault.properties;
    let (name, group) = (&vault.name, vault_id.resource_group().unwrap_or_default());
    format!(
        "lanyard create keyvault azure --name {name} --resource-group-name {group} --location {location} --recover"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vault(purge_protection: bool) -> SoftDeletedVault {
        let subscription = "/subscriptions/s";
        let deleted = "providers/Microsoft.KeyVault/locations/eastus/deletedVaults/harbour-dev";
        let live = "resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/harbour-dev";
        let vault = json!({
            "id": format!("{subscription}/{deleted}"),
            "name": "harbour-dev",
            "properties": {
                "vaultId": format!("{subscription}/{live}"),
                "location": "eastus",
                "deletionDate": "2026-11-24T00:00:00Z",
                "scheduledPurgeDate": "2027-02-22T13:00:00Z",
                "purgeProtectionEnabled": purge_protection,
            },
        });
        serde_json::from_value(vault).unwrap()
    }

    #[test]
    fn note_about_a_deleted_vault_names_the_date_and_the_next_commands() {
        let recover = "lanyard create keyvault azure --name harbour-dev --resource-group-name os4-common --location eastus --recover";
        for (purge_protection, hint) in [
            (false, "to free the name now, run the command again with --purge"),
            (true, "purge protection prevents an earlier purge"),
        ] {
            assert_eq!(
                retention_text(&vault(purge_protection)),
                format!(
                    "note: the name `harbour-dev` stays taken until 2027-02-22, when Azure purges the deleted vault\nhint: {hint}; to restore the vault, run `{recover}`"
                )
            );
        }
    }
}
