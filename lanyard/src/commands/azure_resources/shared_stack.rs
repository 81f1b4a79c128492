//! Stacks that several clusters share: a vault, the management cluster, a DNS zone, a token issuer.
//!
//! Their journal has the name of the stack where that of a cluster has an infrastructure id.

use lanyard_changes::{
    AzureGraph, AzureResource, JournalTarget, LiveCheck, OwnershipTags, RecordedStacks, RunReport,
    RunSummary, StackName, StackRemoval, StackTarget, no_live_check,
};
use lanyard_clock::SharedClock;
use lanyard_infra::{AzureSubscription, CcoctlOwner, ClusterIdentifiers, stacks};

use super::destroy_stack::{DestroyArgs, print_result, remove};
use super::journal_args::{JournalContext, LockArgs, StateArgs};
use super::report::print_plan;
use super::roll_back::roll_back;
use super::{RunArgs, plan_and_apply, subscription_of};
use crate::commands::azure_account::AzureAccount;
use crate::exit::{CommandError, CommandResult, ExternalResult as _};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// The desired resources of a shared stack, with the result of the run that applied them.
pub(in crate::commands) type AppliedStack = (StackTarget<AzureSubscription>, RunReport);

/// The flags of a command that creates a shared stack.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct SharedRunArgs {
    #[command(flatten)]
    pub(in crate::commands) run: RunArgs,
    /// Adopt existing resources with these names, so that the command changes them and `lanyard destroy` removes
    /// them
    #[arg(long, help_heading = "Run")]
    import: bool,
}

/// The name of a shared stack's journal below the default location.
pub(in crate::commands) fn journal_name(stack: &StackName, name: &str) -> String {
    format!("{stack}-{}", name.to_ascii_lowercase())
}

/// A stack that several clusters share.
pub(in crate::commands) struct SharedStack<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    /// The name of the stack's main resource, which is unique among stacks of its kind.
    pub(in crate::commands) name: &'a str,
    pub(in crate::commands) stack: StackName,
    pub(in crate::commands) environment: &'a ProcessEnvironment,
}

impl SharedStack<'_> {
    pub(in crate::commands) fn identifiers(&self) -> Result<ClusterIdentifiers, CommandError> {
        let invalid = || format!("`{}` cannot name the stack", self.name);
        // Names of zones contain dots; the names of journals are DNS labels.
        let name = self.name.to_ascii_lowercase().replace('.', "-").parse().or_invalid(invalid())?;
        let stack = self.stack.as_str().parse().or_invalid(invalid())?;
        ClusterIdentifiers::new(name, stack).or_invalid(invalid())
    }

    /// Whether the resources are those of ccoctl, whose create commands delete nothing.
    fn is_ccoctl(&self) -> bool {
        self.stack == stacks::CCOCTL
    }

    /// The tags on the resources that lanyard creates for the stack.
    pub(in crate::commands) fn ownership_tags(&self) -> Result<OwnershipTags, CommandError> {
        Ok(self.tags(&self.identifiers()?))
    }

    fn tags(&self, identifiers: &ClusterIdentifiers) -> OwnershipTags {
        let tags = identifiers.ownership_tags();
        if self.is_ccoctl() { tags.with_mark_of(CcoctlOwner::new(self.name).mark()) } else { tags }
    }

    /// The journal of the stack.
    pub(in crate::commands) fn journal(
        &self,
        state: &StateArgs,
        lock: &LockArgs,
        clock: &SharedClock,
    ) -> Result<JournalTarget, CommandError> {
        let identifiers = self.identifiers()?;
        let cluster = identifiers.journal_cluster(&self.account.subscription);
        let (account, environment) = (self.account, self.environment);
        let lock_timeout = lock.lock_timeout;
        let context = JournalContext { account, environment, clock, lock_timeout };
        state.journal(context, cluster, &journal_name(&self.stack, self.name))
    }

    /// The target with these resources.
    pub(in crate::commands) fn target(
        &self,
        resources: Vec<AzureResource>,
        run: &RunArgs,
        clock: &SharedClock,
    ) -> Result<StackTarget<AzureSubscription>, CommandError> {
        let graph = AzureGraph::new(resources).or_invalid("the resources cannot be ordered")?;
        Ok(StackTarget {
            rules: subscription_of(self.account),
            journal: self.journal(&run.state, &run.lock, clock)?,
            graph,
            is_complete: true,
            tags: self.ownership_tags()?,
            keeps_superseded: self.is_ccoctl(),
        })
    }

    /// Creates the resources and prints the result. Returns the report if everything succeeded.
    pub(in crate::commands) async fn create(
        &self,
        resources: Vec<AzureResource>,
        args: &SharedRunArgs,
        format: CliOutputFormat,
        clock: &SharedClock,
    ) -> Result<Option<RunReport>, CommandError> {
        let Some((target, report)) = self.apply(resources, args, clock).await? else {
            return Ok(None);
        };
        let summary = RunSummary::new(&report, &target);
        output::print_value(&summary, format, |_| summary.to_string())?;
        Ok(report.succeeded().then_some(report))
    }

    /// Creates the resources. Returns `None` if the plan cannot be applied; nothing was written then.
    pub(in crate::commands) async fn apply(
        &self,
        resources: Vec<AzureResource>,
        args: &SharedRunArgs,
        clock: &SharedClock,
    ) -> Result<Option<AppliedStack>, CommandError> {
        self.apply_checked(resources, args, &no_live_check, clock).await
    }

    /// Like [`SharedStack::apply`], with a further check of the live resources.
    pub(in crate::commands) async fn apply_checked(
        &self,
        resources: Vec<AzureResource>,
        args: &SharedRunArgs,
        live_check: LiveCheck<'_>,
        clock: &SharedClock,
    ) -> Result<Option<AppliedStack>, CommandError> {
        let target = self.target(resources, &args.run, clock)?;
        self.apply_target(target, args, live_check, clock).await
    }

    /// Whether the resources can be created. Prints the plan if not. Sends GET requests only. With --import, the plan
    /// depends on what the command adopts, so it is made later.
    pub(in crate::commands) async fn can_apply(
        &self,
        resources: Vec<AzureResource>,
        args: &SharedRunArgs,
        live_check: LiveCheck<'_>,
        clock: &SharedClock,
    ) -> Result<bool, CommandError> {
        if args.import {
            return Ok(true);
        }
        let target = self.target(resources, &args.run, clock)?;
        let recorded = target.journal.read().await?.unwrap_or_default();
        let checked = target.plan(&recorded, live_check).await?;
        if !checked.is_applicable() {
            print_plan(&checked);
        }
        Ok(checked.is_applicable())
    }

    /// Creates the resources that others of the same command need, as [`Self::apply`].
    pub(in crate::commands) async fn apply_first_part(
        &self,
        resources: Vec<AzureResource>,
        args: &SharedRunArgs,
        clock: &SharedClock,
    ) -> Result<Option<AppliedStack>, CommandError> {
        let target = self.target(resources, &args.run, clock)?;
        let target = StackTarget { is_complete: false, ..target };
        self.apply_target(target, args, &no_live_check, clock).await
    }

    async fn apply_target(
        &self,
        target: StackTarget<AzureSubscription>,
        args: &SharedRunArgs,
        live_check: LiveCheck<'_>,
        clock: &SharedClock,
    ) -> Result<Option<AppliedStack>, CommandError> {
        if args.import {
            target.import(clock).await?;
        }
        let report = plan_and_apply(&target, self.account, &args.run, live_check, clock).await?;
        Ok(report.map(|report| (target, report)))
    }

    /// Removes what the journal records, and prints the result.
    pub(in crate::commands) async fn destroy(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> CommandResult {
        let recorded = self.recorded(&args.run, clock)?;
        print_result(&remove(&recorded, self.account, args, clock).await?, args.output.format)
    }

    /// Removes what the journal records; `None` if there is no journal.
    pub(in crate::commands) async fn remove_if_recorded(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<Option<StackRemoval>, CommandError> {
        let recorded = self.recorded(&args.run, clock)?;
        if recorded.journal.read().await?.is_none() {
            return Ok(None);
        }
        remove(&recorded, self.account, args, clock).await.map(Some)
    }

    /// Undoes the interrupted run of the stack, and prints the result.
    pub(in crate::commands) async fn roll_back(
        &self,
        args: &SharedRunArgs,
        format: CliOutputFormat,
        clock: &SharedClock,
    ) -> CommandResult {
        let recorded = self.recorded(&args.run, clock)?;
        let principals = async || Ok(Vec::new());
        roll_back(&recorded, self.account, &args.run, format, principals, clock).await
    }

    /// The stack, with the journal that records its resources.
    pub(in crate::commands) fn recorded(
        &self,
        run: &RunArgs,
        clock: &SharedClock,
    ) -> Result<RecordedStacks<AzureSubscription>, CommandError> {
        let mut stacks = vec![self.stack.clone()];
        if self.stack == stacks::IDENTITIES {
            stacks.push(stacks::KMS);
        }
        Ok(RecordedStacks {
            rules: subscription_of(self.account),
            journal: self.journal(&run.state, &run.lock, clock)?,
            tags: self.ownership_tags()?,
            stacks,
        })
    }
}
