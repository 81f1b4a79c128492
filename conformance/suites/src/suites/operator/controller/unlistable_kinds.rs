//! Trials of kinds that cannot be listed, because their conversion webhook fails or the permission is
//! missing.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::reconciliation::wait_for_deletion;
use super::running_operator::{RunningOperator, class_kind};
use crate::api_server::{DynamicKind, install_definitions};
use crate::suites::expect_equal;
use crate::suites::operator::operator_account::OPERATOR_ROLE;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::{eventually, sleep};

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "operator::unlistable_kind_does_not_block_other_objects", unlistable_kind),
        trial(
            suite,
            "operator::deletion_blocked_by_missing_list_permission_can_be_forced",
            deletion_without_list_permission,
        ),
    ]
}

async fn unlistable_kind(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let definition = definition_with_broken_conversion()?;
    install_definitions(&fixture.client, std::slice::from_ref(&definition)).await?;
    let stored = json!({
        "apiVersion": format!("{GROUP}/{STORED_VERSION}"),
        "kind": "AzureClusterIdentity",
        "metadata": {
            "name": "unowned",
            "namespace": fixture.namespace,
            "labels": {"app.kubernetes.io/managed-by": "lanyard"},
        },
    });
    let objects = fixture.dynamic_api(&azure_cluster_identity_kind(STORED_VERSION));
    objects.create(&PostParams::default(), &serde_json::from_value(stored)?).await?;
    let running = RunningOperator::start(&fixture, |_| ()).await?;
    fixture.create_cluster(|_| ()).await?;
    // The list error must last longer than a transient one.
    sleep(UNLISTABLE_TIME).await;
    fixture.wait_until_reconciled().await?;
    let definitions = Api::<CustomResourceDefinition>::all(fixture.client.clone());
    let repaired =
        Patch::Merge(json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}));
    definitions.patch(DEFINITION_NAME, &PatchParams::default(), &repaired).await?;
    eventually("the object is created once its kind can be listed", async || {
        Ok(fixture
            .control_plane_api(&azure_cluster_identity_kind(OPERATOR_VERSION))
            .get_opt("harbour")
            .await?
            .is_some())
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await?;
    definitions.delete(DEFINITION_NAME, &DeleteParams::default()).await?;
    // Later trials must not find a partly deleted CRD.
    eventually("the definition is gone", async || {
        Ok(definitions.get_opt(DEFINITION_NAME).await?.is_none())
    })
    .await
}

async fn deletion_without_list_permission(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let without_pools = async || {
        let roles = Api::<ClusterRole>::all(fixture.client.clone());
        let mut role = roles.get(OPERATOR_ROLE).await?;
        let is_pool =
            |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| it == "nodepools");
        role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !is_pool(rule)));
        let rules = Patch::Merge(json!({"rules": role.rules}));
        roles.patch(OPERATOR_ROLE, &PatchParams::default(), &rules).await?;
        Ok(())
    };
    let running = RunningOperator::start_after(&fixture, |_| (), without_pools).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the condition names the blocking kind and the error", async || {
        let conditions = fixture.read_cluster().await?["status"]["conditions"].as_array().cloned();
        Ok(conditions.unwrap_or_default().iter().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == "AzureResourcesCleanedUp"
                && it["reason"] == "WaitingForOthers"
                && message.contains("until every NodePool can be listed")
                && message.contains("403")
        }))
    })
    .await?;
    expect_equal("classes", fixture.count_objects(&class_kind()).await?, 9)?;
    let force = json!({"lanyard.dev/force-deletion": "true"});
    fixture.patch_cluster(json!({"metadata": {"annotations": force}})).await?;
    wait_for_deletion(&fixture).await?;
    running.stop().await
}

fn azure_cluster_identity_kind(version: &str) -> DynamicKind {
    DynamicKind::from_names(GROUP, version, "AzureClusterIdentity", "azureclusteridentities")
}

/// A CRD of Cluster API with two versions and an unreachable conversion webhook.
fn definition_with_broken_conversion() -> Result<CustomResourceDefinition, Failed> {
    let version = |name: &str, storage: bool| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
        })
    };
    let definition = json!({
        "metadata": {"name": DEFINITION_NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "AzureClusterIdentity", "plural": "azureclusteridentities"},
            "versions": [version(STORED_VERSION, true), version(OPERATOR_VERSION, false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    // No process listens on this port.
                    "clientConfig": {"url": "https://127.0.0.1:9/convert"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    });
    Ok(serde_json::from_value(definition)?)
}

const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const DEFINITION_NAME: &str = "azureclusteridentities.infrastructure.cluster.x-k8s.io";
/// The storage version.
const STORED_VERSION: &str = "v1alpha4";
/// The version that the operator uses.
const OPERATOR_VERSION: &str = "v1beta1";
const UNLISTABLE_TIME: Duration = Duration::from_secs(25);
