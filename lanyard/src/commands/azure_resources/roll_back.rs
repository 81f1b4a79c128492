//! Undoes the interrupted run of a command: `--roll-back`.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::AzureCallError;
use lanyard_changes::{
    AzureAccess, RecordedState, RollBackPlan, RunContext, assigns_roles, recorded_principals,
    roll_back, wait_for_interrupted_writes,
};
use lanyard_clock::SharedClock;
use uuid::Uuid;

use super::destroy_stack::{RecordedStacks, removed_rows, unrecorded_error};
use super::report::RunSummary;
use super::{RunArgs, interrupted_write_error};
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

impl RecordedStacks<'_> {
    /// Undoes the interrupted run of the stacks, and prints the result. `principals` are those to which the
    /// configuration assigns roles, beside the signed-in identity and the managed identities of the journal.
    pub(in crate::commands) async fn roll_back(
        &self,
        run: &RunArgs,
        format: CliOutputFormat,
        principals: impl AsyncFnOnce() -> Result<Vec<Uuid>, CommandError>,
        clock: &SharedClock,
    ) -> CommandResult {
        // Without an interrupted run, no journal is created, and no lease is needed.
        self.roll_back_plan(&self.journal.read().await?.unwrap_or_default())?;
        let (arm, tags) = (&self.account.arm, &self.tags);
        let signed_in = self.account.caller().await?;
        let caller = &signed_in.creator_names;
        let report = self.journal.write(async |journal| {
            let plan = self.roll_back_plan(&journal.state())?;
            let mut known = BTreeSet::from([signed_in.object_id]);
            let assigns_roles = assigns_roles(&plan);
            if assigns_roles {
                known.extend(principals().await?);
            }
            output::print_stderr(&plan_text(&plan));
            let progress = run.progress();
            let options = run.options();
            if assigns_roles {
                let recorded = recorded_principals(arm, &journal.state(), tags).await;
                known.extend(recorded.map_err(|error| identities_error(&error))?);
            }
            let access = &AzureAccess { known_principals: known, ..self.account.access() };
            let progress = &progress;
            let context =
                RunContext { access, journal, tags, caller, clock, progress, options };
            let waited = wait_for_interrupted_writes(context).await;
            waited.map_err(|error| interrupted_write_error(&error))?;
            let unrecorded = self.find_unrecorded(&plan.removed).await?;
            if !unrecorded.is_empty() {
                let hint = "run the command without --roll-back, which continues the interrupted run; or move or delete the resources, then run the command again";
                return Err(unrecorded_error(&unrecorded, hint));
            }
            let report = roll_back(context, &plan).await;
            progress.end();
            report.map_err(|error| {
                CommandError::unavailable("the roll-back failed")
                    .with_cause(&error)
                    .with_hint_of(&error)
            })
        });
        let report = report.await?;
        let headroom = arm.lowest_headroom();
        let summary = RunSummary::with_dependencies(&report, &BTreeMap::new(), headroom);
        output::print_value(&summary, format, |_| summary.to_text())?;
        Ok(if report.succeeded() { CommandExit::Success } else { CommandExit::Failed })
    }

    fn roll_back_plan(&self, recorded: &RecordedState) -> Result<RollBackPlan, CommandError> {
        RollBackPlan::new::<AzureAccess>(recorded, &self.stacks)
            .map_err(|error| CommandError::invalid_input(error.to_string()).with_hint_of(&error))
    }
}

fn identities_error(error: &AzureCallError) -> CommandError {
    CommandError::unavailable(
        "the roll-back failed: reading the managed identities of the journal failed",
    )
    .with_cause(error)
    .with_hint_of(error)
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
