//! What breaks around the operator.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{
    RunningOperator, class_kind, config_map_kind, deployment_kind, wait_until_quiet,
};
use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::OPERATOR_USER;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(stage, "operator::reconcile_resumes_after_an_api_server_outage", api_server_outage),
        trial(stage, "operator::rapid_changes_converge", change_storm),
        trial(
            stage,
            "operator::unreadable_cluster_is_reported_and_does_not_block_others",
            unreadable_cluster,
        ),
        trial(stage, "operator::forbidden_classes_do_not_block_other_objects", forbidden_classes),
    ]
}

async fn api_server_outage(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    world.plane.kill_api_server();
    world.plane.start_api_server().await?;
    running.clear_requests();
    world
        .control_plane_api(&config_map_kind())
        .delete("azure-cloud-config", &DeleteParams::default())
        .await?;
    eventually("what was lost is there again", async || {
        Ok(world
            .control_plane_api(&config_map_kind())
            .get_opt("azure-cloud-config")
            .await?
            .is_some())
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let written = running.writes_to(&world.namespace);
    if written.len() > 3 {
        return Err(format!("more is written than was lost: {written:?}").into());
    }
    running.stop().await?;
    world.delete_cluster().await
}

async fn unreadable_cluster(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    let mut odd = world.hosted_cluster();
    odd["metadata"]["name"] = json!("odd");
    odd["spec"]["dns"]["publicZoneID"] = json!(7);
    let clusters = world.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.create(&PostParams::default(), &serde_json::from_value(odd)?).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    let told = world.dynamic_api(&DynamicKind::hosted_cluster_identities());
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
    running.stop().await?;
    world.delete_cluster().await
}

async fn change_storm(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let made = world.control_plane_api(&class_kind());
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
    wait_until_quiet(&running, &world.namespace).await?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn forbidden_classes(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    wait_until_quiet(&running, &world.namespace).await?;
    running.stop().await?;
    // The rights are there; then those about classes go, before another process begins.
    let roles = Api::<ClusterRole>::all(world.client.clone());
    let mut role = roles.get(OPERATOR_USER).await?;
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|it| it == "secretproviderclasses") {
            rule.verbs = vec!["get".to_owned()];
        }
    }
    let rules = json!({"rules": role.rules});
    let without = RunningOperator::start_after(
        &world,
        |_| (),
        async || {
            roles.patch(OPERATOR_USER, &PatchParams::default(), &Patch::Merge(rules)).await?;
            Ok(())
        },
    )
    .await?;
    world.create_cluster(|_| ()).await?;
    eventually("everything but the classes is there", async || {
        Ok(world.count_objects(&deployment_kind()).await? >= 9
            && world.count_objects(&config_map_kind()).await? >= 1)
    })
    .await?;
    expect_equal("classes", world.count_objects(&class_kind()).await?, 0)?;
    without.stop().await?;
    world.delete_cluster().await
}
