//! `lanyard create aks azure`: creates a management cluster.

use lanyard_changes::{ResourceKey, RunReport};
use lanyard_clock::SystemClock;
use lanyard_infra::{
    ADD_ON_IDENTITY, AKS_CLUSTER_KEY, AksParameters, DEFAULT_LOCATION, aks_resources, stacks,
};
use lanyard_vocabulary::ArmResourceId;

use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create aks azure --prefix harbour-dev --node-count 3 --max-count 6 \\
    --key-vault-id /subscriptions/ID/resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/harbour-dev";

/// Create or change a management cluster for hosted control planes in Azure
///
/// Creates an AKS cluster with the Secrets Store add-on (with rotation), the OIDC issuer, workload identity, managed
/// identities for the control plane and the kubelets, and optionally the autoscaler. The names are those of
/// HyperShift's scripts: the group PREFIX-aks-rg, the cluster PREFIX-aks-cluster, and the identities PREFIX-aks-mi
/// and PREFIX-aks-kubelet-mi in the persistent group.
///
/// A later run changes resources that differ from the flags. It deletes resources that an earlier run created and
/// the flags no longer describe, for example the role of the Secrets Store add-on without --key-vault-id.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The prefix of the environment, which ends the names of the components' identities (`cpo-PREFIX`) and
    /// begins the name of the management cluster (`PREFIX-aks-cluster`)
    #[arg(long, value_name = "PREFIX")]
    prefix: String,
    /// The resource group of the identities, which is created if it does not exist
    #[arg(long, default_value = "os4-common", value_name = "NAME")]
    persistent_resource_group_name: String,
    /// The region
    #[arg(long, default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    /// The number of nodes; with --max-count, the smallest number
    #[arg(long, default_value = "3", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    node_count: u32,
    /// The largest number of nodes; enables the autoscaler
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_count: Option<u32>,
    /// The size of the nodes' machines
    #[arg(long, default_value = "Standard_D4s_v4", value_name = "SIZE")]
    node_vm_size: String,
    /// The vault whose secrets the Secrets Store add-on may read
    #[arg(long, value_name = "RESOURCE-ID")]
    key_vault_id: Option<ArmResourceId>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    if args.max_count.is_some_and(|most| most < args.node_count) {
        return Err(CommandError::invalid_input("--max-count is smaller than --node-count"));
    }
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: &args.prefix,
        stack: stacks::AKS,
        environment: &environment,
    };
    if args.roll_back.roll_back {
        return stack.roll_back(&args.run, args.output.format, &clock).await;
    }
    let parameters = AksParameters {
        subscription: account.subscription.clone(),
        prefix: args.prefix.clone(),
        location: args.location.clone(),
        persistent_group: args.persistent_resource_group_name.clone(),
        nodes: args.node_count,
        max_nodes: args.max_count,
        vm_size: args.node_vm_size.clone(),
        vault: args.key_vault_id.clone(),
    };
    let resources = aks_resources(&parameters);
    let Some(report) = stack.create(resources, &args.run, args.output.format, &clock).await? else {
        return Ok(CommandExit::Failed);
    };
    output::print_stderr(&next_steps(&report));
    Ok(CommandExit::Success)
}

/// The values of the new cluster that later commands need.
fn next_steps(report: &RunReport) -> String {
    let cluster = report.live.get(&ResourceKey::new(AKS_CLUSTER_KEY));
    let value = |pointer: &str| {
        let value = cluster.and_then(|found| found.body.pointer(pointer)?.as_str());
        value.unwrap_or("unknown").to_owned()
    };
    format!(
        "client id of the Secrets Store add-on: {}\nobject id of the Secrets Store add-on: {}\nOIDC issuer: {}",
        value(&format!("{ADD_ON_IDENTITY}/clientId")),
        value(&format!("{ADD_ON_IDENTITY}/objectId")),
        value("/properties/oidcIssuerProfile/issuerURL")
    )
}
