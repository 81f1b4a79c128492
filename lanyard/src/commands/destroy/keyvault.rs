//! `lanyard destroy keyvault azure`: removes a vault that lanyard created.

use std::time::Duration;

use lanyard_azure::{
    ArmBody as _, AzureCallError, OperationStart, PollPolicy, SoftDeletedVault,
    SoftDeletedVaultProperties, VaultBody,
};
use lanyard_changes::{ResourceId, RunOptions};
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_infra::stacks;
use lanyard_vocabulary::{ArmResourceId, VaultName};

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::{CommandError, CommandExit, CommandResult, ResultExt as _};
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
        stack: stacks::KEYVAULT,
        environment: &environment,
    };
    let tags = stack.ownership_tags()?;
    let has_tags = |vault: &SoftDeletedVault| {
        tags.are_on(&serde_json::json!({ "tags": vault.properties.tags }))
    };
    // This run does not remove a vault that is already deleted: only its tags show whether lanyard created it.
    let deleted = if args.purge { list_deleted_vault(&account, &args.name).await? } else { None };
    if let Some(vault) = &deleted {
        check_purge(vault, has_tags(vault))?;
    }
    let removal = stack.recorded(&args.destroy.run, &clock)?.remove(&args.destroy, &clock).await?;
    let exit = removal.print(args.destroy.output.format)?;
    if exit != CommandExit::Success {
        return Ok(exit);
    }
    let removes_vault =
        removal.ids().filter_map(ResourceId::arm).any(|id| is_vault(id, &args.name));
    if args.destroy.dry_run {
        if args.purge {
            print_note(&dry_run_text(&args.name, deleted.is_some(), removes_vault));
        }
        return Ok(exit);
    }
    if !args.purge {
        // Without the permission to list deleted vaults, the removal succeeded all the same.
        if let Ok(Some(vault)) = find_deleted_vault(&account, &args.name).await {
            print_note(&retention_text(&vault, has_tags(&vault)));
        }
        return Ok(exit);
    }
    let vault = match deleted {
        Some(vault) => vault,
        None if removes_vault => {
            let vault = wait_for_deleted_vault(&account, &args.name, &clock).await?;
            let is_removed = removal.ids().any(|id| *id == vault.properties.vault_id);
            check_purge(&vault, is_removed || has_tags(&vault))?;
            vault
        }
        None => {
            print_note(&no_deleted_vault_text(&args.name));
            return Ok(exit);
        }
    };
    purge(&vault, &args, &account, &clock).await?;
    Ok(exit)
}

/// Whether the id is that of a vault with this name.
fn is_vault(id: &ArmResourceId, name: &VaultName) -> bool {
    id.has_type(VaultBody::RESOURCE_TYPE) && id.name().eq_ignore_ascii_case(name.as_str())
}

/// Fails if lanyard must not purge the deleted vault, or Azure rejects it. `is_ours` is whether lanyard created the
/// vault, or this run removed it.
fn check_purge(vault: &SoftDeletedVault, is_ours: bool) -> Result<(), CommandError> {
    let name = &vault.name;
    if !is_ours {
        return Err(CommandError::invalid_input(format!(
            "lanyard did not create the deleted vault `{name}`, and does not purge it"
        ))
        .with_hint(format!(
            "to purge the vault, run `{}`; without --purge, this command removes what the journal records",
            purge_command(name)
        )));
    }
    if vault.properties.purge_protection_enabled {
        return Err(CommandError::unavailable(format!(
            "the deleted vault `{name}` has purge protection, so Azure keeps it and its name until {}",
            purge_date(vault)
        ))
        .with_hint(format!("restore it with `{}`", recover_command(vault))));
    }
    Ok(())
}

/// Deletes the deleted vault permanently.
async fn purge(
    vault: &SoftDeletedVault,
    args: &Args,
    account: &AzureAccount,
    clock: &SharedClock,
) -> Result<(), CommandError> {
    let name = &args.name;
    let RunOptions { poll_interval: interval, retry_timeout: timeout, .. } =
        args.destroy.run.options();
    let purged = match account.arm.start(&SoftDeletedVault::purge(&vault.id)).await {
        Ok(OperationStart::Pending(operation)) => {
            account.arm.wait(operation, clock, PollPolicy { interval, timeout }).await.map(drop)
        }
        started => started.map(drop),
    };
    purged.context(format_args!("purging the deleted vault `{name}` failed"))?;
    print_note(&format!("The deleted vault `{name}` is purged, and its name is free."));
    Ok(())
}

/// The vault that this run deleted. Azure may list a deleted vault some seconds after its deletion.
async fn wait_for_deleted_vault(
    account: &AzureAccount,
    name: &VaultName,
    clock: &SharedClock,
) -> Result<SoftDeletedVault, CommandError> {
    let mut attempt = 1;
    loop {
        if let Some(vault) = list_deleted_vault(account, name).await? {
            return Ok(vault);
        }
        if attempt >= LIST_ATTEMPTS {
            return Err(CommandError::unavailable(format!(
                "the vault `{name}` is removed, but Azure does not list it as a deleted vault, so it is not purged"
            ))
            .with_hint("run the command again with --purge"));
        }
        clock.sleep(LIST_PAUSE).await;
        attempt += 1;
    }
}

/// The deleted vault of this name, or why Azure does not list the deleted vaults.
async fn list_deleted_vault(
    account: &AzureAccount,
    name: &VaultName,
) -> Result<Option<SoftDeletedVault>, CommandError> {
    find_deleted_vault(account, name).await.context("listing the deleted vaults failed")
}

/// The deleted vault of this name in the subscription.
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

/// What `--dry-run --purge` knows about the purge. `is_deleted` is whether the vault is deleted before the removal.
fn dry_run_text(name: &VaultName, is_deleted: bool, removes_vault: bool) -> String {
    match (is_deleted, removes_vault) {
        (true, _) => format!("The deleted vault `{name}` would be purged."),
        (false, true) => format!(
            "After its removal, the vault `{name}` would be purged, unless it has purge protection."
        ),
        (false, false) => no_deleted_vault_text(name),
    }
}

fn no_deleted_vault_text(name: &VaultName) -> String {
    format!("There is no deleted vault `{name}` to purge.")
}

/// How long Azure keeps a deleted vault, and what the user can do with it. `has_tags` is whether a later run of this
/// command may purge it.
fn retention_text(vault: &SoftDeletedVault, has_tags: bool) -> String {
    let (name, date) = (&vault.name, purge_date(vault));
    let purge = if vault.properties.purge_protection_enabled {
        "purge protection prevents an earlier purge".to_owned()
    } else if has_tags {
        "to free the name now, run the command again with --purge".to_owned()
    } else {
        format!("to free the name now, run `{}`", purge_command(name))
    };
    format!(
        "note: the name `{name}` stays taken until {date}, when Azure purges the deleted vault\nhint: {purge}; to restore the vault, run `{}`",
        recover_command(vault)
    )
}

fn purge_date(vault: &SoftDeletedVault) -> String {
    vault.properties.scheduled_purge_date.strftime("%Y-%m-%d").to_string()
}

/// The command that purges a deleted vault of another owner.
fn purge_command(name: &str) -> String {
    format!("az keyvault purge --name {name}")
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
        for (purge_protection, has_tags, hint) in [
            (false, true, "to free the name now, run the command again with --purge"),
            (false, false, "to free the name now, run `az keyvault purge --name harbour-dev`"),
            (true, true, "purge protection prevents an earlier purge"),
        ] {
            assert_eq!(
                retention_text(&vault(purge_protection), has_tags),
                format!(
                    "note: the name `harbour-dev` stays taken until 2027-02-22, when Azure purges the deleted vault\nhint: {hint}; to restore the vault, run `{recover}`"
                )
            );
        }
    }

    #[test]
    fn vault_of_another_owner_is_not_purged() {
        check_purge(&vault(false), true).unwrap();
        for purge_protection in [false, true] {
            let error = check_purge(&vault(purge_protection), false).unwrap_err();
            assert!(!error.is_unavailable());
            let text = error.to_string();
            for part in [
                "lanyard did not create the deleted vault `harbour-dev`",
                "`az keyvault purge --name harbour-dev`",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert!(check_purge(&vault(true), true).unwrap_err().is_unavailable());
    }
}
