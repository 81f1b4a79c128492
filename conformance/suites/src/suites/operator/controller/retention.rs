//! What is never lost by mistake: a cluster, the objects of others, a key.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, Patch, PatchParams};
use lanyard_desired::templates::WorkloadTemplates;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::create_foreign_cloud_config;
use super::running_operator::{RunningOperator, class_kind, deployment_kind, wait_until_quiet};
use crate::suites::expect_equal;
use crate::suites::operator::trial_fixture::OperatorTrialFixture;
use crate::suites::operator::{OperatorSuiteFixture, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &OperatorSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            stage,
            "operator::cluster_with_changed_platform_keeps_its_objects",
            misspelled_platform,
        ),
        trial(stage, "operator::unowned_object_is_unchanged", unowned_object),
        trial(
            stage,
            "operator::new_key_encrypts_only_after_every_api_server_can_read_it",
            encryption_key_rotation,
        ),
    ]
}

async fn misspelled_platform(world: OperatorTrialFixture) -> Result<(), Failed> {
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    wait_until_quiet(&running, &world.namespace).await?;
    let before =
        (world.count_objects(&class_kind()).await?, world.count_objects(&deployment_kind()).await?);
    for platform in ["azure", "AWS"] {
        world.patch_cluster(json!({"spec": {"platform": {"type": platform}}})).await?;
        eventually("the condition names the field and what stands there", async || {
            let cluster = world.read_cluster().await?;
            let conditions = cluster["status"]["conditions"].as_array().cloned();
            Ok(conditions.unwrap_or_default().iter().any(|it| {
                let message = it["message"].as_str().unwrap_or_default();
                it["reason"] == "InvalidHostedCluster"
                    && message.contains("spec.platform.type")
                    && message.contains(platform)
            }))
        })
        .await?;
    }
    wait_until_quiet(&running, &world.namespace).await?;
    let after =
        (world.count_objects(&class_kind()).await?, world.count_objects(&deployment_kind()).await?);
    expect_equal("classes and deployments", after, before)?;
    let namespace =
        Api::<Namespace>::all(world.client.clone()).get(&world.control_plane_namespace()).await?;
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    expect_equal("the namespace goes", is_going, false)?;
    world.patch_cluster(json!({"spec": {"platform": {"type": "Azure"}}})).await?;
    eventually("it can be used again", async || {
        Ok(!world.read_identities().await?.to_string().contains("InvalidHostedCluster"))
    })
    .await?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn unowned_object(world: OperatorTrialFixture) -> Result<(), Failed> {
    // No field of it conflicts with what would be applied.
    let maps = create_foreign_cloud_config(&world, &json!({"config": "mine"})).await?;
    let running = RunningOperator::start(&world, |_| ()).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    eventually("the drift names whose it is", async || {
        let told = world.read_identities().await?.to_string();
        Ok(told.contains("azure-cloud-config") && told.contains("held by somebody"))
    })
    .await?;
    wait_until_quiet(&running, &world.control_plane_namespace()).await?;
    let map = maps.get("azure-cloud-config").await?;
    let data: Vec<_> = map.data.into_iter().flatten().collect();
    expect_equal("its data", data, vec![("config".to_owned(), "mine".to_owned())])?;
    expect_equal("its labels", map.metadata.labels, None)?;
    expect_equal("its owners", map.metadata.owner_references, None)?;
    running.stop().await?;
    world.delete_cluster().await
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

async fn encryption_key_rotation(world: OperatorTrialFixture) -> Result<(), Failed> {
    // Somebody else holds another object for good, which keeps no key from writing.
    create_foreign_cloud_config(&world, &json!({"cloud.conf": "{}"})).await?;
    let templates =
        WorkloadTemplates::parse(API_SERVER_TEMPLATE).map_err(|it| format!("{it:?}"))?;
    let running = RunningOperator::start(&world, |it| it.templates = Arc::new(templates)).await?;
    world.create_cluster(|_| ()).await?;
    world.wait_until_reconciled().await?;
    let old = "4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    eventually("the key that encrypts is recorded", async || {
        let record = secret_encryption_status(&world).await?;
        Ok(record["activeKey"]["azure"]["keyVersion"] == old && record["targetKey"].is_null())
    })
    .await?;
    let first = encryption_providers(&world).await?;
    expect_equal("providers", first.len(), 1)?;

    let key = json!({"keyVersion": "00000000000000000000000000000002"});
    let azure = json!({"activeKey": key});
    world.patch_cluster(json!({"spec": {"secretEncryption": {"kms": {"azure": azure}}}})).await?;
    eventually("the new key is read and the old one writes", async || {
        let record = secret_encryption_status(&world).await?;
        let providers = encryption_providers(&world).await?;
        Ok(record["history"][0]["state"] == "ReadOnlyDeploy"
            && providers.len() == 2
            && providers[0] == first[0])
    })
    .await?;
    wait_until_quiet(&running, &world.namespace).await?;
    expect_equal("the writer stays", encryption_providers(&world).await?.first(), first.first())?;

    // No controller rolls deployments here.
    let made = world.control_plane_api(&deployment_kind());
    eventually("it writes once the API server has rolled", async || {
        let deployment = serde_json::to_value(made.get("kube-apiserver").await?)?;
        let rolled = json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
        }});
        let parameters = PatchParams::default();
        made.patch_status("kube-apiserver", &parameters, &Patch::Merge(rolled)).await?;
        let providers = encryption_providers(&world).await?;
        let state = secret_encryption_status(&world).await?["history"][0]["state"].clone();
        Ok(state == "WritePromote" && providers.len() == 2 && providers[1] == first[0])
    })
    .await?;
    eventually("what is to be done is told", async || {
        let cluster = world.read_cluster().await?.to_string();
        Ok(cluster.contains("write all Secrets anew") && cluster.contains("take `targetKey` away"))
    })
    .await?;
    running.stop().await?;
    world.delete_cluster().await
}

async fn secret_encryption_status(world: &OperatorTrialFixture) -> Result<Value, Failed> {
    Ok(world.read_cluster().await?["status"]["secretEncryption"].clone())
}

/// The names of the providers in the configuration, the one that writes first.
async fn encryption_providers(world: &OperatorTrialFixture) -> Result<Vec<String>, Failed> {
    let secrets: Api<Secret> =
        Api::namespaced(world.client.clone(), &world.control_plane_namespace());
    let Some(secret) = secrets.get_opt("kas-secret-encryption-config").await? else {
        return Ok(Vec::new());
    };
    let text = secret.data.unwrap_or_default().remove("config.yaml").unwrap_or_default();
    let text = String::from_utf8_lossy(&text.0).into_owned();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("name: "));
    Ok(names.map(str::to_owned).collect())
}
