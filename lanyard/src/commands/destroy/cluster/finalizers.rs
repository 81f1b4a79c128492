//! Changes of finalizers.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use lanyard_api::HostedCluster;
use lanyard_kubernetes::ApiError;
use serde_json::{Value, json};

use crate::commands::cluster_objects::{ClusterObjects, api_error};
use crate::exit::CommandError;

/// The finalizer that keeps the HostedCluster until its infrastructure is removed, as in HyperShift.
pub(super) const DESTROY_FINALIZER: &str = "openshift.io/destroy-cluster";
/// The annotation that lets HyperShift's operator remove load balancers and disks of the cluster.
const CLEANUP_ANNOTATION: &str = "hypershift.openshift.io/cleanup-cloud-resources";
/// How often a change is repeated that conflicts with another writer.
const CONFLICT_ATTEMPTS: usize = 10;

/// The finalizers of an object.
pub(super) fn finalizers_of(object: &DynamicObject) -> &[String] {
    object.metadata.finalizers.as_deref().unwrap_or_default()
}

/// Puts the finalizer on the HostedCluster, unless it is being deleted: the API server accepts no new finalizers
/// then.
pub(super) async fn add_own(
    objects: &ClusterObjects,
    destroy_cloud_resources: bool,
) -> Result<(), CommandError> {
    change(objects, |cluster| {
        let has_finalizer = finalizers_of(cluster).iter().any(|it| it == DESTROY_FINALIZER);
        if cluster.metadata.deletion_timestamp.is_some() || has_finalizer {
            return None;
        }
        let mut finalizers = finalizers_of(cluster).to_vec();
        finalizers.push(DESTROY_FINALIZER.to_owned());
        let mut metadata = json!({ "finalizers": finalizers });
        if destroy_cloud_resources {
            metadata["annotations"] = json!({ CLEANUP_ANNOTATION: "true" });
        }
        Some(metadata)
    })
    .await
}

/// Removes the finalizer from the HostedCluster.
pub(super) async fn remove_own(objects: &ClusterObjects) -> Result<(), CommandError> {
    retain(objects, |finalizer| finalizer != DESTROY_FINALIZER).await
}

/// Removes all finalizers of others from the HostedCluster.
pub(super) async fn remove_others(objects: &ClusterObjects) -> Result<(), CommandError> {
    retain(objects, |finalizer| finalizer == DESTROY_FINALIZER).await
}

async fn retain(objects: &ClusterObjects, keep: impl Fn(&str) -> bool) -> Result<(), CommandError> {
    change(objects, |cluster| {
        let finalizers = finalizers_of(cluster);
        let remaining: Vec<_> = finalizers.iter().filter(|it| keep(it)).collect();
        (remaining.len() < finalizers.len()).then(|| json!({ "finalizers": remaining }))
    })
    .await
}

/// Changes the metadata of the HostedCluster if it still has the version that was read.
async fn change(
    objects: &ClusterObjects,
    metadata_of: impl Fn(&DynamicObject) -> Option<Value>,
) -> Result<(), CommandError> {
    let api = objects.hosted_clusters();
    for attempt in 1.. {
        let Some(cluster) = objects.find_hosted_cluster().await? else { return Ok(()) };
        let Some(mut metadata) = metadata_of(&cluster) else { return Ok(()) };
        metadata["resourceVersion"] = json!(cluster.metadata.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let parameters = PatchParams::default();
        let write = || api.patch(objects.name(), &parameters, &patch);
        let action = format!("change the finalizers of {} {}", HostedCluster::KIND, objects.name());
        match objects.call(action, write).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(ApiError::Refused { status: 409, .. }) if attempt < CONFLICT_ATTEMPTS => {}
            Err(error) => return Err(api_error(&error)),
        }
    }
    Ok(())
}

/// Deletes an object and removes all its finalizers.
pub(super) async fn delete_without_finalizers(
    objects: &ClusterObjects,
    api: &Api<DynamicObject>,
    kind: &str,
    name: &str,
) -> Result<(), CommandError> {
    objects.delete(api, kind, name).await?;
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let parameters = PatchParams::default();
    let write = || api.patch(name, &parameters, &patch);
    match objects.call(format!("remove the finalizers of {kind} {name}"), write).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(api_error(&error)),
    }
}
