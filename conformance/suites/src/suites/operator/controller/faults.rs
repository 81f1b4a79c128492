//! Trials of failures around the operator.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{
    RunningOperator, class_kind, config_map_kind, deployment_kind, use_secret_twice,
    wait_until_quiet,
};
use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::operator_account::OPERATOR_ROLE;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "operator::reconcile_resumes_after_an_api_server_outage", api_server_outage),
        trial(suite, "operator::rapid_changes_converge", change_storm),
        trial(
            suite,
            "operator::invalid_cluster_is_reported_and_does_not_block_others",
            invalid_cluster,
        ),
        trial(suite, "operator::forbidden_classes_do_not_block_other_objects", forbidden_classes),
    ]
}

async fn api_server_outage(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    fixture.plane.kill_api_server();
    fixture.plane.start_api_server().await?;
    running.clear_requests();
    fixture
        .control_plane_api(&config_map_kind())
        .delete("azure-cloud-config", &DeleteParams::default())
        .await?;
    eventually("the deleted ConfigMap is created again", async || {
        Ok(fixture
            .control_plane_api(&config_map_kind())
            .get_opt("azure-cloud-config")
            .await?
            .is_some())
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let written = running.writes_to(&fixture.namespace);
    if written.len() > 3 {
        return Err(format!("unexpected writes: {written:?}").into());
    }
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn invalid_cluster(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    let mut odd = fixture.hosted_cluster();
    odd["metadata"]["name"] = json!("odd");
    use_secret_twice(&mut odd);
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.create(&PostParams::default(), &serde_json::from_value(odd)?).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    let reported = fixture.dynamic_api(&DynamicKind::hosted_cluster_identities());
    eventually("the status reports the invalid cluster", async || {
        let reported =
            reported.get_opt("odd").await?.map(|it| serde_json::to_string(&it)).transpose()?;
        Ok(reported.is_some_and(|text| text.contains("InvalidHostedCluster")))
    })
    .await?;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let about = events.list(&ListParams::default()).await?.items.into_iter();
    let about: Vec<_> = about
        .filter(|it| it.involved_object.name.as_deref() == Some("odd"))
        .map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default()))
        .collect();
    if about.len() != 1 {
        return Err(format!("events about the cluster: {about:#?}").into());
    }
    clusters.delete("odd", &DeleteParams::default()).await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn change_storm(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let api = fixture.control_plane_api(&class_kind());
    let parameters =
        PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    for round in 0..60 {
        let patch = json!({"spec": {"parameters": {"keyvaultName": format!("other-{round}")}}});
        api.patch("managed-azure-ingress", &parameters, &Patch::Merge(patch)).await?;
    }
    eventually("the class is restored", async || {
        let class = serde_json::to_value(api.get("managed-azure-ingress").await?)?;
        Ok(class["spec"]["parameters"]["keyvaultName"] == "harbour-identities")
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn forbidden_classes(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    running.stop().await?;
    // The permissions are granted; then those for classes are removed before another operator starts.
    let roles = Api::<ClusterRole>::all(fixture.client.clone());
    let mut role = roles.get(OPERATOR_ROLE).await?;
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|it| it == "secretproviderclasses") {
            rule.verbs = vec!["get".to_owned()];
        }
    }
    let rules = json!({"rules": role.rules});
    let without = RunningOperator::start_after(
        &fixture,
        |_| (),
        async || {
            roles.patch(OPERATOR_ROLE, &PatchParams::default(), &Patch::Merge(rules)).await?;
            Ok(())
        },
    )
    .await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("all objects except the classes exist", async || {
        Ok(fixture.count_objects(&deployment_kind()).await? >= 9
            && fixture.count_objects(&config_map_kind()).await? >= 1)
    })
    .await?;
    expect_equal("classes", fixture.count_objects(&class_kind()).await?, 0)?;
    without.stop().await?;
    fixture.delete_cluster().await
}
