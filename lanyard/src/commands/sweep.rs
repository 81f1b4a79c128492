//! `lanyard sweep azure`: finds and deletes orphaned role assignments, whose principals do not exist any more.

use std::time::Duration;

use lanyard_clock::SystemClock;
use lanyard_infra::{OrphanedAssignment, delete_orphaned_assignment, find_orphaned_assignments};
use lanyard_vocabulary::{ArmResourceId, format_error_chain};
use serde::Serialize;

use super::azure_account::{AccountArgs, AzureAccount};
use super::rotation_timing::parse_duration;
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, ColumnKind, OutputArgs, TextTable};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard sweep azure
  lanyard sweep azure --scope /subscriptions/ID/resourceGroups/harbour --delete";

/// Find orphaned role assignments in Azure, and delete them with --delete
///
/// When an identity is deleted, its role assignments stay, and count against the limit of the subscription. The
/// Azure portal shows them as `Identity not found`. The command stops if Microsoft Graph does not show the signed-in
/// identity: then every principal would look missing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// Only role assignments at or below this subscription, resource group or resource [default: the subscription]
    #[arg(long, value_name = "RESOURCE-ID")]
    scope: Option<ArmResourceId>,
    /// Delete the role assignments
    #[arg(long)]
    delete: bool,
    /// Ignore role assignments that are younger, because their principals may not be known everywhere yet
    #[arg(long, default_value = "1h", value_name = "DURATION", value_parser = parse_duration)]
    min_age: Duration,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
}

/// A role assignment, and what happened to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SweptAssignment {
    #[serde(flatten)]
    assignment: OrphanedAssignment,
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The result of the command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SweepReport {
    role_assignments: Vec<SweptAssignment>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let caller = account.caller().await?.object_id;
    let scope = args.scope.clone();
    let scope = scope.unwrap_or_else(|| ArmResourceId::subscription_scope(&account.subscription));
    let (arm, graph, age) = (&account.arm, account.graph(), (clock.now(), args.min_age));
    let found = find_orphaned_assignments(arm, &graph, &scope, caller, age).await;
    let found = found?;
    let mut role_assignments = Vec::new();
    for assignment in found {
        let mut swept = SweptAssignment { assignment, deleted: false, error: None };
        if args.delete {
            match delete_orphaned_assignment(&account.arm, &swept.assignment).await {
                Ok(true) => swept.deleted = true,
                Ok(false) => {
                    let id = &swept.assignment.id;
                    let text =
                        format!("another role assignment has the id `{id}` now, so it stays");
                    swept.error = Some(text);
                }
                Err(error) => swept.error = Some(format_error_chain(&error)),
            }
        }
        role_assignments.push(swept);
    }
    let report = SweepReport { role_assignments };
    output::print_value(&report, args.output.format, |line_width| {
        report.to_text(args.delete, line_width)
    })?;
    let failed = report.role_assignments.iter().any(|it| it.error.is_some());
    Ok(if failed { CommandExit::Failed } else { CommandExit::Success })
}

impl SweepReport {
    fn to_text(&self, deletes: bool, line_width: Option<usize>) -> String {
        if self.role_assignments.is_empty() {
            return "Every role assignment has a principal.".to_owned();
        }
        let mut table = TextTable::new([
            (ColumnKind::Name, "NAME"),
            (ColumnKind::Name, "RESULT"),
            (ColumnKind::Name, "PRINCIPAL"),
            (ColumnKind::Identifier, "SCOPE"),
        ]);
        for swept in &self.role_assignments {
            let result = match (swept.deleted, &swept.error) {
                (true, _) => "deleted",
                (false, Some(_)) => "failed",
                (false, None) => "found",
            };
            let OrphanedAssignment { id, principal, scope, .. } = &swept.assignment;
            table.add_row([id.name(), result, &principal.to_string(), scope]);
        }
        let mut lines = vec![table.render(line_width)];
        lines.extend(self.role_assignments.iter().filter_map(|it| it.error.clone()));
        if !deletes {
            lines.push("\nRun the command with --delete to remove them.".to_owned());
        }
        lines.join("\n")
    }
}
