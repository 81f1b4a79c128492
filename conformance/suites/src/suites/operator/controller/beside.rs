//! Beside another operator: how the identities are, and nothing else.

use std::sync::Arc;

use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::{OperatorSettings, Role, STATUS_MANAGER};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running::{Running, classes, settle};
use crate::api_server::{Kind, ensure_namespace};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::beside_another_operator_only_the_status_is_written", beside),
        trial(stage, "operator::what_nodes_tell_is_told_beside_another_operator", facts_beside),
        trial(stage, "operator::what_nodes_tell_is_told_of_pods_that_others_made", facts_of_others),
    ]
}

fn identity_only(settings: &mut OperatorSettings) {
    settings.role = Role::IdentityOnly;
}

/// What HyperShift would have made, under its name.
async fn foreign_objects(world: &World) -> Result<(), Failed> {
    ensure_namespace(&world.client, &world.room()).await?;
    let parameters = PatchParams::apply("hypershift-operator");
    let class = json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {
            "name": "managed-azure-disk-csi",
            "namespace": world.room(),
            "annotations": {"hypershift.openshift.io/cluster": format!("{}/harbour", world.namespace)},
        },
        "spec": {"provider": "azure", "parameters": {"keyvaultName": "other"}},
    });
    let made = world.made(&classes());
    made.patch("managed-azure-disk-csi", &parameters, &Patch::Apply(class)).await?;
    Ok(())
}

fn managers(object: &DynamicObject) -> Vec<String> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| entry.manager.clone()).collect()
}

async fn beside(world: World) -> Result<(), Failed> {
    foreign_objects(&world).await?;
    let running = Running::start(&world, identity_only).await?;
    world
        .make_cluster(|it| {
            it["metadata"]["finalizers"] = json!(["hypershift.openshift.io/finalizer"]);
        })
        .await?;
    eventually("it is told of", async || Ok(!world.told().await?["status"].is_null())).await?;
    settle(&running, &world.namespace).await?;
    for kind in [Kind::hosted_cluster(), classes()] {
        let api = if kind.resource().kind == "HostedCluster" {
            world.api(&kind)
        } else {
            world.made(&kind)
        };
        for object in api.list(&ListParams::default()).await? {
            let ours = managers(&object).into_iter().filter(|it| it.starts_with("lanyard"));
            expect_same("our managers", ours.collect::<Vec<_>>(), Vec::new())?;
        }
    }
    let told = world.api(&Kind::hosted_cluster_identities()).get("harbour").await?;
    let mut writers = managers(&told);
    writers.dedup();
    expect_same("who tells", writers, vec![STATUS_MANAGER.to_owned()])?;
    let paths = running.written(&world.namespace);
    let elsewhere: Vec<_> = paths
        .into_iter()
        .filter(|line| !line.contains("hostedclusteridentities") && !line.contains("/events"))
        .collect();
    expect_same("writes elsewhere", elsewhere, Vec::new())?;
    running.end().await?;
    world.clear().await
}

async fn facts_beside(world: World) -> Result<(), Failed> {
    foreign_objects(&world).await?;
    let running = Running::start(&world, identity_only).await?;
    world.make_cluster(|_| ()).await?;
    eventually("it is told of", async || Ok(!world.told().await?["status"].is_null())).await?;
    facts_are_told(&world).await?;
    running.end().await?;
    world.clear().await
}

/// The deployment is none of ours: the storage operator of the control plane renders it.
async fn facts_of_others(world: World) -> Result<(), Failed> {
    let templates = "without: [azure-disk-csi-driver-controller]";
    let templates = WorkloadTemplates::parse(templates).map_err(|it| format!("{it:?}"))?;
    let running = Running::start(&world, |it| it.templates = Arc::new(templates)).await?;
    world.make_cluster(|_| ()).await?;
    eventually("nine classes", async || Ok(world.count(&classes()).await? == 9)).await?;
    facts_are_told(&world).await?;
    running.end().await?;
    world.clear().await
}

/// A pod as HyperShift's operators label it mounts the disk driver's class, and its node tells so.
async fn facts_are_told(world: &World) -> Result<(), Failed> {
    let pods = Kind::of("", "v1", "Pod", "pods");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "driver-0",
            "namespace": world.room(),
            "labels": {"hypershift.openshift.io/hosted-control-plane": world.room()},
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "azure-disk-csi-driver-controller",
                "uid": "2b6a7a3e-0d5c-4a92-8a52-8d7d8a4a1a11",
                "controller": true,
            }],
        },
        "spec": {
            "containers": [{"name": "csi-driver", "image": "x", "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            }}],
            "volumes": [{"name": "azure-disk", "csi": {
                "driver": "secrets-store.csi.k8s.io",
                "volumeAttributes": {"secretProviderClass": "managed-azure-disk-csi"},
            }}],
        },
    });
    let made = world.made(&pods);
    let pod = made.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "csi-driver", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    made.patch_status("driver-0", &PatchParams::default(), &Patch::Merge(status)).await?;
    let volumes = Kind::of(
        "secrets-store.csi.x-k8s.io",
        "v1",
        "SecretProviderClassPodStatus",
        "secretproviderclasspodstatuses",
    );
    let volume = json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClassPodStatus",
        "metadata": {
            "name": "driver-0-status",
            "namespace": world.room(),
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": "driver-0",
                "uid": pod.metadata.uid.unwrap_or_default(),
            }],
        },
        "status": {
            "podName": "driver-0",
            "secretProviderClassName": "managed-azure-disk-csi",
            "mounted": true,
            "objects": [{"id": "secret/harbour-disk", "version": "v7"}],
        },
    });
    world.made(&volumes).create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    eventually("the mounted version is told", async || {
        let told = world.told().await?;
        let identities = told["status"]["identities"].as_array().cloned().unwrap_or_default();
        let disk = identities.iter().find(|it| it["component"] == "disk").cloned();
        Ok(disk.is_some_and(|it| it["loadedVersion"] == "v7" && it["ready"] == "Unknown"))
    })
    .await
}
