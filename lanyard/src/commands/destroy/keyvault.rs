//! `lanyard destroy keyvault azure`: removes a vault that lanyard created.

use lanyard_azure::{ArmBody as _, PollPolicy, VaultBody};
use lanyard_changes::{ResourceId, RunOptions};
use lanyard_clock::SystemClock;
use lanyard_infra::{DeletedVault, stacks};
use lanyard_vocabulary::{ArmResourceId, VaultName};

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::{DestroyArgs, print_result, remove};
use crate::commands::azure_resources::shared_stack::SharedStack;
use crate::exit::{CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy keyvault azure --name harbour-dev
  lanyard destroy keyvault azure --name harbour-dev --purge";

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
    let has_tags = |deleted: &DeletedVault| {
        tags.are_on(&serde_json::json!({ "tags": deleted.vault.properties.tags }))
    };
    let (arm, subscription, name) = (&account.arm, &account.subscription, &args.name);
    // This run does not remove a vault that is already deleted: only its tags show whether lanyard created it.
    let deleted =
        if args.purge { DeletedVault::find(arm, subscription, name).await? } else { None };
    if let Some(deleted) = &deleted {
        deleted.check_purge(has_tags(deleted))?;
    }
    let recorded = stack.recorded(&args.destroy.run, &clock)?;
    let removal = remove(&recorded, &account, &args.destroy, &clock).await?;
    let exit = print_result(&removal, args.destroy.output.format)?;
    if exit != CommandExit::Success {
        return Ok(exit);
    }
    let removes_vault = removal.ids().filter_map(ResourceId::arm).any(|id| is_vault(id, name));
    if args.destroy.dry_run {
        if args.purge {
            print_note(&dry_run_text(name, deleted.is_some(), removes_vault));
        }
        return Ok(exit);
    }
    if !args.purge {
        // Without the permission to list deleted vaults, the removal succeeded all the same.
        if let Ok(Some(deleted)) = DeletedVault::find(arm, subscription, name).await {
            print_note(&deleted.retention_text(has_tags(&deleted)));
        }
        return Ok(exit);
    }
    let deleted = match deleted {
        Some(deleted) => deleted,
        None if removes_vault => {
            let deleted = DeletedVault::wait(arm, subscription, name, &clock).await?;
            let is_removed = removal.ids().any(|id| *id == deleted.vault.properties.vault_id);
            deleted.check_purge(is_removed || has_tags(&deleted))?;
            deleted
        }
        None => {
            print_note(&no_deleted_vault_text(name));
            return Ok(exit);
        }
    };
    let RunOptions { poll_interval: interval, retry_timeout: timeout, .. } =
        args.destroy.run.options();
    deleted.purge(arm, &clock, PollPolicy { interval, timeout }).await?;
    print_note(&format!("The deleted vault `{name}` is purged, and its name is free."));
    Ok(exit)
}

/// Whether the id is that of a vault with this name.
fn is_vault(id: &ArmResourceId, name: &VaultName) -> bool {
    id.has_type(VaultBody::RESOURCE_TYPE) && id.name().eq_ignore_ascii_case(name.as_str())
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
