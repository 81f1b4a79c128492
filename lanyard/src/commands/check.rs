//! `lanyard check azure`: shows what the signed-in identity may do for each command.

use clap::builder::PossibleValuesParser;
use lanyard_azure::{ArmBody as _, VaultBody};
use lanyard_clock::SystemClock;
use lanyard_infra::{CommandPermissions, MissingPermissions, command_names, needed_actions};
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

use super::azure_account::{AccountArgs, AzureAccount};
use crate::exit::{CommandError, CommandExit, CommandResult, ResultExt as _};
use crate::output::{self, ColumnKind, OutputArgs, TextTable};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard check azure
  lanyard check azure --command 'create infra azure' --command 'create iam azure'
  lanyard check azure --scope /subscriptions/ID/resourceGroups/harbour --output json
  lanyard check azure --command 'refresh identities azure' \\
    --key-vault-id /subscriptions/ID/resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/harbour-dev";

/// Show what the signed-in identity may do for each command in Azure
///
/// For each command, lists the control plane actions that the roles of the signed-in identity do not allow at the
/// scope. For the commands that create, rotate and remove the identities of an ARO HCP development environment, also
/// lists the data actions that the roles do not allow at the vault of --key-vault-id, and the missing permission to
/// write applications in Microsoft Graph. `create keyvault azure` and `create oidc azure` need no data actions before
/// they run: they assign a role with these to the signed-in identity.
///
/// The command does not check data actions of a journal in a container, access policies of a vault, reads of
/// Microsoft Graph, owners of applications, conditions of role assignments, deny assignments, policies, locks, and
/// permissions in a Kubernetes cluster.
///
/// Sends GET requests only. Exits with 1 if an action or a permission is missing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The subscription, resource group or resource at which the control plane actions are needed [default: the
    /// subscription]
    #[arg(long, value_name = "RESOURCE-ID")]
    scope: Option<ArmResourceId>,
    /// The vault of an ARO HCP development environment, at which data actions are needed; without it, data actions
    /// are not checked
    #[arg(long, value_name = "RESOURCE-ID")]
    key_vault_id: Option<ArmResourceId>,
    /// Check only this command; can be repeated [default: all commands]
    #[arg(
        long = "command",
        value_name = "COMMAND",
        value_parser = PossibleValuesParser::new(command_names())
    )]
    commands: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
}

/// Permissions that this command never checks.
const NOT_CHECKED: [&str; 5] = [
    "data actions of a journal in a container",
    "access policies of a vault",
    "reads of Microsoft Graph, and owners of applications",
    "conditions of role assignments, deny assignments, policies and locks",
    "permissions in a Kubernetes cluster",
];

/// What the signed-in identity may do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionReport {
    object_id: String,
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_vault_id: Option<String>,
    commands: Vec<CommandPermissions>,
    not_checked: &'static [&'static str],
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let vault = args.key_vault_id.as_ref();
    if let Some(vault) = vault {
        require_vault(vault)?;
    }
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let caller = account.caller().await?;
    let scope = args.scope.clone();
    let scope = scope.unwrap_or_else(|| ArmResourceId::subscription_scope(&account.subscription));
    let needed = needed_actions(&account.subscription, &caller, &args.commands)?;
    let missing = MissingPermissions::read(&account.arm, &needed, &scope, vault)
        .await
        .context("reading the permissions of the signed-in identity failed")?;
    let graph = account.graph_caller().await?;
    let report = PermissionReport {
        object_id: caller.object_id.to_string(),
        scope: scope.to_string(),
        key_vault_id: vault.map(ToString::to_string),
        commands: needed.iter().map(|needed| missing.of_command(needed, &graph)).collect(),
        not_checked: &NOT_CHECKED,
    };
    output::print_value(&report, args.output.format, |line_width| report.to_text(line_width))?;
    Ok(if report.is_complete() { CommandExit::Success } else { CommandExit::Failed })
}

fn require_vault(id: &ArmResourceId) -> Result<(), CommandError> {
    if id.has_type(VaultBody::RESOURCE_TYPE) {
        return Ok(());
    }
    Err(CommandError::invalid_input(format!("--key-vault-id: `{id}` is not the id of a vault"))
        .with_hint("copy the id from `az keyvault show --name NAME --query id`"))
}

impl PermissionReport {
    fn is_complete(&self) -> bool {
        self.commands.iter().all(CommandPermissions::is_complete)
    }

    fn to_text(&self, line_width: Option<usize>) -> String {
        let mut table =
            TextTable::new(["COMMAND", "RESULT"].map(|header| (ColumnKind::Name, header)));
        for command in &self.commands {
            table.add_row([command.command.clone(), command.result()]);
        }
        let mut lines = vec![table.render(line_width)];
        lines.extend(self.commands.iter().flat_map(|command| self.missing_text(command)));
        lines.extend(self.hints().map(|hint| format!("\nhint: {hint}")));
        if self.commands.iter().any(|it| !it.unchecked_data_actions.is_empty()) {
            lines.push(
                "\nnote: the commands with the result `unknown` need data actions at a vault; name it with --key-vault-id"
                    .to_owned(),
            );
        }
        lines.push("\nNot checked:".to_owned());
        lines.extend(self.not_checked.iter().map(|text| format!("  {text}")));
        lines.join("\n")
    }

    /// The permissions that a command lacks, by the place where it needs them.
    fn missing_text(&self, command: &CommandPermissions) -> Vec<String> {
        let vault = self.key_vault_id.as_deref().unwrap_or_default();
        let places = [
            (format!("at `{}`", self.scope), &command.missing_actions),
            (format!("at the vault `{vault}`"), &command.missing_data_actions),
            ("in Microsoft Graph".to_owned(), &command.missing_graph_permissions),
        ];
        let mut lines = Vec::new();
        for (place, missing) in places.iter().filter(|(_, missing)| !missing.is_empty()) {
            lines.push(format!("\n{} lacks {place}:", command.command));
            lines.extend(missing.iter().map(|name| format!("  {name}")));
        }
        lines
    }

    /// What to do about missing permissions.
    fn hints(&self) -> impl Iterator<Item = &'static str> {
        let any = |lacks: fn(&CommandPermissions) -> bool| self.commands.iter().any(lacks);
        let hints = [
            (
                any(|it| !it.missing_actions.is_empty()),
                "ask an owner of the scope for Contributor and Role Based Access Control Administrator, or for roles with these actions",
            ),
            (
                any(|it| !it.missing_data_actions.is_empty()),
                "ask an owner of the vault for Key Vault Administrator, or for a role with these data actions",
            ),
            (
                any(|it| !it.missing_graph_permissions.is_empty()),
                "ask an administrator of the tenant for the permission of Microsoft Graph",
            ),
        ];
        hints.into_iter().filter_map(|(applies, hint)| applies.then_some(hint))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;
    use lanyard_azure::{AssignedPrincipalType, CallerIdentity};
    use lanyard_infra::NeededActions;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        check: Args,
    }

    fn parse(flag: &str, value: &str) -> Result<Args, clap::Error> {
        TestCli::try_parse_from(["test", flag, value]).map(|cli| cli.check)
    }

    #[test]
    fn only_named_commands_are_checked_and_unknown_ones_are_errors() {
        let args = parse("--command", "create iam azure").unwrap();
        let caller = CallerIdentity {
            object_id: uuid::Uuid::from_u128(1),
            tenant: "6d1f8a53-90c7-4c2b-b8e4-2f5a7c901d36".parse().unwrap(),
            principal_type: AssignedPrincipalType::ServicePrincipal,
            permissions: Vec::new(),
            creator_names: Vec::new(),
        };
        let subscription: lanyard_vocabulary::SubscriptionId =
            "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40".parse().unwrap();
        let needed = |names: &[String]| needed_actions(&subscription, &caller, names).unwrap();
        let names =
            |needed: &[NeededActions]| needed.iter().map(|it| it.command).collect::<Vec<_>>();
        assert_eq!(names(&needed(&args.commands)), ["create iam azure"]);
        assert_eq!(names(&needed(&[])), command_names());
        for it in needed(&[]) {
            assert!(!it.actions.is_empty() || !it.vault_actions.is_empty(), "{it:?}");
        }
        for name in ["create infra", "lanyard create iam azure"] {
            let error = parse("--command", name).unwrap_err().to_string();
            assert!(error.contains("possible values: "), "{error}");
        }
    }

    /// The names of the commands without subcommands.
    fn leaf_names(command: &clap::Command, parent: &str) -> Vec<String> {
        let children = command.get_subcommands().flat_map(|child| {
            let name = format!("{parent} {}", child.get_name());
            leaf_names(child, name.trim_start())
        });
        let names: Vec<_> = children.collect();
        if names.is_empty() { vec![parent.to_owned()] } else { names }
    }

    #[test]
    fn every_command_of_azure_resource_manager_is_checked() {
        let names = leaf_names(&crate::cli::command(), "");
        let uses_azure = |it: &&String| it.ends_with(" azure") || it.starts_with("ccoctl azure ");
        let used: BTreeSet<_> = names.iter().filter(uses_azure).map(String::as_str).collect();
        // This command checks nothing of itself, and a key pair is created without Azure.
        let unchecked = ["check azure", "ccoctl azure create-key-pair"];
        let expected: Vec<_> = used.iter().filter(|name| !unchecked.contains(name)).collect();
        assert_eq!(expected.len(), used.len() - unchecked.len(), "{used:?}");
        for name in expected {
            assert!(command_names().contains(name), "{name}");
        }
        for name in command_names() {
            assert!(used.iter().any(|used| name.starts_with(*used)), "{name}");
        }
    }

    #[test]
    fn id_of_another_resource_is_no_vault() {
        let group = "/subscriptions/s/resourceGroups/g";
        let vault = format!("{group}/providers/microsoft.keyvault/vaults/v");
        for (id, expected) in [(group, false), (&*vault, true)] {
            let args = parse("--key-vault-id", id).unwrap();
            assert_eq!(require_vault(&args.key_vault_id.unwrap()).is_ok(), expected, "{id}");
        }
    }

    #[test]
    fn text_names_missing_permissions_and_what_is_not_checked() {
        let lacking = CommandPermissions {
            command: "rotate identity azure".to_owned(),
            missing_data_actions: vec!["Microsoft.KeyVault/vaults/certificates/read".to_owned()],
            missing_graph_permissions: vec!["Application.ReadWrite.OwnedBy".to_owned()],
            ..CommandPermissions::default()
        };
        let report = PermissionReport {
            object_id: "1".to_owned(),
            scope: "/subscriptions/s".to_owned(),
            key_vault_id: Some("/subscriptions/s/v".to_owned()),
            commands: vec![lacking],
            not_checked: &NOT_CHECKED,
        };
        let text = report.to_text(None);
        for expected in [
            "rotate identity azure   2 missing",
            "lacks at the vault `/subscriptions/s/v`:\n  Microsoft.KeyVault/vaults/certificates/read",
            "lacks in Microsoft Graph:\n  Application.ReadWrite.OwnedBy",
            "hint: ask an owner of the vault",
            "hint: ask an administrator of the tenant",
            "Not checked:\n  data actions of a journal in a container",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        for absent in ["lacks at `", "hint: ask an owner of the scope", "--key-vault-id"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
}
