//! What the commands for the infrastructure and the identities of one cluster share.

use std::path::PathBuf;

use lanyard_changes::{JournalTarget, LiveState, RunReport, RunSummary, role_principals};
use lanyard_clock::SharedClock;
use lanyard_infra::{ClusterConfiguration, ClusterTarget, recorded_stacks};
use uuid::Uuid;

use super::journal_args::{JournalContext, StateArgs};
use super::output_files::write_output_file;
use super::roll_back::{RollBackArgs, roll_back};
use super::{RunArgs, plan_and_apply, subscription_of};
use crate::commands::azure_account::AzureAccount;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};

/// How a command changes the stacks of one cluster.
pub(in crate::commands) struct ClusterRun<'a> {
    pub(in crate::commands) context: JournalContext<'a>,
    pub(in crate::commands) run: &'a RunArgs,
    pub(in crate::commands) roll_back: RollBackArgs,
    pub(in crate::commands) format: CliOutputFormat,
    /// Where the infrastructure output is written.
    pub(in crate::commands) infra_output: Option<PathBuf>,
    /// Where the workload identities file is written.
    pub(in crate::commands) iam_output: Option<PathBuf>,
}

/// Looks up the target of a configuration, with the names that its journal records.
pub(in crate::commands) async fn load_target<'a>(
    context: JournalContext<'_>,
    configuration: &'a ClusterConfiguration,
    state: &StateArgs,
) -> Result<ClusterTarget<'a>, CommandError> {
    let journal = cluster_journal(context, configuration, state)?;
    Ok(ClusterTarget::load(subscription_of(context.account), configuration, journal).await?)
}

fn cluster_journal(
    context: JournalContext<'_>,
    configuration: &ClusterConfiguration,
    state: &StateArgs,
) -> Result<JournalTarget, CommandError> {
    let identifiers = &configuration.identifiers;
    let cluster = identifiers.journal_cluster(&context.account.subscription);
    state.journal(context, cluster, identifiers.infra_id().as_str())
}

/// Applies the target, and prints the plan before the first write.
pub(in crate::commands) async fn apply_target(
    target: &ClusterTarget<'_>,
    account: &AzureAccount,
    run: &RunArgs,
    clock: &SharedClock,
) -> Result<Option<RunReport>, CommandError> {
    let check = |live: &LiveState| target.check_live(live);
    plan_and_apply(&target.stack, account, run, &check, clock).await
}

impl ClusterRun<'_> {
    /// Applies the configuration, writes its output files, and prints the result; or undoes the interrupted run.
    pub(in crate::commands) async fn apply(
        self,
        configuration: &ClusterConfiguration,
    ) -> CommandResult {
        let JournalContext { account, clock, .. } = self.context;
        let state = &self.run.state;
        let target = async || load_target(self.context, configuration, state).await;
        if self.roll_back.roll_back {
            let journal = cluster_journal(self.context, configuration, state)?;
            let recorded = recorded_stacks(subscription_of(account), configuration, journal);
            let principals = async || -> Result<Vec<Uuid>, CommandError> {
                Ok(role_principals(&target().await?.stack.graph))
            };
            return roll_back(&recorded, account, self.run, self.format, principals, clock).await;
        }
        let target = target().await?;
        let Some(report) = apply_target(&target, account, self.run, clock).await? else {
            return Ok(CommandExit::Failed);
        };
        let summary = RunSummary::new(&report, &target.stack);
        output::print_value(&summary, self.format, |_| summary.to_string())?;
        if !report.succeeded() {
            return Ok(CommandExit::Failed);
        }
        let created = target.created_identities(&report);
        if let (Some(path), Some(created)) = (&self.iam_output, &created) {
            write_output_file(path, &created.to_json())?;
        }
        if let (Some(path), Some(text)) = (&self.infra_output, target.infra_output(created)) {
            write_output_file(path, &text)?;
        }
        Ok(CommandExit::Success)
    }
}
