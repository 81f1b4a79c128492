//! Kinds of other operators whose objects cannot be listed: nobody converts them, or they are refused.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::converge::see_it_go;
use super::running::{Running, classes};
use crate::api_server::{Kind, install};
use crate::suites::expect_same;
use crate::suites::operator::OPERATOR;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::{eventually, pause};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::a_kind_that_nobody_can_list_keeps_nothing_else_back", unlistable),
        trial(stage, "operator::an_end_that_may_not_look_says_so_and_can_be_forced", blind_end),
    ]
}

async fn unlistable(world: World) -> Result<(), Failed> {
    let definition = converted_by_nobody()?;
    install(&world.client, std::slice::from_ref(&definition)).await?;
    let stored = json!({
        "apiVersion": format!("{GROUP}/{STORED}"),
        "kind": "AzureClusterIdentity",
        "metadata": {
            "name": "somebody-elses",
            "namespace": world.namespace,
            "labels": {"app.kubernetes.io/managed-by": "lanyard"},
        },
    });
    let objects = world.api(&identities(STORED));
    objects.create(&PostParams::default(), &serde_json::from_value(stored)?).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    // Until then it may pass by itself.
    pause(MOST_OF_THE_PATIENCE).await;
    world.until_made().await?;
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    let mended =
        Patch::Merge(json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}));
    definitions.patch(NAME, &PatchParams::default(), &mended).await?;
    eventually("once the kind can be listed its object follows", async || {
        Ok(world.made(&identities(USED)).get_opt("harbour").await?.is_some())
    })
    .await?;
    running.end().await?;
    world.clear().await?;
    definitions.delete(NAME, &DeleteParams::default()).await?;
    // Trials that follow must not meet half of it.
    eventually("the definition is gone", async || Ok(definitions.get_opt(NAME).await?.is_none()))
        .await
}

async fn blind_end(world: World) -> Result<(), Failed> {
    let without_pools = async || {
        let roles = Api::<ClusterRole>::all(world.client.clone());
        let mut role = roles.get(OPERATOR).await?;
        let is_pool =
            |rule: &PolicyRule| rule.resources.iter().flatten().any(|it| it == "nodepools");
        role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !is_pool(rule)));
        let rules = Patch::Merge(json!({"rules": role.rules}));
        roles.patch(OPERATOR, &PatchParams::default(), &rules).await?;
        Ok(())
    };
    let running = Running::start_with(&world, |_| (), without_pools).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let clusters = world.api(&Kind::hosted_cluster());
    clusters.delete("harbour", &DeleteParams::default()).await?;
    eventually("the condition says what it waits for, and why", async || {
        let conditions = world.cluster().await?["status"]["conditions"].as_array().cloned();
        Ok(conditions.unwrap_or_default().iter().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == "AzureResourcesCleanedUp"
                && it["reason"] == "WaitingForOthers"
                && message.contains("until every NodePool can be listed")
                && message.contains("403")
        }))
    })
    .await?;
    expect_same("classes", world.count(&classes()).await?, 9)?;
    let force = json!({"lanyard.dev/force-deletion": "true"});
    world.patch_cluster(json!({"metadata": {"annotations": force}})).await?;
    see_it_go(&world).await?;
    running.end().await
}

fn identities(version: &str) -> Kind {
    Kind::of(GROUP, version, "AzureClusterIdentity", "azureclusteridentities")
}

/// The kind of Cluster API in two versions, whose webhook does not answer.
fn converted_by_nobody() -> Result<CustomResourceDefinition, Failed> {
    let version = |name: &str, storage: bool| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
        })
    };
    let definition = json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "AzureClusterIdentity", "plural": "azureclusteridentities"},
            "versions": [version(STORED, true), version(USED, false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    // Nobody listens at that port.
                    "clientConfig": {"url": "https://127.0.0.1:9/convert"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
    });
    Ok(serde_json::from_value(definition)?)
}

const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const NAME: &str = "azureclusteridentities.infrastructure.cluster.x-k8s.io";
/// The version in the store.
const STORED: &str = "v1alpha4";
/// The version that the operator uses.
const USED: &str = "v1beta1";
const MOST_OF_THE_PATIENCE: Duration = Duration::from_secs(25);
