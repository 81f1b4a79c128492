//! Secrets that follow mounted files.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{ListParams, PostParams};
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_node::rotation::PollInterval;
use lanyard_node::{
    AtomicVolume, FileEntry, KubeClassCache, KubeClassCacheSettings, Reporter, SecretSync,
    SecretSyncSettings, VolumeReport,
};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::minimal_permissions::grant_cluster_role;
use super::pod_status::{start_reporter, volume_report};
use super::trial_fixture::{CountingNodeApi, KubernetesTrialFixture};
use super::{KubernetesSuiteFixture, NODE_PLUGIN_USER, trial};
use crate::suites::expect_equal;
use crate::waiting::{eventually, sleep};

pub(super) fn trials(stage: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            stage,
            "sync::secret_follows_its_volume_and_keeps_foreign_fields",
            secret_follows_volume,
        ),
        trial(
            stage,
            "sync::upstream_secret_is_taken_over_with_its_owners",
            upstream_secret_is_taken_over,
        ),
        trial(
            stage,
            "sync::older_volume_does_not_overwrite_a_newer_one",
            older_volume_does_not_overwrite,
        ),
        trial(stage, "sync::a_tampered_path_is_not_read", tampered_path_is_not_read),
        trial(
            stage,
            "sync::failing_secret_is_reported_and_does_not_block_others",
            failing_secret_does_not_block_others,
        ),
        trial(stage, "sync::manually_changed_secret_is_restored", changed_secret_is_restored),
        trial(stage, "sync::secrets_are_updated_after_an_api_server_outage", api_server_outage),
        trial(stage, "sync::role_is_required_and_sufficient", role_is_required_and_sufficient),
    ]
}

/// A node with one mounted volume of one pod, and the controller on it.
struct SecretSyncNode {
    name: String,
    counting_api: CountingNodeApi,
    kubelet_directory: TempDir,
    controller: JoinHandle<()>,
    /// Lives as long as the controller listens to it.
    _classes: Arc<KubeClassCache>,
}

impl Drop for SecretSyncNode {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// A pod on a node, with its volume.
struct MountedPodVolume {
    volume: AtomicVolume,
    report: VolumeReport,
}

impl SecretSyncNode {
    async fn start(world: &KubernetesTrialFixture, name: &str, user: &str) -> Result<Self, Failed> {
        let name = format!("{name}-{}", world.namespace);
        let counted = world.counting_api(user).await?;
        let kubelet = tempfile::tempdir_in("/dev/shm")?;
        let settings = KubeClassCacheSettings::default();
        let classes = Arc::new(KubeClassCache::new(counted.api.clone(), settings));
        let reporter = Arc::new(start_reporter(&counted, &name));
        let settings = SecretSyncSettings {
            node: name.clone(),
            driver: DRIVER.to_owned(),
            kubelet_directory: kubelet.path().to_owned(),
            interval: PollInterval::DEFAULT,
        };
        let sync = SecretSync::new(counted.api.clone(), Arc::clone(&classes), reporter, settings);
        let controller = tokio::spawn(sync.run());
        Ok(Self {
            name,
            counting_api: counted,
            kubelet_directory: kubelet,
            controller,
            _classes: classes,
        })
    }

    /// A running pod with a volume of the class `c` that holds these files.
    async fn mount_volume(
        &self,
        world: &KubernetesTrialFixture,
        pod: &str,
        files: &[(&str, &str)],
    ) -> Result<MountedPodVolume, Failed> {
        let made: Pod = world.create_object(pod_manifest(pod)).await?;
        let uid = made.metadata.uid.unwrap_or_default();
        let mut report = volume_report(world, pod, &uid, "creds");
        let path = Path::new("pods").join(&uid).join("volumes/kubernetes.io~csi/creds/mount");
        report.target = self.kubelet_directory.path().join(path);
        std::fs::create_dir_all(&report.target)?;
        let volume = AtomicVolume::open(&report.target, SystemClock::shared())?;
        let mut mounted = MountedPodVolume { volume, report };
        self.publish_files(&mut mounted, files).await?;
        Ok(mounted)
    }

    /// The volume holds these files from now on, and the pod status says so.
    async fn publish_files(
        &self,
        mounted: &mut MountedPodVolume,
        files: &[(&str, &str)],
    ) -> Result<(), Failed> {
        let entries: Result<Vec<_>, Failed> = files
            .iter()
            .map(|(path, content)| Ok(FileEntry::new(path.parse()?, content.as_bytes(), 0o600)))
            .collect();
        mounted.volume.publish(&entries?)?;
        for object in &mut mounted.report.objects {
            object.version.push('+');
        }
        start_reporter(&self.counting_api, &self.name).report_status(&mounted.report).await?;
        Ok(())
    }
}

fn pod_manifest(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": "nowhere",
            "containers": [{"name": "c", "image": "none"}],
            "volumes": [{
                "name": "creds",
                "csi": {
                    "driver": DRIVER,
                    "readOnly": true,
                    "volumeAttributes": {"secretProviderClass": "c"},
                },
            }],
        },
    })
}

fn class_manifest(secrets: &[&str]) -> Value {
    let objects: Vec<_> = secrets
        .iter()
        .map(|name| {
            json!({
                "secretName": name,
                "type": "Opaque",
                "labels": {"team": "x"},
                "annotations": {"note": "y"},
                "data": [{"objectName": "token", "key": "password"}],
            })
        })
        .collect();
    json!({"provider": "azure", "secretObjects": objects})
}

async fn secret_value(
    world: &KubernetesTrialFixture,
    name: &str,
) -> Result<Option<String>, Failed> {
    let secret = world.api::<Secret>().get_opt(name).await?;
    let data = secret.and_then(|it| it.data).unwrap_or_default();
    Ok(data.get("password").map(|it| String::from_utf8_lossy(&it.0).into_owned()))
}

async fn wait_for_secret_value(
    world: &KubernetesTrialFixture,
    name: &str,
    expected: &str,
) -> Result<(), Failed> {
    eventually(&format!("Secret {name} says {expected}"), async || {
        Ok(secret_value(world, name).await?.as_deref() == Some(expected))
    })
    .await
}

/// Lets the controller look at everything once more, and waits until it has.
async fn trigger_resync(
    world: &KubernetesTrialFixture,
    node: &SecretSyncNode,
    stamp: &str,
) -> Result<(), Failed> {
    sleep(SETTLE_TIME).await;
    node.counting_api.take_requests();
    let patch = json!({"metadata": {"annotations": {"lanyard.dev/refresh": stamp}}});
    world.merge_patch::<SecretProviderClass>("c", patch).await?;
    eventually("the controller has looked", async || {
        Ok(node.counting_api.peek_requests().iter().any(|it| it.contains("/secrets/")))
    })
    .await?;
    sleep(SETTLE_TIME).await;
    Ok(())
}

/// The owners of a Secret, sorted: their order says nothing.
fn owner_uids(secret: &Secret) -> Vec<&str> {
    let owners = secret.metadata.owner_references.iter().flatten();
    let mut uids: Vec<_> = owners.map(|it| it.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

async fn secret_follows_volume(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount_volume(&world, "p", &[("token", "first")]).await?;
    wait_for_secret_value(&world, "s", "first").await?;
    let secrets = world.api::<Secret>();
    eventually("the Secret has its owner", async || {
        Ok(owner_uids(&secrets.get("s").await?) == ["rs-uid"])
    })
    .await?;
    let secret = secrets.get("s").await?;
    let labels = secret.metadata.labels.unwrap_or_default();
    expect_equal("the label", labels.get("team").map(String::as_str), Some("x"))?;
    let managed = labels.get("secrets-store.csi.k8s.io/managed");
    expect_equal("managed", managed.map(String::as_str), Some("true"))?;
    expect_equal("the type", secret.type_.as_deref(), Some("Opaque"))?;
    let foreign = json!({
        "metadata": {
            "labels": {"foreign": "1"},
            "annotations": {"foreign": "1"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid"},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "foreign-uid"},
            ],
        },
        "data": {"foreign": "MQ=="},
    });
    world.merge_patch::<Secret>("s", foreign).await?;
    trigger_resync(&world, &node, "1").await?;
    expect_equal("writes of an unchanged Secret", node.counting_api.take_writes(), Vec::new())?;
    node.publish_files(&mut mounted, &[("token", "second")]).await?;
    wait_for_secret_value(&world, "s", "second").await?;
    let secret = secrets.get("s").await?;
    expect_equal("owners", owner_uids(&secret), vec!["foreign-uid", "rs-uid"])?;
    for map in [&secret.metadata.labels, &secret.metadata.annotations] {
        let foreign = map.as_ref().and_then(|it| it.get("foreign")).map(String::as_str);
        expect_equal("what others added", foreign, Some("1"))?;
    }
    let kept = secret.data.is_some_and(|data| data.contains_key("foreign"));
    expect_equal("the key that others added", kept, true)?;
    trigger_resync(&world, &node, "2").await?;
    trigger_resync(&world, &node, "3").await?;
    expect_equal("writes of an unchanged Secret", node.counting_api.take_writes(), Vec::new())
}

async fn upstream_secret_is_taken_over(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let parameters = PostParams {
        field_manager: Some("secrets-store-csi-driver".to_owned()),
        ..PostParams::default()
    };
    let put = json!({
        "metadata": {
            "name": "s",
            "labels": {"secrets-store.csi.k8s.io/managed": "true"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "old", "uid": "old-uid"},
            ],
        },
        "type": "Opaque",
        "data": {"password": "dXBzdHJlYW0="},
    });
    let put = serde_json::from_value(put)?;
    world.api::<Secret>().create(&parameters, &put).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&world, "p", &[("token", "ours")]).await?;
    wait_for_secret_value(&world, "s", "ours").await?;
    eventually("both own the Secret", async || {
        let secret = world.api::<Secret>().get("s").await?;
        Ok(owner_uids(&secret) == ["old-uid", "rs-uid"])
    })
    .await
}

async fn older_volume_does_not_overwrite(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let (one, two) = (
        SecretSyncNode::start(&world, "one", ControlPlane::ADMINISTRATOR).await?,
        SecretSyncNode::start(&world, "two", ControlPlane::ADMINISTRATOR).await?,
    );
    let mut behind = one.mount_volume(&world, "p1", &[("token", "old")]).await?;
    wait_for_secret_value(&world, "s", "old").await?;
    let _ahead = two.mount_volume(&world, "p2", &[("token", "new")]).await?;
    wait_for_secret_value(&world, "s", "new").await?;
    trigger_resync(&world, &one, "1").await?;
    expect_equal("the value", secret_value(&world, "s").await?.as_deref(), Some("new"))?;
    expect_equal("writes of the node behind", one.counting_api.take_writes(), Vec::new())?;
    let before = world.api::<Secret>().get("s").await?.metadata.resource_version;
    one.publish_files(&mut behind, &[("token", "new")]).await?;
    trigger_resync(&world, &one, "2").await?;
    let after = world.api::<Secret>().get("s").await?.metadata.resource_version;
    expect_equal("the version once both have rotated", after, before)
}

async fn tampered_path_is_not_read(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let elsewhere = node.kubelet_directory.path().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join("..data"))?;
    std::fs::write(elsewhere.join("..data/token"), "stolen")?;
    let made: Pod = world.create_object(pod_manifest("p")).await?;
    let mut report = volume_report(&world, "p", &made.metadata.uid.unwrap_or_default(), "creds");
    report.target = elsewhere;
    start_reporter(&node.counting_api, &node.name).report_status(&report).await?;
    eventually("the pod was looked at", async || {
        Ok(node.counting_api.peek_requests().iter().any(|it| it.ends_with("/pods/p")))
    })
    .await?;
    sleep(SETTLE_TIME).await;
    expect_equal("the Secret", secret_value(&world, "s").await?, None)
}

async fn failing_secret_does_not_block_others(world: KubernetesTrialFixture) -> Result<(), Failed> {
    let mut class = class_manifest(&["broken", "good"]);
    class["secretObjects"][0]["data"][0]["objectName"] = json!("absent");
    world.create_class("c", class).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&world, "p", &[("token", "value")]).await?;
    wait_for_secret_value(&world, "good", "value").await?;
    let events = world.api::<Event>();
    eventually("the pod is told", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedToCreateSecret")
                && event.message.as_deref().is_some_and(|it| it.contains("no file `absent`"))
        }))
    })
    .await?;
    expect_equal("the other", secret_value(&world, "broken").await?, None)?;
    world
        .merge_patch::<SecretProviderClass>(
            "c",
            json!({"spec": class_manifest(&["broken", "good"])}),
        )
        .await?;
    wait_for_secret_value(&world, "broken", "value").await?;
    eventually("the pod is told that it is well", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some("Recovered")))
    })
    .await
}

async fn changed_secret_is_restored(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&world, "p", &[("token", "right")]).await?;
    wait_for_secret_value(&world, "s", "right").await?;
    world.merge_patch::<Secret>("s", json!({"data": {"password": "d3Jvbmc="}})).await?;
    trigger_resync(&world, &node, "1").await?;
    wait_for_secret_value(&world, "s", "right").await?;
    // A key that the class no longer has goes, and the one that it has now comes.
    let mut class = class_manifest(&["s"]);
    class["secretObjects"][0]["data"][0]["key"] = json!("other");
    world.merge_patch::<SecretProviderClass>("c", json!({"spec": class})).await?;
    eventually("the key is another one", async || {
        let data = world.api::<Secret>().get("s").await?.data.unwrap_or_default();
        Ok(data.keys().collect::<Vec<_>>() == ["other"])
    })
    .await?;
    let stamp = world.api::<Secret>().get("s").await?.metadata.annotations.unwrap_or_default();
    let stamp = stamp.get("lanyard.dev/content-since").map(|it| it.parse::<Timestamp>().is_ok());
    expect_equal("the stamp", stamp, Some(true))
}

async fn api_server_outage(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount_volume(&world, "p", &[("token", "before")]).await?;
    wait_for_secret_value(&world, "s", "before").await?;
    world.plane.kill_api_server();
    let silent = node.publish_files(&mut mounted, &[("token", "during")]).await;
    expect_equal("a report during the outage fails", silent.is_err(), true)?;
    world.plane.start_api_server().await?;
    start_reporter(&node.counting_api, &node.name).report_status(&mounted.report).await?;
    wait_for_secret_value(&world, "s", "during").await?;
    node.publish_files(&mut mounted, &[("token", "after")]).await?;
    wait_for_secret_value(&world, "s", "after").await
}

async fn role_is_required_and_sufficient(world: KubernetesTrialFixture) -> Result<(), Failed> {
    world.create_class("c", class_manifest(&["s"])).await?;
    grant_cluster_role(&world, "node", world.permissions.base_rules.clone()).await?;
    grant_cluster_role(&world, "node-sync", world.permissions.secret_sync_rules_without_secrets())
        .await?;
    let node = SecretSyncNode::start(&world, "node", NODE_PLUGIN_USER).await?;
    eventually("the rights are there", async || {
        let probe = volume_report(&world, "probe", "u", "v");
        Ok(start_reporter(&node.counting_api, &node.name).report_status(&probe).await.is_ok())
    })
    .await?;
    let _mounted = node.mount_volume(&world, "p", &[("token", "value")]).await?;
    let events = world.api::<Event>();
    eventually("the missing right is told", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            message.contains("HTTP 403") && message.contains("syncSecret.enabled")
        }))
    })
    .await?;
    grant_cluster_role(&world, "node-sync", world.permissions.secret_sync_rules.clone()).await?;
    wait_for_secret_value(&world, "s", "value").await?;
    eventually("the Secret has its owner", async || {
        Ok(owner_uids(&world.api::<Secret>().get("s").await?) == ["rs-uid"])
    })
    .await?;
    let statuses = world.api::<SecretProviderClassPodStatus>();
    expect_equal("pod statuses", statuses.list(&ListParams::default()).await?.items.len(), 2)
}

const DRIVER: &str = "secrets-store.csi.k8s.io";
const SETTLE_TIME: std::time::Duration = std::time::Duration::from_millis(400);
