//! Deletes the HostedCluster and the objects that belong to it.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, ListParams};
use lanyard_api::HostedCluster;
use lanyard_infra::manifests::INFRA_LABEL;
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::InfraId;

use super::finalizers::{self, DESTROY_FINALIZER, finalizers_of};
use crate::commands::cluster_objects::{ClusterObjects, api_error};
use crate::exit::CommandError;
use crate::output;

/// How often the HostedCluster is read while HyperShift's operator deletes its parts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The deletion of a HostedCluster.
pub(super) struct HostedClusterDeletion<'a> {
    pub(super) objects: &'a ClusterObjects,
    pub(super) grace_period: Duration,
    pub(super) force: bool,
    pub(super) destroy_cloud_resources: bool,
}

/// The kinds in the namespace of the control plane whose finalizers `--force` removes, each before the kinds that
/// wait for it: group, version, kind and plural.
const CONTROL_PLANE_KINDS: [(&str, &str, &str, &str); 7] = [
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "AzureMachine", "azuremachines"),
    ("cluster.x-k8s.io", "v1beta1", "Machine", "machines"),
    ("cluster.x-k8s.io", "v1beta1", "MachineSet", "machinesets"),
    ("cluster.x-k8s.io", "v1beta1", "MachineDeployment", "machinedeployments"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "AzureCluster", "azureclusters"),
    ("cluster.x-k8s.io", "v1beta1", "Cluster", "clusters"),
    ("hypershift.openshift.io", "v1beta1", "HostedControlPlane", "hostedcontrolplanes"),
];

impl HostedClusterDeletion<'_> {
    /// Deletes the HostedCluster and waits until only the finalizer of the command is left.
    pub(super) async fn delete(&self, cluster: &DynamicObject) -> Result<(), CommandError> {
        let objects = self.objects;
        if cluster.metadata.deletion_timestamp.is_none() {
            finalizers::add_own(objects, self.destroy_cloud_resources).await?;
            let (api, name) = (objects.hosted_clusters(), objects.name());
            objects.delete(&api, HostedCluster::KIND, name).await?;
        }
        // HyperShift's operator deletes the NodePools as well. They would stay without it.
        for name in self.node_pools().await? {
            objects.delete(&objects.node_pools(), "NodePool", &name).await?;
        }
        let Some(remaining) = self.wait().await else { return Ok(()) };
        if !self.force {
            return Err(self.grace_period_error(&remaining));
        }
        output::print_stderr(&format!(
            "the grace period is over; --force removes the finalizers: {}",
            remaining.join(", ")
        ));
        self.remove_finalizers().await
    }

    /// Waits at most the grace period. Returns the finalizers that are left.
    async fn wait(&self) -> Option<Vec<String>> {
        let clock = self.objects.clock();
        let deadline = clock.monotonic() + self.grace_period;
        let mut reported = Vec::new();
        let mut last_error = String::new();
        loop {
            match self.objects.find_hosted_cluster().await {
                Ok(None) => return None,
                Ok(Some(cluster)) => {
                    let others = finalizers_of(&cluster).iter();
                    let others: Vec<_> =
                        others.filter(|it| *it != DESTROY_FINALIZER).cloned().collect();
                    if others.is_empty() {
                        return None;
                    }
                    if reported != others {
                        let names = others.join(", ");
                        output::print_stderr(&format!("waiting for the finalizers {names}"));
                        reported = others;
                    }
                }
                // The API server may be unavailable for some time.
                Err(error) => {
                    let error = error.to_string();
                    if last_error != error {
                        output::print_stderr(&error);
                        last_error = error;
                    }
                }
            }
            if clock.monotonic() >= deadline {
                return Some(reported);
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    fn grace_period_error(&self, remaining: &[String]) -> CommandError {
        let (namespace, name) = (self.objects.namespace(), self.objects.name());
        let finalizers = match remaining {
            [] => "other finalizers".to_owned(),
            known => format!("the finalizers {}", known.join(", ")),
        };
        CommandError::unavailable(format!(
            "HostedCluster {namespace}/{name} still has {finalizers} after {} s",
            self.grace_period.as_secs()
        ))
        .with_hint("look at the log of HyperShift's operator; run the command again, with a longer --cluster-grace-period, or with --force")
    }

    async fn remove_finalizers(&self) -> Result<(), CommandError> {
        let objects = self.objects;
        let namespace = format!("{}-{}", objects.namespace(), objects.name());
        for kind in CONTROL_PLANE_KINDS {
            let api = objects.objects_in(&namespace, kind);
            let names = list_names(objects, &api, kind.2, &ListParams::default(), |_| true).await?;
            for name in names {
                finalizers::delete_without_finalizers(objects, &api, kind.2, &name).await?;
            }
        }
        for name in self.node_pools().await? {
            let api = objects.node_pools();
            finalizers::delete_without_finalizers(objects, &api, "NodePool", &name).await?;
        }
        finalizers::remove_others(objects).await?;
        if objects.fetch(&objects.namespaces(), "Namespace", &namespace).await?.is_some() {
            output::print_stderr(&format!(
                "note: the namespace {namespace} still exists; remove it with `kubectl delete namespace {namespace}`"
            ));
        }
        Ok(())
    }

    /// The names of the cluster's NodePools.
    async fn node_pools(&self) -> Result<Vec<String>, CommandError> {
        let (objects, everything) = (self.objects, ListParams::default());
        let is_ours = |pool: &DynamicObject| {
            let cluster = pool.data.pointer("/spec/clusterName");
            cluster.and_then(|it| it.as_str()) == Some(objects.name())
        };
        list_names(objects, &objects.node_pools(), "NodePool", &everything, is_ours).await
    }
}

/// Deletes the Secrets that were created for the infrastructure, and NodePools whose HostedCluster is gone. Returns
/// what was deleted.
pub(super) async fn delete_labelled_objects(
    objects: &ClusterObjects,
    infra_id: &InfraId,
) -> Result<Vec<String>, CommandError> {
    let labelled = ListParams::default().labels(&format!("{INFRA_LABEL}={infra_id}"));
    let mut deleted = Vec::new();
    for (kind, api) in [("NodePool", objects.node_pools()), ("Secret", objects.secrets())] {
        for name in list_names(objects, &api, kind, &labelled, |_| true).await? {
            objects.delete(&api, kind, &name).await?;
            deleted.push(format!("{kind} {name}"));
        }
    }
    Ok(deleted)
}

/// The names of some objects of a kind; none if the API server does not serve the kind.
async fn list_names(
    objects: &ClusterObjects,
    api: &Api<DynamicObject>,
    kind: &str,
    parameters: &ListParams,
    is_selected: impl Fn(&DynamicObject) -> bool,
) -> Result<Vec<String>, CommandError> {
    match objects.call(format!("list {kind}"), || api.list(parameters)).await {
        Ok(list) => {
            let selected = list.items.into_iter().filter(is_selected);
            Ok(selected.filter_map(|object| object.metadata.name).collect())
        }
        Err(ApiError::NotServed { .. }) => Ok(Vec::new()),
        Err(error) => Err(api_error(&error)),
    }
}
