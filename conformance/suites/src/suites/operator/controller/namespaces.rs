//! Trials of control plane namespaces that existed before.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use lanyard_operator::permissions::CONTROL_PLANE_CLUSTER_ROLE;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::running_operator::{RunningOperator, deployment_kind, wait_until_quiet};
use crate::api_server::{DynamicKind, ensure_namespace_exists};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    let foreign = "operator::unowned_namespace_is_neither_written_nor_deleted";
    let handed = "operator::adopted_namespace_is_kept_on_deletion";
    vec![
        trial(suite, foreign, foreign_namespace_is_untouched),
        trial(suite, handed, marked_namespace_is_kept),
    ]
}

/// Adds the label and annotation that assign the control plane namespace to the example, as a user would.
pub(super) async fn mark_namespace_for_cluster(
    fixture: &OperatorTrialFixture,
) -> Result<(), Failed> {
    let namespaces = Api::<Namespace>::all(fixture.client.clone());
    let cluster = format!("{}/harbour", fixture.namespace);
    let patch = json!({"metadata": {
        "labels": {"hypershift.openshift.io/hosted-control-plane": "true"},
        "annotations": {"hypershift.openshift.io/cluster": cluster},
    }});
    namespaces
        .patch(&fixture.control_plane_namespace(), &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Creates the control plane namespace with a cloud configuration of another field manager.
pub(super) async fn create_foreign_cloud_config(
    fixture: &OperatorTrialFixture,
    data: &Value,
) -> Result<Api<ConfigMap>, Failed> {
    ensure_namespace_exists(&fixture.client, &fixture.control_plane_namespace()).await?;
    mark_namespace_for_cluster(fixture).await?;
    let maps: Api<ConfigMap> =
        Api::namespaced(fixture.client.clone(), &fixture.control_plane_namespace());
    let foreign = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "azure-cloud-config", "namespace": fixture.control_plane_namespace()},
        "data": data,
    });
    let parameters = PatchParams::apply("other-manager");
    maps.patch("azure-cloud-config", &parameters, &Patch::Apply(foreign)).await?;
    Ok(maps)
}

/// A namespace with the name of the control plane's that belongs to something else must stay unchanged.
async fn foreign_namespace_is_untouched(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    ensure_namespace_exists(&fixture.client, &fixture.control_plane_namespace()).await?;
    let namespaces = Api::<Namespace>::all(fixture.client.clone());
    let before = namespaces.get(&fixture.control_plane_namespace()).await?;
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("the status names the owner of the namespace and the next step", async || {
        let reported = fixture.read_identities().await?.to_string();
        Ok(reported.contains("InvalidHostedCluster")
            && reported.contains("hand the namespace over"))
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), &fixture.namespace);
    let reported = events.list(&ListParams::default()).await?;
    let named = reported.iter().filter(|it| {
        it.message.as_ref().is_some_and(|it| it.contains(&fixture.control_plane_namespace()))
    });
    expect_equal("events that name the namespace", named.count(), 1)?;
    let written = format!("/namespaces/{}", fixture.control_plane_namespace());
    expect_equal("writes", running.writes_to(&written), Vec::new())?;
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let after = namespaces.get(&fixture.control_plane_namespace()).await?;
    expect_equal(
        "the namespace",
        after.metadata.resource_version,
        before.metadata.resource_version,
    )?;
    running.stop().await
}

/// A namespace that a user assigned to the cluster is written, and kept when the cluster is deleted.
async fn marked_namespace_is_kept(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    ensure_namespace_exists(&fixture.client, &fixture.control_plane_namespace()).await?;
    mark_namespace_for_cluster(&fixture).await?;
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the cluster is gone", async || Ok(clusters.get_opt("harbour").await?.is_none()))
        .await?;
    let namespace = Api::<Namespace>::all(fixture.client.clone())
        .get(&fixture.control_plane_namespace())
        .await?;
    expect_equal("the deletion timestamp", namespace.metadata.deletion_timestamp.is_some(), false)?;
    expect_equal("remaining Deployments", fixture.count_objects(&deployment_kind()).await?, 0)?;
    let bindings =
        DynamicKind::from_names("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
    expect_equal("remaining RoleBindings", fixture.count_objects(&bindings).await?, 0)?;
    let writes = running.writes_to(&format!("/{}/", fixture.control_plane_namespace()));
    let last = writes.last().map(String::as_str).unwrap_or_default();
    let own = format!("/rolebindings/{CONTROL_PLANE_CLUSTER_ROLE}");
    if !(last.starts_with("DELETE ") && last.ends_with(&own)) {
        return Err(format!("the operator's own RoleBinding was not the last write: {last}").into());
    }
    running.stop().await
}
