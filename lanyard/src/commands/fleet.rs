//! `lanyard fleet`: an application on many AKS clusters, with an identity on each.

mod apply;
mod plan;
mod schema;

use std::path::PathBuf;

use clap::Subcommand;
use lanyard_clock::SharedClock;
use lanyard_fleet::{Fleet, FleetCluster, FleetTarget, journal_cluster};

use super::azure_account::{AccountArgs, AzureAccount};
use super::azure_resources::journal_args::{JournalContext, StateArgs};
use crate::exit::{CommandError, CommandResult, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    Plan(Box<plan::Args>),
    Apply(Box<apply::Args>),
    Schema(schema::Args),
}

/// The flags that name a fleet and its clusters.
#[derive(Debug, Clone, clap::Args)]
struct FleetArgs {
    /// The file of the fleet
    #[arg(long, short = 'f', default_value = "fleet.yaml", value_name = "FILE")]
    filename: PathBuf,
    /// Only the cluster with this name; can be repeated
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<String>,
}

/// A fleet with the account that reads and changes it.
struct SignedInFleet {
    fleet: Fleet,
    account: AzureAccount,
    clock: SharedClock,
    names: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(command: FleetCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        FleetCommand::Plan(args) => plan::run(*args, environment).await,
        FleetCommand::Apply(args) => apply::run(*args, environment).await,
        FleetCommand::Schema(args) => schema::run(&args),
    }
}

impl FleetArgs {
    /// Reads the file, checks the names of the clusters, and signs in.
    async fn sign_in(
        &self,
        account: &AccountArgs,
        environment: &ProcessEnvironment,
        clock: SharedClock,
    ) -> Result<SignedInFleet, CommandError> {
        let variable = |name: &str| ProcessEnvironment::read_variable(name)?.into_string().ok();
        let fleet = Fleet::read(&self.filename, variable)?;
        let is_known = |name: &&String| !fleet.clusters.iter().any(|it| it.name.as_str() == **name);
        if let Some(unknown) = self.clusters.iter().find(is_known) {
            let known: Vec<_> = fleet.clusters.iter().map(|it| it.name.as_str()).collect();
            let message = format!("--cluster: the fleet has no cluster `{unknown}`");
            let hint = format!("its clusters are {}", known.join(", "));
            return Err(CommandError::invalid_input(message).with_hint(hint));
        }
        let mut account = account.clone();
        let first = fleet.clusters.first().map(|it| it.identities.subscription.clone());
        account.subscription = account.subscription.or(first);
        let account = AzureAccount::sign_in(&account, environment, &clock).await?;
        Ok(SignedInFleet { fleet, account, clock, names: self.clusters.clone() })
    }
}

impl SignedInFleet {
    /// Whether the flags select the cluster.
    fn is_selected(&self, cluster: &FleetCluster) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name == cluster.name.as_str())
    }

    /// Looks up the desired resources of a cluster.
    async fn target(
        &self,
        cluster: &FleetCluster,
        context: JournalContext<'_>,
        state: &StateArgs,
    ) -> Result<FleetTarget, CommandError> {
        let journal = state.fleet_journal(context, journal_cluster(&self.fleet, cluster))?;
        FleetTarget::resolve(&self.fleet, cluster, self.account.access(), journal)
            .await
            .context(format_args!("cluster `{}`", cluster.name))
    }
}
