//! Stacks that several clusters share: a vault, the management cluster, a DNS zone, a token issuer.
//!
//! Their journal has the name of the stack where that of a cluster has an infrastructure id.

use lanyard_clock::SharedClock;
use lanyard_infra::{
    ClusterIdentifiers, DesiredResource, JournalCluster, OwnershipTags, ResourceGraph,
    ResourceStack, RunReport, import_resources,
};

use super::destroy_stack::{DestroyArgs, RecordedStack, StackRemoval};
use super::{
    RunArgs, StackTarget, StateArgs, journal_error, no_live_check, open_journal, plan_and_apply,
    print_report, read_live,
};
use crate::commands::azure_account::AzureAccount;
use crate::exit::{CommandError, CommandResult};
use crate::output::CliOutputFormat;
use crate::settings::ProcessEnvironment;

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

/// A stack that several clusters share.
pub(in crate::commands) struct SharedStack<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    /// The name of the stack's main resource, which is unique among stacks of its kind.
    pub(in crate::commands) name: &'a str,
    pub(in crate::commands) stack: ResourceStack,
    pub(in crate::commands) environment: &'a ProcessEnvironment,
}

impl<'a> SharedStack<'a> {
    fn identifiers(&self) -> Result<ClusterIdentifiers, CommandError> {
        let invalid = |error: &dyn std::error::Error| {
            CommandError::invalid_input(format!("`{}` cannot name the stack", self.name))
                .with_cause(error)
        };
        // Names of zones contain dots; the names of journals are DNS labels.
        let name = self.name.to_ascii_lowercase().replace('.', "-");
        let name =
            name.parse().map_err(|error: lanyard_infra::ClusterIdentifierError| invalid(&error))?;
        let stack = self
            .stack
            .name()
            .parse()
            .map_err(|error: lanyard_vocabulary::ParseIdentifierError| invalid(&error))?;
        ClusterIdentifiers::new(name, stack).map_err(|error| invalid(&error))
    }

    fn directory(&self, state: &StateArgs) -> Result<std::path::PathBuf, CommandError> {
        state.directory(
            self.environment.state_directory.as_ref(),
            self.account.subscription.as_str(),
            &format!("{}-{}", self.stack, self.name.to_ascii_lowercase()),
        )
    }

    /// The target with these resources.
    fn target(
        &self,
        resources: Vec<DesiredResource>,
        state: &StateArgs,
    ) -> Result<StackTarget<'a>, CommandError> {
        let identifiers = self.identifiers()?;
        let graph = ResourceGraph::new(resources).map_err(|error| {
            CommandError::invalid_input("the resources cannot be ordered").with_cause(&error)
        })?;
        Ok(StackTarget {
            account: self.account,
            state_directory: self.directory(state)?,
            journal_cluster: JournalCluster {
                name: identifiers.name().clone(),
                infra_id: identifiers.infra_id().clone(),
                subscription: self.account.subscription.to_string(),
            },
            graph,
            tags: OwnershipTags::new(identifiers.name(), identifiers.infra_id()),
        })
    }

    /// Creates the resources and prints the result. Returns the report if everything succeeded.
    pub(in crate::commands) async fn create(
        &self,
        resources: Vec<DesiredResource>,
        args: &SharedRunArgs,
        format: CliOutputFormat,
        clock: &SharedClock,
    ) -> Result<Option<RunReport>, CommandError> {
        let Some((target, report)) = self.apply(resources, args, clock).await? else {
            return Ok(None);
        };
        print_report(&target, &report, format)?;
        Ok(report.succeeded().then_some(report))
    }

    /// Creates the resources. Returns `None` if the plan cannot be applied; nothing was written then.
    pub(in crate::commands) async fn apply(
        &self,
        resources: Vec<DesiredResource>,
        args: &SharedRunArgs,
        clock: &SharedClock,
    ) -> Result<Option<(StackTarget<'a>, RunReport)>, CommandError> {
        let target = self.target(resources, &args.run.state)?;
        if args.import {
            let live = read_live(&target).await?;
            import_resources(&open_journal(&target)?, clock, &target.graph, &live, &target.tags)
                .map_err(|error| journal_error(&error))?;
        }
        let report = plan_and_apply(&target, &args.run, &no_live_check, clock).await?;
        Ok(report.map(|report| (target, report)))
    }

    /// Removes what the journal records, and prints the result.
    pub(in crate::commands) async fn destroy(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> CommandResult {
        self.recorded(args)?.destroy(args, clock).await
    }

    /// Removes what the journal records; `None` if there is no journal.
    pub(in crate::commands) async fn remove_if_recorded(
        &self,
        args: &DestroyArgs,
        clock: &SharedClock,
    ) -> Result<Option<StackRemoval>, CommandError> {
        let recorded = self.recorded(args)?;
        if !recorded.directory.exists() {
            return Ok(None);
        }
        recorded.remove(args, clock).await.map(Some)
    }

    fn recorded(&self, args: &DestroyArgs) -> Result<RecordedStack<'a>, CommandError> {
        let stacks = match self.stack {
            ResourceStack::Identities => vec![self.stack, ResourceStack::Kms],
            stack => vec![stack],
        };
        Ok(RecordedStack {
            account: self.account,
            directory: self.directory(&args.run.state)?,
            identifiers: self.identifiers()?,
            stacks,
        })
    }
}
