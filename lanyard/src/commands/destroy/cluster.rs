//! `lanyard destroy cluster azure`: removes a hosted cluster and its infrastructure.

mod finalizers;
mod hosted_cluster_deletion;

use std::time::Duration;

use kube::api::DynamicObject;
use lanyard_api::HostedCluster;
use lanyard_changes::{PlannedRemoval, RecordedState, StackRemoval};
use lanyard_clock::SystemClock;
use lanyard_infra::manifests::KubernetesName;
use lanyard_infra::{ClusterIdentifiers, ClusterName, stacks};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::InfraId;
use serde::Serialize;

use self::hosted_cluster_deletion::{HostedClusterDeletion, delete_labelled_objects};
use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::destroy_stack::{
    DestroyArgs, print_removal, print_unrecorded, recorded_cluster_stacks, remove_planned,
};
use crate::commands::cluster_objects::{ClusterObjects, api_error, infra_id_of};
use crate::commands::go_bool::GoBool;
use crate::commands::go_duration::GoDuration;
use crate::commands::kubectl::ApiServerArgs;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard destroy cluster azure --name harbour --azure-creds creds.json --dry-run
  lanyard destroy cluster azure --name harbour --azure-creds creds.json";

/// The default of --cluster-grace-period. Private links take longer to remove.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_mins(10);
/// The grace period of clusters with a private link, if the user chose none.
const PRIVATE_GRACE_PERIOD: Duration = Duration::from_mins(20);

/// Remove a hosted cluster and its infrastructure from Azure
///
/// Puts the finalizer openshift.io/destroy-cluster on the HostedCluster, deletes it, and waits until HyperShift's
/// operator has removed its own finalizers. Then removes the infrastructure and the role assignments that the journal
/// records, the Secrets of the cluster, and at last the finalizer.
///
/// If a resource group to remove then contains resources that neither the journal nor a tag of the cluster records,
/// the command ends with an error before the first deletion in Azure, and the finalizer stays. Remove the resources or
/// add --include-unrecorded, and run the command again. With --dry-run, they are listed. A lock that prevents a deletion
/// in Azure ends the command before the HostedCluster is deleted.
///
/// The managed identities, the token issuer and the DNS zone stay: `lanyard destroy iam|oidc|dns azure` removes them.
///
/// Run the command again to continue after an interruption. If the HostedCluster does not exist any more, give
/// --infra-id. Resources of the user stay.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the hosted cluster
    #[arg(long, value_name = "NAME")]
    name: ClusterName,
    /// The namespace of the HostedCluster
    #[arg(long, default_value = "clusters", value_name = "NAME")]
    namespace: KubernetesName,
    /// The infrastructure id [default: from the HostedCluster]
    #[arg(long, value_name = "ID")]
    infra_id: Option<InfraId>,
    /// How long HyperShift's operator may take; 20m for clusters with a private link, unless another time is given
    #[arg(long, default_value = "10m", value_name = "DURATION")]
    cluster_grace_period: GoDuration,
    /// After the grace period, remove the finalizers of HyperShift and Cluster API, and continue. Machines, disks and
    /// load balancers outside of the removed resource groups stay then. Also continue if the API server does not serve
    /// HostedClusters
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    force: GoBool,
    /// Let HyperShift's operator remove the load balancers and disks that the cluster created
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    destroy_cloud_resources: GoBool,
    /// Accepted for compatibility with HyperShift; resources are found by their ids
    #[arg(long, hide = true, value_name = "REGION")]
    location: Option<String>,
    /// Accepted for compatibility with HyperShift; groups that existed before are always kept
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    preserve_resource_group: GoBool,
    /// Accepted for compatibility with HyperShift; the journal names the resource groups
    #[arg(long, hide = true, value_name = "NAME")]
    resource_group_name: Option<String>,
    /// Accepted for compatibility with HyperShift; the journal names the role assignments
    #[arg(long, hide = true, value_name = "NAME")]
    dns_zone_rg_name: Option<String>,
    #[command(flatten)]
    destroy: DestroyArgs,
    #[command(flatten)]
    server: ApiServerArgs,
}

/// The result of the command as a document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DestroySummary {
    hosted_cluster: &'static str,
    infrastructure: StackRemoval,
    objects: Vec<String>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let connected =
        ClusterObjects::connect(&args.server, &environment, &args.name, &args.namespace);
    let objects = connected.await?;
    let existing = args.find_cluster(&objects).await?;
    let infra_id = args.infra_id(existing.as_ref())?;
    let identifiers =
        ClusterIdentifiers::new(args.name.clone(), infra_id).or_invalid("--infra-id")?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.destroy.account, &environment, &clock).await?;
    let stacks = vec![stacks::INFRA];
    let run = &args.destroy.run;
    let recorded =
        recorded_cluster_stacks(&account, &identifiers, stacks, run, &environment, &clock)?;
    let planned = recorded.plan(&recorded.read_recorded().await?).await?;
    print_removal(&planned);
    recorded.check_locks(&planned).await?;
    if args.destroy.dry_run {
        return args.print_plan(&objects, existing.is_some(), planned);
    }
    let hosted_cluster = match &existing {
        None => "absent",
        Some(cluster) => {
            args.deletion(&objects, cluster).delete(cluster).await?;
            "deleted"
        }
    };
    // Until the HostedCluster is deleted, the groups contain addresses and disks of the running cluster.
    let include_unrecorded = args.destroy.include_unrecorded;
    let plan = async |state: RecordedState| Ok(recorded.plan(&state).await?);
    let removal = remove_planned(&recorded, &account, run, include_unrecorded, &clock, plan).await;
    let removal =
        removal.inspect_err(|_| print_kept_finalizer(existing.is_some(), &identifiers))?;
    // HyperShift releases the cluster after every failure with --force, and what is left is forgotten.
    let is_removed = removal.succeeded() || (args.force.0 && removal.is_empty);
    if !is_removed {
        DestroySummary { hosted_cluster, infrastructure: removal, objects: Vec::new() }
            .print(args.destroy.output.format)?;
        print_kept_finalizer(existing.is_some(), &identifiers);
        return Ok(CommandExit::Failed);
    }
    let removed = delete_labelled_objects(&objects, identifiers.infra_id()).await?;
    if existing.is_some() {
        finalizers::remove_own(&objects).await?;
    }
    DestroySummary { hosted_cluster, infrastructure: removal, objects: removed }
        .print(args.destroy.output.format)?;
    Ok(CommandExit::Success)
}

fn print_kept_finalizer(has_cluster: bool, identifiers: &ClusterIdentifiers) {
    let next = format!("run the command again with --infra-id {}", identifiers.infra_id());
    output::print_stderr(&if has_cluster {
        format!(
            "the HostedCluster keeps the finalizer {} until the infrastructure is removed\nhint: {next}",
            finalizers::DESTROY_FINALIZER
        )
    } else {
        format!("hint: {next}")
    });
}

impl Args {
    /// Reads the HostedCluster; `None` if it does not exist. With --force, also if its kind is not served.
    async fn find_cluster(
        &self,
        objects: &ClusterObjects,
    ) -> Result<Option<DynamicObject>, CommandError> {
        match objects.read_hosted_cluster().await {
            Ok(found) => Ok(found),
            Err(error @ ApiError::NotServed { .. }) if self.force.0 => {
                output::print_stderr(&format!("note: {error}; --force continues without it"));
                Ok(None)
            }
            Err(error @ ApiError::NotServed { .. }) => {
                Err(objects.not_served_error(HostedCluster::KIND, &error).with_hint(
                    "give the --context of the management cluster; if the management cluster is gone, give --infra-id and --force",
                ))
            }
            Err(error) => Err(api_error(&error)),
        }
    }

    fn infra_id(&self, existing: Option<&DynamicObject>) -> Result<InfraId, CommandError> {
        match (existing.and_then(infra_id_of), &self.infra_id) {
            (Some(found), Some(given)) if found != *given => Err(CommandError::invalid_input(
                format!("--infra-id differs from the HostedCluster, which has `{found}`"),
            )),
            (Some(found), _) => Ok(found),
            (None, Some(given)) => Ok(given.clone()),
            (None, None) => {
                let (namespace, name) = (&self.namespace, &self.name);
                let state =
                    if existing.is_some() { "has no spec.infraID" } else { "does not exist" };
                Err(CommandError::invalid_input(format!(
                    "--infra-id is missing: HostedCluster {namespace}/{name} {state}"
                ))
                .with_hint("give the infrastructure id, or another --namespace or --context"))
            }
        }
    }

    fn deletion<'a>(
        &self,
        objects: &'a ClusterObjects,
        cluster: &DynamicObject,
    ) -> HostedClusterDeletion<'a> {
        HostedClusterDeletion {
            objects,
            grace_period: grace_period(self.cluster_grace_period.0, is_private(cluster)),
            force: self.force.0,
            destroy_cloud_resources: self.destroy_cloud_resources.0,
        }
    }

    fn print_plan(
        &self,
        objects: &ClusterObjects,
        has_cluster: bool,
        planned: PlannedRemoval,
    ) -> CommandResult {
        let hosted_cluster = if has_cluster { "present" } else { "absent" };
        if has_cluster {
            output::print_stderr(&format!(
                "HostedCluster {}/{} would be deleted with its NodePools and Secrets",
                objects.namespace(),
                objects.name()
            ));
            // HyperShift's operator removes those of the running cluster.
            print_unrecorded(&planned);
        } else {
            planned.check_unrecorded(self.destroy.include_unrecorded)?;
        }
        let infrastructure = StackRemoval::planned(planned);
        DestroySummary { hosted_cluster, infrastructure, objects: Vec::new() }
            .print(self.destroy.output.format)?;
        Ok(CommandExit::Success)
    }
}

impl DestroySummary {
    fn print(&self, format: CliOutputFormat) -> Result<(), CommandError> {
        output::print_value(self, format, |_| {
            let objects = self.objects.iter().map(|object| format!("{object} deleted"));
            let cluster = format!("HostedCluster {}", self.hosted_cluster);
            let lines = self
                .infrastructure
                .run
                .iter()
                .map(ToString::to_string)
                .chain(objects)
                .chain([cluster]);
            lines.collect::<Vec<_>>().join("\n")
        })
    }
}

/// Whether the cluster has a private link.
fn is_private(cluster: &DynamicObject) -> bool {
    let topology = cluster.data.pointer("/spec/platform/azure/topology");
    topology.and_then(|it| it.as_str()).is_some_and(|it| it != "Public")
}

/// The grace period: private links take longer, but the choice of the user counts.
fn grace_period(given: Duration, is_private: bool) -> Duration {
    if is_private && given == DEFAULT_GRACE_PERIOD { PRIVATE_GRACE_PERIOD } else { given }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_period_is_doubled_for_private_clusters_unless_the_user_chose_one() {
        let minutes = Duration::from_mins;
        assert_eq!(grace_period(minutes(10), false), minutes(10));
        assert_eq!(grace_period(minutes(10), true), minutes(20));
        assert_eq!(grace_period(minutes(5), true), minutes(5));
    }
}
