//! What breaks around the operator.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running::{Running, classes, config_maps, deployments, settle};
use crate::api_server::Kind;
use crate::suites::expect_same;
use crate::suites::operator::OPERATOR;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::it_goes_on_after_the_api_server_was_away", outage),
        trial(stage, "operator::a_storm_of_changes_ends_as_it_should_be", storm),
        trial(
            stage,
            "operator::one_that_nobody_can_read_is_told_and_holds_up_no_other",
            unreadable,
        ),
        trial(stage, "operator::classes_that_it_may_not_touch_keep_nothing_else_back", forbidden),
    ]
}

async fn outage(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    world.plane.kill_server();
    world.plane.start_server().await?;
    running.forget();
    world.made(&config_maps()).delete("azure-cloud-config", &DeleteParams::default()).await?;
    eventually("what was lost is there again", async || {
        Ok(world.made(&config_maps()).get_opt("azure-cloud-config").await?.is_some())
    })
    .await?;
    settle(&running, &world.namespace).await?;
    let written = running.written(&world.namespace);
    if written.len() > 3 {
        return Err(format!("more is written than was lost: {written:?}").into());
    }
    running.end().await?;
    world.clear().await
}

async fn unreadable(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    let mut odd = world.hosted_cluster();
    odd["metadata"]["name"] = json!("odd");
    odd["spec"]["dns"]["publicZoneID"] = json!(7);
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.create(&PostParams::default(), &serde_json::from_value(odd)?).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let told = world.api(&Kind::hosted_cluster_identities());
    eventually("it is told that it cannot be read", async || {
        let told = told.get_opt("odd").await?.map(|it| serde_json::to_string(&it)).transpose()?;
        Ok(told.is_some_and(|text| text.contains("InvalidHostedCluster")))
    })
    .await?;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let about = events.list(&ListParams::default()).await?.items.into_iter();
    let about: Vec<_> = about
        .filter(|it| it.involved_object.name.as_deref() == Some("odd"))
        .map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default()))
        .collect();
    if about.len() != 1 {
        return Err(format!("events about it: {about:#?}").into());
    }
    clusters.delete("odd", &DeleteParams::default()).await?;
    running.end().await?;
    world.clear().await
}

async fn storm(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    let made = world.made(&classes());
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    for round in 0..60 {
        let patch = json!({"spec": {"parameters": {"keyvaultName": format!("other-{round}")}}});
        made.patch("managed-azure-ingress", &parameters, &Patch::Merge(patch)).await?;
    }
    eventually("the class is as it was", async || {
        let class = serde_json::to_value(made.get("managed-azure-ingress").await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    settle(&running, &world.namespace).await?;
    running.end().await?;
    world.clear().await
}

async fn forbidden(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    settle(&running, &world.namespace).await?;
    running.end().await?;
    // The rights are there; then those about classes go, before another process begins.
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let mut role = roles.get(OPERATOR).await?;
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|it| it == "secretproviderclasses") {
            rule.verbs = vec!["get".to_owned()];
        }
    }
    let rules = json!({"rules": role.rules});
    let without = Running::start_with(
        &world,
        |_| (),
        async || {
            roles.patch(OPERATOR, &PatchParams::default(), &Patch::Merge(rules)).await?;
            Ok(())
        },
    )
    .await?;
    world.make_cluster(|_| ()).await?;
    eventually("everything but the classes is there", async || {
        Ok(world.count(&deployments()).await? >= 9 && world.count(&config_maps()).await? >= 1)
    })
    .await?;
    expect_same("classes", world.count(&classes()).await?, 0)?;
    without.end().await?;
    world.clear().await
}
