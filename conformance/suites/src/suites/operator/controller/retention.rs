//! Trials of objects that must not be lost by mistake: a cluster's, those of other managers, and encryption
//! keys.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, Patch, PatchParams};
use lanyard_desired::templates::WorkloadTemplates;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::create_foreign_cloud_config;
use super::running_operator::{RunningOperator, class_kind, deployment_kind, wait_until_quiet};
use crate::api_server::DynamicKind;
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(suite: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "operator::changed_platform_is_rejected_and_the_objects_stay",
            changed_platform,
        ),
        trial(suite, "operator::unowned_object_is_unchanged", unowned_object),
        trial(
            suite,
            "operator::new_key_encrypts_only_after_every_api_server_can_read_it",
            encryption_key_rotation,
        ),
    ]
}

async fn changed_platform(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    let before = (
        fixture.count_objects(&class_kind()).await?,
        fixture.count_objects(&deployment_kind()).await?,
    );
    let clusters = fixture.dynamic_api(&DynamicKind::hosted_cluster());
    for (platform, message) in [("azure", "Unsupported value"), ("AWS", "Type is immutable")] {
        let patch = Patch::Merge(json!({"spec": {"platform": {"type": platform}}}));
        match clusters.patch("harbour", &PatchParams::default(), &patch).await {
            Ok(_) => return Err(format!("the API server accepted the platform {platform}").into()),
            Err(error) => {
                let text = error.to_string();
                expect_equal(&text, text.contains(message), true)?;
            }
        }
    }
    wait_until_quiet(&running, &fixture.namespace).await?;
    let after = (
        fixture.count_objects(&class_kind()).await?,
        fixture.count_objects(&deployment_kind()).await?,
    );
    expect_equal("classes and deployments", after, before)?;
    let namespace = Api::<Namespace>::all(fixture.client.clone())
        .get(&fixture.control_plane_namespace())
        .await?;
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    expect_equal("the namespace goes", is_going, false)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn unowned_object(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    // None of its fields conflicts with the operator's.
    let maps = create_foreign_cloud_config(&fixture, &json!({"config": "mine"})).await?;
    let running = RunningOperator::start_with_cluster(&fixture).await?;
    eventually("the drift names the other manager", async || {
        let reported = fixture.read_identities().await?.to_string();
        Ok(reported.contains("azure-cloud-config") && reported.contains("held by other-manager"))
    })
    .await?;
    wait_until_quiet(&running, &fixture.control_plane_namespace()).await?;
    let map = maps.get("azure-cloud-config").await?;
    let data: Vec<_> = map.data.into_iter().flatten().collect();
    expect_equal(
        "the data of the ConfigMap",
        data,
        vec![("config".to_owned(), "mine".to_owned())],
    )?;
    expect_equal("the labels of the ConfigMap", map.metadata.labels, None)?;
    expect_equal("the owners of the ConfigMap", map.metadata.owner_references, None)?;
    running.stop().await?;
    fixture.delete_cluster().await
}

const API_SERVER_TEMPLATE: &str = "
deployments:
  kube-apiserver:
    spec:
      selector: {matchLabels: {app: kube-apiserver}}
      template:
        metadata: {labels: {app: kube-apiserver}}
        spec: {containers: [{name: kube-apiserver, image: x, securityContext: {runAsUser: 1001}}]}
";

async fn encryption_key_rotation(fixture: OperatorTrialFixture) -> Result<(), Failed> {
    // A permanent conflict on another object must not block the new key.
    create_foreign_cloud_config(&fixture, &json!({"cloud.conf": "{}"})).await?;
    let templates =
        WorkloadTemplates::parse(API_SERVER_TEMPLATE).map_err(|it| format!("{it:?}"))?;
    let running = RunningOperator::start(&fixture, |it| it.templates = Arc::new(templates)).await?;
    fixture.create_cluster(|_| ()).await?;
    fixture.wait_until_reconciled().await?;
    let old = "4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    eventually("the key that encrypts is recorded", async || {
        let record = secret_encryption_status(&fixture).await?;
        Ok(record["activeKey"]["azure"]["keyVersion"] == old && record["targetKey"].is_null())
    })
    .await?;
    let first = encryption_providers(&fixture).await?;
    expect_equal("providers", first.len(), 1)?;

    let key = json!({"keyVersion": "00000000000000000000000000000002"});
    let azure = json!({"activeKey": key});
    fixture.patch_cluster(json!({"spec": {"secretEncryption": {"kms": {"azure": azure}}}})).await?;
    eventually("the new key decrypts and the old one encrypts", async || {
        let record = secret_encryption_status(&fixture).await?;
        let providers = encryption_providers(&fixture).await?;
        Ok(record["history"][0]["state"] == "ReadOnlyDeploy"
            && providers.len() == 2
            && providers[0] == first[0])
    })
    .await?;
    wait_until_quiet(&running, &fixture.namespace).await?;
    expect_equal(
        "the encrypting provider",
        encryption_providers(&fixture).await?.first(),
        first.first(),
    )?;

    // No controller rolls out Deployments here.
    let api = fixture.control_plane_api(&deployment_kind());
    eventually("the new key encrypts after the API server's rollout", async || {
        let deployment = serde_json::to_value(api.get("kube-apiserver").await?)?;
        let rolled = json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
        }});
        let parameters = PatchParams::default();
        api.patch_status("kube-apiserver", &parameters, &Patch::Merge(rolled)).await?;
        let providers = encryption_providers(&fixture).await?;
        let state = secret_encryption_status(&fixture).await?["history"][0]["state"].clone();
        Ok(state == "WritePromote" && providers.len() == 2 && providers[1] == first[0])
    })
    .await?;
    eventually("the HostedCluster names the next steps", async || {
        let cluster = fixture.read_cluster().await?.to_string();
        Ok(cluster.contains("re-encrypt all Secrets") && cluster.contains("remove `targetKey`"))
    })
    .await?;
    running.stop().await?;
    fixture.delete_cluster().await
}

async fn secret_encryption_status(fixture: &OperatorTrialFixture) -> Result<Value, Failed> {
    Ok(fixture.read_cluster().await?["status"]["secretEncryption"].clone())
}

/// The provider names in the encryption configuration, in order. The first one encrypts.
async fn encryption_providers(fixture: &OperatorTrialFixture) -> Result<Vec<String>, Failed> {
    let secrets: Api<Secret> =
        Api::namespaced(fixture.client.clone(), &fixture.control_plane_namespace());
    let Some(secret) = secrets.get_opt("kas-secret-encryption-config").await? else {
        return Ok(Vec::new());
    };
    let text = secret.data.unwrap_or_default().remove("config.yaml").unwrap_or_default();
    let text = String::from_utf8_lossy(&text.0).into_owned();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("name: "));
    Ok(names.map(str::to_owned).collect())
}
