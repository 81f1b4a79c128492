//! What is never lost by mistake: a cluster, the objects of others, a key.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, Patch, PatchParams};
use lanyard_desired::templates::WorkloadTemplates;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::namespaces::occupy;
use super::running::{Running, classes, deployments, settle};
use crate::suites::expect_same;
use crate::suites::operator::world::World;
use crate::suites::operator::{Stage, trial};
use crate::waiting::eventually;

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "operator::a_cluster_that_stops_being_ours_keeps_everything", misspelled),
        trial(stage, "operator::what_somebody_else_made_is_left_whole", stranger),
        trial(stage, "operator::a_changed_key_waits_until_every_api_server_reads_it", rotation),
    ]
}

async fn misspelled(world: World) -> Result<(), Failed> {
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    settle(&running, &world.namespace).await?;
    let before = (world.count(&classes()).await?, world.count(&deployments()).await?);
    for platform in ["azure", "AWS"] {
        world.patch_cluster(json!({"spec": {"platform": {"type": platform}}})).await?;
        eventually("the condition names the field and what stands there", async || {
            let cluster = world.cluster().await?;
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
    settle(&running, &world.namespace).await?;
    let after = (world.count(&classes()).await?, world.count(&deployments()).await?);
    expect_same("classes and deployments", after, before)?;
    let namespace = Api::<Namespace>::all(world.client.clone()).get(&world.room()).await?;
    let is_going = namespace.metadata.deletion_timestamp.is_some();
    expect_same("the namespace goes", is_going, false)?;
    world.patch_cluster(json!({"spec": {"platform": {"type": "Azure"}}})).await?;
    eventually("it can be used again", async || {
        Ok(!world.told().await?.to_string().contains("InvalidHostedCluster"))
    })
    .await?;
    running.end().await?;
    world.clear().await
}

async fn stranger(world: World) -> Result<(), Failed> {
    // No field of it conflicts with what would be applied.
    let maps = occupy(&world, &json!({"config": "mine"})).await?;
    let running = Running::start(&world, |_| ()).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    eventually("the drift names whose it is", async || {
        let told = world.told().await?.to_string();
        Ok(told.contains("azure-cloud-config") && told.contains("held by somebody"))
    })
    .await?;
    settle(&running, &world.room()).await?;
    let map = maps.get("azure-cloud-config").await?;
    let data: Vec<_> = map.data.into_iter().flatten().collect();
    expect_same("its data", data, vec![("config".to_owned(), "mine".to_owned())])?;
    expect_same("its labels", map.metadata.labels, None)?;
    expect_same("its owners", map.metadata.owner_references, None)?;
    running.end().await?;
    world.clear().await
}

const API_SERVER: &str = "
deployments:
  kube-apiserver:
    spec:
      selector: {matchLabels: {app: kube-apiserver}}
      template:
        metadata: {labels: {app: kube-apiserver}}
        spec: {containers: [{name: kube-apiserver, image: x, securityContext: {runAsUser: 1001}}]}
";

async fn rotation(world: World) -> Result<(), Failed> {
    // Somebody else holds another object for good, which keeps no key from writing.
    occupy(&world, &json!({"cloud.conf": "{}"})).await?;
    let templates = WorkloadTemplates::parse(API_SERVER).map_err(|it| format!("{it:?}"))?;
    let running = Running::start(&world, |it| it.templates = Arc::new(templates)).await?;
    world.make_cluster(|_| ()).await?;
    world.until_made().await?;
    let old = "4f9d2c7b1e8a46f0b35d9c6e7a1f2084";
    eventually("the key that encrypts is recorded", async || {
        let record = record(&world).await?;
        Ok(record["activeKey"]["azure"]["keyVersion"] == old && record["targetKey"].is_null())
    })
    .await?;
    let first = providers(&world).await?;
    expect_same("providers", first.len(), 1)?;

    let key = json!({"keyVersion": "00000000000000000000000000000002"});
    let azure = json!({"activeKey": key});
    world.patch_cluster(json!({"spec": {"secretEncryption": {"kms": {"azure": azure}}}})).await?;
    eventually("the new key is read and the old one writes", async || {
        let record = record(&world).await?;
        let providers = providers(&world).await?;
        Ok(record["history"][0]["state"] == "ReadOnlyDeploy"
            && providers.len() == 2
            && providers[0] == first[0])
    })
    .await?;
    settle(&running, &world.namespace).await?;
    expect_same("the writer stays", providers(&world).await?.first(), first.first())?;

    // No controller rolls deployments here.
    let made = world.made(&deployments());
    eventually("it writes once the API server has rolled", async || {
        let deployment = serde_json::to_value(made.get("kube-apiserver").await?)?;
        let rolled = json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
        }});
        let parameters = PatchParams::default();
        made.patch_status("kube-apiserver", &parameters, &Patch::Merge(rolled)).await?;
        let providers = providers(&world).await?;
        let state = record(&world).await?["history"][0]["state"].clone();
        Ok(state == "WritePromote" && providers.len() == 2 && providers[1] == first[0])
    })
    .await?;
    eventually("what is to be done is told", async || {
        let cluster = world.cluster().await?.to_string();
        Ok(cluster.contains("write all Secrets anew") && cluster.contains("take `targetKey` away"))
    })
    .await?;
    running.end().await?;
    world.clear().await
}

async fn record(world: &World) -> Result<Value, Failed> {
    Ok(world.cluster().await?["status"]["secretEncryption"].clone())
}

/// The names of the providers in the configuration, the one that writes first.
async fn providers(world: &World) -> Result<Vec<String>, Failed> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.room());
    let Some(secret) = secrets.get_opt("kas-secret-encryption-config").await? else {
        return Ok(Vec::new());
    };
    let text = secret.data.unwrap_or_default().remove("config.yaml").unwrap_or_default();
    let text = String::from_utf8_lossy(&text.0).into_owned();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("name: "));
    Ok(names.map(str::to_owned).collect())
}
