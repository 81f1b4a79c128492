//! Trials of the chart's permissions.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_node::{KubeClassCache, KubeClassCacheSettings, Reporter};
use lanyard_provider::{ClassError, ClassSource};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::pod_status::{start_reporter, status_update};
use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, NODE_PLUGIN_USER, trial};
use crate::suites::expect_equal;
use crate::waiting::eventually;

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![trial(
        suite,
        "permissions::chart_permissions_are_sufficient_and_missing_ones_are_reported",
        chart_permissions_are_sufficient,
    )]
}

/// Grants rules to the node plugin in the whole cluster.
pub(super) async fn grant_cluster_role(
    fixture: &KubernetesTrialFixture,
    name: &str,
    rules: Value,
) -> Result<(), Failed> {
    let parameters = PatchParams::apply("trial").force();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let roles = Api::<ClusterRole>::all(fixture.client.clone());
    roles.patch(name, &parameters, &Patch::Apply(role)).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": NODE_PLUGIN_USER}],
    });
    let bindings = Api::<ClusterRoleBinding>::all(fixture.client.clone());
    bindings.patch(name, &parameters, &Patch::Apply(binding)).await?;
    Ok(())
}

async fn chart_permissions_are_sufficient(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", json!({"provider": "azure"})).await?;
    let counted = fixture.counting_api(NODE_PLUGIN_USER).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    let reporter = start_reporter(&counted, "node");
    grant_cluster_role(&fixture, "node", json!([])).await?;
    let denied = classes.class(&fixture.namespace, "c").await;
    let Err(denied @ ClassError::Unavailable { .. }) = denied else {
        return Err(format!("without rights: {denied:?}").into());
    };
    expect_equal(
        "the error contains the HTTP status",
        denied.to_string().contains("HTTP 403"),
        true,
    )?;
    let probed = counted.api.probe().await;
    expect_equal("the probe succeeds without permissions", probed.is_ok(), false)?;
    let denied = reporter.report_status(&status_update(&fixture, "p", "u", "v")).await;
    let Err(denied) = denied else { return Err("reported without rights".into()) };
    expect_equal(
        "the error names the ClusterRole",
        denied.to_string().contains("ClusterRole"),
        true,
    )?;
    grant_cluster_role(&fixture, "node", fixture.permissions.base_rules.clone()).await?;
    eventually("the permissions are sufficient for classes", async || {
        Ok(classes.class(&fixture.namespace, "c").await.is_ok())
    })
    .await?;
    counted.api.probe().await?;
    reporter.report_status(&status_update(&fixture, "p", "u", "v")).await?;
    // Taking over the pod status of a former pod needs no further permission.
    reporter.forget_volume(&status_update(&fixture, "p", "u", "v").target);
    reporter.report_status(&status_update(&fixture, "p", "w", "v")).await?;
    counted.take_requests();
    eventually("the cache serves the class from the watch", async || {
        counted.take_requests();
        classes.class(&fixture.namespace, "c").await?;
        Ok(counted.take_requests().is_empty())
    })
    .await
}
