//! What breaks around the operator.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running::{Running, classes, config_maps, deployments, eventually, settle};
use crate::settings::OPERATOR;
use crate::suite::world::World;
use crate::suite::{Stage, expect_same, trial};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::it_goes_on_after_the_api_server_was_away", outage),
        trial(stage, "operator::a_storm_of_changes_ends_as_it_should_be", storm),
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
    let written = running.written(&world.namespace).len();
    expect_same("writes are few", written <= 3, true)?;
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
