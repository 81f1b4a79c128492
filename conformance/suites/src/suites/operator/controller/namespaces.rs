//! Namespaces of control planes that were there before.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::running_operator::{RunningOperator, deployment_kind, wait_until_quiet};
use crate::api_server::{DynamicKind, ensure_namespace_exists};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    let foreign = "operator::unowned_namespace_is_neither_written_nor_deleted";
    let handed = "operator::adopted_namespace_is_kept_on_deletion";
    vec![
        trial(stage, foreign, foreign_namespace_is_untouched),
        trial(stage, handed, marked_namespace_is_kept),
    ]
}

/// Marks the namespace of the control plane as that of the example, as a person would.
pub(super) async fn mark_namespace_for_cluster(world: &OperatorTrialFixture) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let cluster = format!("{}/harbour", world.namespace);
    let patch = json!({"metadata": {
        "labels": {"hypershift.openshift.io/hosted-control-plane": "true"},
        "annotations": {"hypershift.openshift.io/cluster": cluster},
    }});
    namespaces
        .patch(&world.control_plane_namespace(), &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Makes the namespace of the control plane, and in it a cloud configuration of somebody else's.
pub(super) async fn create_foreign_cloud_config(
    world: &OperatorTrialFixture,
    data: &Value,
) -> Result<Api<ConfigMap>, Failed> {
    ensure_namespace_exists(&world.client, &world.control_plane_namespace()).await?;
    mark_namespace_for_cluster(world).await?;
    let maps: Api<ConfigMap> =
        Api::namespaced(world.client.clone(), &world.control_plane_namespace());
    let foreign = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "azure-cloud-config", "namespace": world.control_plane_namespace()},
        "data": data,
    });
    let parameters = PatchParams::apply("somebody");
    maps.patch("azure-cloud-config", &parameters, &Patch::Apply(foreign)).await?;
    Ok(maps)
}

/// A namespace of the name of the control plane's that somebody made for something else.
async fn foreign_namespace_is_untouched(world: OperatorTrialFixture) -> Result<(), Failed> {
    ensure_namespace_exists(&world.client, &world.control_plane_namespace()).await?;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let before = namespaces.get(&world.control_plane_namespace()).await?;
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    eventually("it is told whose the namespace is, and what to do", async || {
        let told = world.read_identities().await?.to_string();
        Ok(told.contains("InvalidHostedCluster") && told.contains("hand the namespace over"))
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = events.list(&ListParams::default()).await?;
    let named = told.iter().filter(|it| {
        it.message.as_ref().is_some_and(|it| it.contains(&world.control_plane_namespace()))
    });
    expect_equal("events that name it", named.count(), 1)?;
    let written = format!("/namespaces/{}", world.control_plane_namespace());
    expect_equal("writes", running.writes_to(&written), Vec::new())?;
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let after = namespaces.get(&world.control_plane_namespace()).await?;
    expect_equal(
        "the namespace",
        after.metadata.resource_version,
        before.metadata.resource_version,
    )?;
    running.stop().await
}

/// A namespace that was handed over is written, and stays when the cluster goes.
async fn marked_namespace_is_kept(world: OperatorTrialFixture) -> Result<(), Failed> {
    ensure_namespace_exists(&world.client, &world.control_plane_namespace()).await?;
    mark_namespace_for_cluster(&world).await?;
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let namespace =
        Api::<Namespace>::all(world.client.clone()).get(&world.control_plane_namespace()).await?;
    expect_equal("its end", namespace.metadata.deletion_timestamp.is_some(), false)?;
    expect_equal("what is left", world.count_objects(&deployment_kind()).await?, 0)?;
    running.stop().await
}
