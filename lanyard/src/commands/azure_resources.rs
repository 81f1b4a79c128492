//! What the commands that create and remove Azure resources share: their flags, and how plans and runs are printed.

pub(in crate::commands) mod cluster_stacks;
pub(in crate::commands) mod destroy_stack;
pub(in crate::commands) mod journal_args;
pub(in crate::commands) mod output_files;
pub(in crate::commands) mod progress;
pub(in crate::commands) mod report;
pub(in crate::commands) mod roll_back;
pub(in crate::commands) mod shared_stack;

use std::num::NonZeroUsize;
use std::time::Duration;

use lanyard_changes::{CheckedPlan, LiveCheck, RunOptions, RunReport, RunSettings, StackTarget};
use lanyard_clock::SharedClock;
use lanyard_infra::AzureSubscription;

use self::journal_args::{JournalContext, LockArgs, StateArgs};
use self::progress::{ProgressArgs, ProgressOutput};
use self::report::print_plan;
use super::azure_account::AzureAccount;
use super::rotation_timing::parse_duration;
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// The flags of a command that changes Azure resources.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Run")]
pub(in crate::commands) struct RunArgs {
    #[command(flatten)]
    pub(in crate::commands) state: StateArgs,
    #[command(flatten)]
    pub(in crate::commands) lock: LockArgs,
    /// The number of resources that are written at the same time
    #[arg(long, default_value = "16", value_name = "N")]
    parallel: NonZeroUsize,
    /// How long a write is repeated that Azure rejects for now, such as `15m`; also the longest wait for one
    /// long-running operation
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    progress: ProgressArgs,
}

impl RunArgs {
    pub(in crate::commands) fn options(&self) -> RunOptions {
        let (parallel, retry_timeout) = (self.parallel.get(), self.timeout);
        RunOptions { parallel, retry_timeout, ..RunOptions::default() }
    }

    /// What the journal of the command depends on.
    pub(in crate::commands) const fn journal_context<'a>(
        &self,
        account: &'a AzureAccount,
        environment: &'a ProcessEnvironment,
        clock: &'a SharedClock,
    ) -> JournalContext<'a> {
        let lock_timeout = self.lock.lock_timeout;
        JournalContext { account, environment, clock, lock_timeout }
    }

    pub(in crate::commands) fn progress(&self) -> ProgressOutput {
        self.progress.output()
    }
}

/// The subscription of an account, with the rules of its stacks.
pub(in crate::commands) fn subscription_of(account: &AzureAccount) -> AzureSubscription {
    AzureSubscription { id: account.subscription.clone(), access: account.access() }
}

/// Waits for the writes of an interrupted run, then plans, checks and applies. Prints the plan before the first write.
///
/// Returns `None` if the plan cannot be applied; nothing was written then.
pub(in crate::commands) async fn plan_and_apply(
    target: &StackTarget<AzureSubscription>,
    account: &AzureAccount,
    run: &RunArgs,
    live_check: LiveCheck<'_>,
    clock: &SharedClock,
) -> Result<Option<RunReport>, CommandError> {
    let caller = &account.caller().await?.creator_names;
    let progress = &run.progress();
    let settings = RunSettings { caller, clock, progress, options: run.options() };
    let on_plan = |checked: &CheckedPlan| {
        print_plan(checked);
        if checked.is_applicable() {
            progress.begin(&target.graph);
        }
    };
    let report = target.apply(settings, live_check, on_plan).await;
    progress.end();
    Ok(report?)
}
