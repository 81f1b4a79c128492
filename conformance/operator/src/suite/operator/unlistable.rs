//! A kind of another operator whose objects nobody can convert.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running::{Running, eventually, pause};
use crate::suite::world::{Kind, World, install};
use crate::suite::{Stage, trial};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![trial(stage, "operator::a_kind_that_nobody_can_list_keeps_nothing_else_back", unlistable)]
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
