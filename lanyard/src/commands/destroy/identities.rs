//! `lanyard destroy identities azure`: removes the identities of an ARO HCP development environment.

use lanyard_changes::{StackError, StackRemoval};
use lanyard_clock::SystemClock;
use lanyard_service_principals::{
    CreatedObjects, Deletion, VaultObjectState, service_principal_components,
};
use serde::Serialize;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::DestroyArgs;
use crate::commands::service_principals::{
    EnvironmentArgs, ServicePrincipalRow, application_key, check_applications, rows_text,
    run_for_each,
};
use crate::exit::{CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy identities azure --prefix harbour-dev --dry-run";

/// Remove the identities of an ARO HCP development environment from Azure
///
/// Removes the applications, certificates and secrets that lanyard created, and the managed identities that the
/// journal of the environment records, with the role of the KMS identity. Objects that other tools created stay. So
/// does the key that encrypts the secrets of clusters: without it, nothing decrypts them. The resource group of the
/// managed identities is removed only if the create command of this environment created it, and stays if it contains
/// anything else.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// Delete applications, certificates and secrets permanently, also those that an earlier run deleted; otherwise
    /// they can be restored for a while
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    destroy: DestroyArgs,
}

/// The result of the command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RemovalDocument {
    service_principals: Vec<ServicePrincipalRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_plane: Option<StackRemoval>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = args.environment.names(service_principal_components(true))?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let tenant = account.caller().await?.tenant;
    let timeout = args.destroy.run.options().retry_timeout;
    let client = args.environment.client(&account, tenant, timeout, &clock)?;
    let stack = args.environment.stack(&account, &environment);
    let recorded = stack.journal(&args.destroy.run.state, &args.destroy.run.lock, &clock)?;
    let known = recorded.read().await?.unwrap_or_default();
    check_applications(&known, &names)?;
    let deletion = if args.purge { Deletion::Permanent } else { Deletion::Recoverable };
    let mut removed = run_for_each(&names, async |names, _| {
        let mut objects = client.find_created(names, deletion).await?;
        // The engine deletes a recorded application, unless it belongs to another client.
        match known.get(&application_key(names.component)) {
            Some(record) if record.ownership.is_ours() => {
                let purged = objects.application.take().filter(|_| args.purge);
                objects.deleted_applications.extend(purged);
            }
            Some(_) => {
                objects.deleted_applications.clear();
                if objects.application.take().is_some() {
                    output::print_stderr(&format!(
                        "{}: the application stays, because it existed before `create identities azure`, which adopts it with --import",
                        names.name
                    ));
                }
            }
            None => {}
        }
        if args.destroy.dry_run {
            output::print_stderr(&format!("{}: would {}", names.name, planned_removal(&objects)));
        }
        Ok(objects)
    })
    .await;
    // What is left of an application whose vault cannot be read would be hard to find.
    let is_found = removed.exit() == CommandExit::Success;
    let data_plane =
        if is_found { stack.remove_if_recorded(&args.destroy, &clock).await? } else { None };
    let succeeded = is_found && data_plane.as_ref().is_none_or(StackRemoval::succeeded);
    // The credentials of an application that cannot be deleted stay.
    if succeeded && !args.destroy.dry_run {
        let deleted = recorded.with_lock(async {
            // Another command may have recorded applications since.
            let journal = recorded.read().await?.unwrap_or_default();
            let delete = removed.continue_each(async |names, before, observer| {
                let key = application_key(names.component);
                let mut objects = client.find_created(names, deletion).await?;
                if journal.get(&key).is_some() {
                    (objects.application, objects.deleted_applications) = (None, Vec::new());
                } else if known.get(&key).is_some() {
                    objects.application = None;
                    objects.deleted_applications.clone_from(&before.deleted_applications);
                }
                client.delete(names, &objects, deletion, observer).await.map(|()| objects)
            });
            delete.await;
            Ok::<_, StackError>(())
        });
        deleted.await??;
    }
    let document = RemovalDocument { service_principals: removed.rows(|_| None), data_plane };
    output::print_value(&document, args.destroy.output.format, |line_width| {
        let resources =
            document.data_plane.iter().filter_map(|it| it.run.as_ref()).map(ToString::to_string);
        let rows = rows_text(&document.service_principals, line_width);
        resources.chain([rows]).collect::<Vec<_>>().join("\n")
    })?;
    Ok(if succeeded { removed.exit() } else { CommandExit::Failed })
}

/// What the removal of these objects does, such as `delete the secret; purge 2 deleted applications`.
fn planned_removal(objects: &CreatedObjects) -> String {
    let (mut deleted, mut purged) = (Vec::new(), Vec::new());
    deleted.extend(objects.application.map(|_| "the application".to_owned()));
    match objects.deleted_applications.len() {
        0 => {}
        1 => purged.push("the deleted application".to_owned()),
        count => purged.push(format!("{count} deleted applications")),
    }
    for (state, name) in [(objects.certificate, "certificate"), (objects.secret, "secret")] {
        match state {
            VaultObjectState::Absent => {}
            VaultObjectState::Live => deleted.push(format!("the {name}")),
            VaultObjectState::Deleted => purged.push(format!("the deleted {name}")),
        }
    }
    let parts = [("delete", deleted), ("purge", purged)];
    let parts = parts.iter().filter(|(_, objects)| !objects.is_empty());
    let parts: Vec<_> = parts.map(|(verb, it)| format!("{verb} {}", it.join(", "))).collect();
    if parts.is_empty() { "delete nothing".to_owned() } else { parts.join("; ") }
}
