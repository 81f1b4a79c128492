//! Undoes the interrupted run of a command: `--roll-back`.

use lanyard_changes::{RecordedStacks, RecordedState, RollBackPlan, RunSettings, assigns_roles};
use lanyard_clock::SharedClock;
use lanyard_infra::AzureSubscription;
use uuid::Uuid;

use super::RunArgs;
use super::destroy_stack::removed_rows;
use crate::commands::azure_account::AzureAccount;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, ColumnKind, TextTable};

/// The flag of commands whose interrupted run can be undone.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Run")]
pub(in crate::commands) struct RollBackArgs {
    /// Undo the interrupted run of this command instead of continuing it: delete what it created, and restore what it
    /// changed
    #[arg(long)]
    pub(in crate::commands) roll_back: bool,
}

/// Undoes the interrupted run of the stacks, and prints the result. `principals` are those to which the configuration
/// assigns roles, beside the signed-in identity and the managed identities of the journal.
pub(in crate::commands) async fn roll_back(
    recorded: &RecordedStacks<AzureSubscription>,
    account: &AzureAccount,
    run: &RunArgs,
    format: CliOutputFormat,
    principals: impl AsyncFnOnce() -> Result<Vec<Uuid>, CommandError>,
    clock: &SharedClock,
) -> CommandResult {
    let signed_in = account.caller().await?;
    let progress = &run.progress();
    let (caller, options) = (&signed_in.creator_names, run.options());
    let settings = RunSettings { caller, clock, progress, options };
    let access = async |plan: &RollBackPlan, state: &RecordedState| {
        let mut known = vec![signed_in.object_id];
        if assigns_roles(plan) {
            known.extend(principals().await?);
        }
        output::print_stderr(&plan_text(plan));
        Ok(recorded.rules.roll_back_access(plan, state, &recorded.tags, known).await?)
    };
    let summary = recorded.roll_back::<CommandError>(settings, access).await;
    progress.end();
    let summary = summary?;
    output::print_value(&summary, format, |_| summary.to_string())?;
    Ok(if summary.succeeded() { CommandExit::Success } else { CommandExit::Failed })
}

fn plan_text(plan: &RollBackPlan) -> String {
    if plan.is_empty() {
        return "The interrupted run changed nothing.".to_owned();
    }
    let mut table = TextTable::new([
        (ColumnKind::Name, "RESOURCE"),
        (ColumnKind::Name, "UNDO"),
        (ColumnKind::Name, "WITH"),
        (ColumnKind::Identifier, "GROUP"),
        (ColumnKind::Identifier, "NAME"),
    ]);
    for resource in &plan.restored {
        let word = if resource.recreated { "recreate" } else { "restore" };
        let group = resource.id.group();
        table.add_row([resource.key.as_str(), word, "", group, resource.id.name()]);
    }
    for [key, with, group, name] in removed_rows(&plan.removed) {
        table.add_row([key, "delete", with, group, name]);
    }
    table.render(output::stderr_width())
}
