//! `lanyard check azure`: shows what the signed-in identity may do for each command.

mod needed_actions;

use std::collections::BTreeSet;

use clap::builder::PossibleValuesParser;
use lanyard_azure::{AssignedPrincipalType, CallerIdentity};
use lanyard_clock::SystemClock;
use lanyard_infra::{RequiredAction, missing_actions};
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

use self::needed_actions::{command_names, needed_actions};
use super::azure_account::{AccountArgs, AzureAccount};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, ColumnKind, OutputArgs, TextTable};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard check azure
  lanyard check azure --command 'create infra azure' --command 'create iam azure'
  lanyard check azure --scope /subscriptions/ID/resourceGroups/harbour --output json";

/// Show what the signed-in identity may do for each command in Azure
///
/// For each command that creates and destroys resources, lists the actions that the roles of the signed-in identity
/// do not allow at the scope. Sends GET requests only. Deny assignments and policies can forbid more. Exits with 1 if
/// an action or a permission is missing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The subscription, resource group or resource at which the actions are needed [default: the subscription]
    #[arg(long, value_name = "RESOURCE-ID")]
    scope: Option<ArmResourceId>,
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

/// What the signed-in identity may do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PermissionReport {
    object_id: String,
    scope: String,
    commands: Vec<CommandPermissions>,
}

/// What one command needs and lacks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CommandPermissions {
    command: String,
    /// The actions that are not allowed at the scope.
    missing_actions: Vec<String>,
    /// The permissions of Microsoft Graph that the identity lacks.
    missing_graph_permissions: Vec<String>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let caller = account.caller().await?;
    let scope = args.scope.clone();
    let scope = scope.unwrap_or_else(|| ArmResourceId::subscription_scope(&account.subscription));
    let needed = needed_actions(&account.subscription, &caller, &args.commands)?;
    let required: Vec<_> = needed
        .iter()
        .flat_map(|(_, actions)| actions)
        .map(|action| RequiredAction::new(&scope, action))
        .collect();
    let missing = missing_actions(&account.arm, &required).await.map_err(|error| {
        CommandError::unavailable("reading the permissions of the signed-in identity failed")
            .with_cause(&error)
            .with_hint(error.hint())
    })?;
    let missing: BTreeSet<_> = missing.into_iter().map(|it| it.action).collect();
    let graph = missing_graph_permissions(&account.graph_caller().await?);
    let commands = needed.into_iter().map(|(command, actions)| {
        let uses_graph = command.starts_with("create identities");
        CommandPermissions {
            command: command.to_owned(),
            missing_actions: actions.intersection(&missing).cloned().collect(),
            missing_graph_permissions: if uses_graph { graph.clone() } else { Vec::new() },
        }
    });
    let report = PermissionReport {
        object_id: caller.object_id.to_string(),
        scope: scope.to_string(),
        commands: commands.collect(),
    };
    output::print_value(&report, args.output.format, |line_width| report.to_text(line_width))?;
    Ok(if report.is_complete() { CommandExit::Success } else { CommandExit::Failed })
}

/// The permission of Microsoft Graph for `create identities`, unless one of these contains it.
const GRAPH_PERMISSIONS: [&str; 4] = [
    "Application.ReadWrite.OwnedBy",
    "Application.ReadWrite.All",
    "Directory.ReadWrite.All",
    // Users may do what their directory roles allow, which the token does not say.
    "Directory.AccessAsUser.All",
];

fn missing_graph_permissions(graph: &CallerIdentity) -> Vec<String> {
    let has = |name: &str| graph.permissions.iter().any(|it| it.eq_ignore_ascii_case(name));
    if GRAPH_PERMISSIONS.into_iter().any(has) {
        return Vec::new();
    }
    let name = match graph.principal_type {
        AssignedPrincipalType::User => GRAPH_PERMISSIONS[1],
        _ => GRAPH_PERMISSIONS[0],
    };
    vec![name.to_owned()]
}

impl PermissionReport {
    fn is_complete(&self) -> bool {
        self.commands.iter().all(CommandPermissions::is_complete)
    }

    fn to_text(&self, line_width: Option<usize>) -> String {
        let mut table =
            TextTable::new(["COMMAND", "RESULT"].map(|header| (ColumnKind::Name, header)));
        for command in &self.commands {
            let missing = command.missing_actions.len() + command.missing_graph_permissions.len();
            let result = match missing {
                0 => "allowed".to_owned(),
                missing => format!("{missing} missing"),
            };
            table.add_row([command.command.clone(), result]);
        }
        let mut lines = vec![table.render(line_width)];
        for command in self.commands.iter().filter(|it| !it.is_complete()) {
            lines.push(String::new());
            lines.push(format!("{} lacks at `{}`:", command.command, self.scope));
            lines.extend(command.missing_actions.iter().map(|action| format!("  {action}")));
            let graph = command.missing_graph_permissions.iter();
            lines.extend(graph.map(|name| format!("  {name} of Microsoft Graph")));
        }
        if !self.is_complete() {
            lines.push(String::new());
            lines.push(
                "hint: ask an owner of the scope for Contributor and Role Based Access Control Administrator, or for \
                 roles with these actions"
                    .to_owned(),
            );
        }
        lines.join("\n")
    }
}

impl CommandPermissions {
    fn is_complete(&self) -> bool {
        self.missing_actions.is_empty() && self.missing_graph_permissions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        check: Args,
    }

    #[test]
    fn only_named_commands_are_checked_and_unknown_ones_are_errors() {
        let parse = |name: &str| TestCli::try_parse_from(["test", "--command", name]);
        let args = parse("create iam azure").unwrap().check;
        let caller = CallerIdentity {
            object_id: uuid::Uuid::from_u128(1),
            tenant: "6d1f8a53-90c7-4c2b-b8e4-2f5a7c901d36".parse().unwrap(),
            principal_type: AssignedPrincipalType::ServicePrincipal,
            permissions: Vec::new(),
        };
        let subscription: lanyard_vocabulary::SubscriptionId =
            "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40".parse().unwrap();
        let needed = |names: &[String]| needed_actions(&subscription, &caller, names).unwrap();
        let names = |needed: &[(&'static str, BTreeSet<String>)]| {
            needed.iter().map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(names(&needed(&args.commands)), ["create iam azure"]);
        assert_eq!(names(&needed(&[])), command_names());
        for (_, actions) in needed(&[]) {
            assert!(!actions.is_empty());
        }
        for name in ["create infra", "lanyard create iam azure"] {
            let error = parse(name).unwrap_err().to_string();
            assert!(error.contains("possible values: "), "{error}");
        }
    }
}
