//! The least rights that are enough.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_node::{ClassError, ClassSource, KubeClassCache, KubeClassCacheSettings, Reporter};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::pod_status::{start_reporter, volume_report};
use super::trial_fixture::KubernetesTrialFixture;
use super::{KubernetesSuiteFixture, NODE_PLUGIN_USER, trial};
use crate::suites::expect_equal;
use crate::waiting::eventually;

pub(super) fn trials(stage: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![trial(
        stage,
        "permissions::chart_permissions_are_sufficient_and_missing_ones_are_reported",
        chart_permissions_are_sufficient,
    )]
}

/// Gives the node plugin rights in the whole cluster.
pub(super) async fn grant_cluster_role(
    world: &KubernetesTrialFixture,
    name: &str,
    rules: Value,
) -> Result<(), Failed> {
    let parameters = PatchParams::apply("trial").force();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    let roles = Api::<ClusterRole>::all(world.client.clone());
    roles.patch(name, &parameters, &Patch::Apply(role)).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": NODE_PLUGIN_USER}],
    });
    let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
    bindings.patch(name, &parameters, &Patch::Apply(binding)).await?;
    Ok(())
}

async fn chart_permissions_are_sufficient(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", json!({"provider": "azure"})).await?;
    let counted = world.counting_api(NODE_PLUGIN_USER).await?;
    let classes = KubeClassCache::new(counted.api.clone(), KubeClassCacheSettings::default());
    let reporter = start_reporter(&counted, "node");
    grant_cluster_role(&world, "node", json!([])).await?;
    let denied = classes.class(&world.namespace, "c").await;
    let Err(denied @ ClassError::Unavailable { .. }) = denied else {
        return Err(format!("without rights: {denied:?}").into());
    };
    expect_equal("the refusal is told", denied.to_string().contains("HTTP 403"), true)?;
    let probed = counted.api.probe().await;
    expect_equal("it is ready without rights", probed.is_ok(), false)?;
    let denied = reporter.report_status(&volume_report(&world, "p", "u", "v")).await;
    let Err(denied) = denied else { return Err("reported without rights".into()) };
    expect_equal("what to do is told", denied.to_string().contains("ClusterRole"), true)?;
    grant_cluster_role(&world, "node", world.permissions.base_rules.clone()).await?;
    eventually("the rights are enough for classes", async || {
        Ok(classes.class(&world.namespace, "c").await.is_ok())
    })
    .await?;
    counted.api.probe().await?;
    reporter.report_status(&volume_report(&world, "p", "u", "v")).await?;
    // Taking over the remains of a former pod needs no more.
    reporter.forget_volume(&volume_report(&world, "p", "u", "v").target);
    reporter.report_status(&volume_report(&world, "p", "w", "v")).await?;
    counted.take_requests();
    eventually("the watch vouches for the class", async || {
        counted.take_requests();
        classes.class(&world.namespace, "c").await?;
        Ok(counted.take_requests().is_empty())
    })
    .await
}
