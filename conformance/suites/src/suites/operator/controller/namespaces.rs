//! Namespaces of control planes that were there before.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::running::{Running, deployments, settle};
use crate::api_server::{Kind, ensure_namespace};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    let foreign = "operator::a_namespace_of_somebody_else_is_neither_written_nor_deleted";
    let handed = "operator::a_namespace_that_was_handed_over_stays_at_the_end";
    vec![trial(stage, foreign, foreign_namespace), trial(stage, handed, handed_over)]
}

/// Marks the namespace of the control plane as that of the example, as a person would.
pub(super) async fn hand_over(world: &World) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let cluster = format!("{}/harbour", world.namespace);
    let patch = json!({"metadata": {
        "labels": {"hypershift.openshift.io/hosted-control-plane": "true"},
        "annotations": {"hypershift.openshift.io/cluster": cluster},
    }});
    namespaces.patch(&world.room(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Makes the namespace of the control plane, and in it a cloud configuration of somebody else's.
pub(super) async fn occupy(world: &World, data: &Value) -> Result<Api<ConfigMap>, Failed> {
    ensure_namespace(&world.client, &world.room()).await?;
    hand_over(world).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.room());
    let foreign = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "azure-cloud-config", "namespace": world.room()},
        "data": data,
    });
    let parameters = PatchParams::apply("somebody");
    maps.patch("azure-cloud-config", &parameters, &Patch::Apply(foreign)).await?;
    Ok(maps)
}

/// A namespace of the name of the control plane's that somebody made for something else.
async fn foreign_namespace(world: World) -> Result<(), Failed> {
    ensure_namespace(&world.client, &world.room()).await?;
    let namespaces = Api::<Namespace>::all(world.client.clone());
    let before = namespaces.get(&world.room()).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    eventually("it is told whose the namespace is, and what to do", async || {
        let told = world.told().await?.to_string();
        Ok(told.contains("InvalidHostedCluster") && told.contains("hand the namespace over"))
    })
    .await?;
    settle(&running, &world.namespace).await?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let told = events.list(&ListParams::default()).await?;
    let named =
        told.iter().filter(|it| it.message.as_ref().is_some_and(|it| it.contains(&world.room())));
    expect_same("events that name it", named.count(), 1)?;
    let written = format!("/namespaces/{}", world.room());
    expect_same("writes", running.written(&written), Vec::new())?;
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let after = namespaces.get(&world.room()).await?;
    expect_same(
        "the namespace",
        after.metadata.resource_version,
        before.metadata.resource_version,
    )?;
    running.end().await
}

/// A namespace that was handed over is written, and stays when the cluster goes.
async fn handed_over(world: World) -> Result<(), Failed> {
    ensure_namespace(&world.client, &world.room()).await?;
    hand_over(&world).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let namespace = Api::<Namespace>::all(world.client.clone()).get(&world.room()).await?;
    expect_same("its end", namespace.metadata.deletion_timestamp.is_some(), false)?;
    expect_same("what is left", world.count(&deployments()).await?, 0)?;
    running.end().await
}
