//! Trials of the role `identity-only`, with which the operator reports identities and writes nothing else.

use std::sync::Arc;

use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::{OperatorRole, OperatorSettings, STATUS_FIELD_MANAGER};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::running_operator::{RunningOperator, class_kind, wait_until_quiet};
use crate::api_server::{DynamicKind, ensure_namespace_exists};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(suite, "operator::identity_only_role_writes_only_the_status", only_status_is_written),
        trial(
            suite,
            "operator::identity_only_role_reports_volume_facts",
            volume_facts_with_identity_only_role,
        ),
        trial(
            suite,
            "operator::volume_facts_of_unowned_pods_are_reported",
            volume_facts_of_foreign_pods,
        ),
    ]
}

fn set_identity_only_role(settings: &mut OperatorSettings) {
    settings.role = OperatorRole::IdentityOnly;
}

/// Creates objects as HyperShift would, under its field manager.
async fn create_foreign_objects(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    ensure_namespace_exists(&fixture.client, &fixture.control_plane_namespace()).await?;
    let parameters = PatchParams::apply("hypershift-operator");
    let class = json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {
            "name": "managed-azure-disk-csi",
            "namespace": fixture.control_plane_namespace(),
            "annotations": {"hypershift.openshift.io/cluster": format!("{}/harbour", fixture.namespace)},
        },
        "spec": {"provider": "azure", "parameters": {"keyvaultName": "other"}},
    });
    let api = fixture.control_plane_api(&class_kind());
    api.patch("managed-azure-disk-csi", &parameters, &Patch::Apply(class)).await?;
    Ok(())
}

fn field_managers(object: &DynamicObject) -> Vec<String> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries.filter_map(|entry| entry.manager.clone()).collect()
}

async fn only_status_is_written(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    create_foreign_objects(&fixture).await?;
    let running = RunningOperator::start(&fixture, set_identity_only_role).await?;
    fixture
        .create_cluster(|it| {
            it["metadata"]["finalizers"] = json!(["hypershift.openshift.io/finalizer"]);
        })
        .await?;
    eventually("the identities are reported", async || {
        Ok(!fixture.read_identities().await?["status"].is_null())
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    for kind in [DynamicKind::hosted_cluster(), class_kind()] {
        let api = if kind.api_resource().kind == "HostedCluster" {
            fixture.dynamic_api(&kind)
        } else {
            fixture.control_plane_api(&kind)
        };
        for object in api.list(&ListParams::default()).await? {
            let ours = field_managers(&object).into_iter().filter(|it| it.starts_with("lanyard"));
            expect_equal("our managers", ours.collect::<Vec<_>>(), Vec::new())?;
        }
    }
    let reported =
        fixture.dynamic_api(&DynamicKind::hosted_cluster_identities()).get("harbour").await?;
    let mut writers = field_managers(&reported);
    writers.dedup();
    expect_equal("the writers of the status", writers, vec![STATUS_FIELD_MANAGER.to_owned()])?;
    let paths = running.writes_to(&fixture.namespace);
    let elsewhere: Vec<_> = paths
        .into_iter()
        .filter(|line| !line.contains("hostedclusteridentities") && !line.contains("/events"))
        .collect();
    expect_equal("writes elsewhere", elsewhere, Vec::new())?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn volume_facts_with_identity_only_role(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    create_foreign_objects(&fixture).await?;
    let running = RunningOperator::start(&fixture, set_identity_only_role).await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("the identities are reported", async || {
        Ok(!fixture.read_identities().await?["status"].is_null())
    })
    .await?;
    expect_volume_facts_reported(&fixture).await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// The Deployment is unowned: the storage operator of the control plane renders it.
async fn volume_facts_of_foreign_pods(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let templates = "without: [azure-disk-csi-driver-controller]";
    let templates = WorkloadTemplates::parse(templates).map_err(|it| format!("{it:?}"))?;
    let running = RunningOperator::start(&fixture, |it| it.templates = Arc::new(templates)).await?;
    fixture.create_cluster(|_| ()).await?;
    eventually("nine classes", async || Ok(fixture.count_objects(&class_kind()).await? == 9))
        .await?;
    expect_volume_facts_reported(&fixture).await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

/// Creates a pod with the labels of HyperShift's operators that mounts the disk driver's class, and its pod
/// status, and expects that the operator reports the mounted version.
async fn expect_volume_facts_reported(fixture: &OperatorTrialFixture) -> Result<(), Failed> {
    let pods = DynamicKind::from_names("", "v1", "Pod", "pods");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "driver-0",
            "namespace": fixture.control_plane_namespace(),
            "labels": {"hypershift.openshift.io/hosted-control-plane": fixture.control_plane_namespace()},
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
    let api = fixture.control_plane_api(&pods);
    let pod = api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "csi-driver", "image": "x", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    api.patch_status("driver-0", &PatchParams::default(), &Patch::Merge(status)).await?;
    let volumes = DynamicKind::from_names(
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
            "namespace": fixture.control_plane_namespace(),
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
    fixture
        .control_plane_api(&volumes)
        .create(&PostParams::default(), &serde_json::from_value(volume)?)
        .await?;
    eventually("the mounted version is reported", async || {
        let reported = fixture.read_identities().await?;
        let identities = reported["status"]["identities"].as_array().cloned().unwrap_or_default();
        let disk = identities.iter().find(|it| it["component"] == "disk").cloned();
        Ok(disk.is_some_and(|it| it["loadedVersion"] == "v7" && it["ready"] == "Unknown"))
    })
    .await
}
