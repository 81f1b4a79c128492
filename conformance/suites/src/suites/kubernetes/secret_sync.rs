//! Trials of Secrets that are synced from mounted files.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{ListParams, PostParams};
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_node::{
    KubeClassCache, KubeClassCacheSettings, Reporter, SecretSync, SecretSyncSettings,
    VolumeStatusUpdate,
};
use lanyard_provider::PollInterval;
use lanyard_volume::{AtomicVolume, FileEntry};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::minimal_permissions::grant_cluster_role;
use super::pod_status::{start_reporter, status_update};
use super::trial_fixture::{CountingNodeApi, KubernetesTrialFixture};
use super::{KubernetesSuiteFixture, NODE_PLUGIN_USER, trial};
use crate::suites::expect_equal;
use crate::waiting::{eventually, sleep};

pub(super) fn trials(suite: &KubernetesSuiteFixture) -> Vec<Trial> {
    vec![
        trial(
            suite,
            "sync::secret_follows_its_volume_and_keeps_foreign_fields",
            secret_follows_volume,
        ),
        trial(
            suite,
            "sync::upstream_secret_is_taken_over_with_its_owners",
            upstream_secret_is_taken_over,
        ),
        trial(
            suite,
            "sync::older_volume_does_not_overwrite_a_newer_one",
            older_volume_does_not_overwrite,
        ),
        trial(suite, "sync::a_tampered_path_is_not_read", tampered_path_is_not_read),
        trial(
            suite,
            "sync::failing_secret_is_reported_and_does_not_block_others",
            failing_secret_does_not_block_others,
        ),
        trial(suite, "sync::manually_changed_secret_is_restored", changed_secret_is_restored),
        trial(suite, "sync::secrets_are_updated_after_an_api_server_outage", api_server_outage),
        trial(suite, "sync::role_is_required_and_sufficient", role_is_required_and_sufficient),
    ]
}

/// A node with the sync controller and the volumes of its pods.
struct SecretSyncNode {
    name: String,
    counting_api: CountingNodeApi,
    kubelet_directory: TempDir,
    controller: JoinHandle<()>,
    /// Keeps the cache alive while the controller uses it.
    _classes: Arc<KubeClassCache>,
}

impl Drop for SecretSyncNode {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// A mounted volume of a pod.
struct MountedPodVolume {
    volume: AtomicVolume,
    report: VolumeStatusUpdate,
}

impl SecretSyncNode {
    async fn start(
        fixture: &KubernetesTrialFixture,
        name: &str,
        user: &str,
    ) -> Result<Self, Failed> {
        let name = format!("{name}-{}", fixture.namespace);
        let counted = fixture.counting_api(user).await?;
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

    /// Creates a pod with a volume of the class `c` that contains these files.
    async fn mount_volume(
        &self,
        fixture: &KubernetesTrialFixture,
        pod: &str,
        files: &[(&str, &str)],
    ) -> Result<MountedPodVolume, Failed> {
        let created: Pod = fixture.create_object(pod_manifest(pod)).await?;
        let uid = created.metadata.uid.unwrap_or_default();
        let mut report = status_update(fixture, pod, &uid, "creds");
        let path = Path::new("pods").join(&uid).join("volumes/kubernetes.io~csi/creds/mount");
        report.target = self.kubelet_directory.path().join(path);
        std::fs::create_dir_all(&report.target)?;
        let volume = AtomicVolume::open(&report.target, SystemClock::shared())?;
        let mut mounted = MountedPodVolume { volume, report };
        self.publish_files(&mut mounted, files).await?;
        Ok(mounted)
    }

    /// Publishes other files in the volume and updates the pod status.
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
    fixture: &KubernetesTrialFixture,
    name: &str,
) -> Result<Option<String>, Failed> {
    let secret = fixture.api::<Secret>().get_opt(name).await?;
    let data = secret.and_then(|it| it.data).unwrap_or_default();
    Ok(data.get("password").map(|it| String::from_utf8_lossy(&it.0).into_owned()))
}

async fn wait_for_secret_value(
    fixture: &KubernetesTrialFixture,
    name: &str,
    expected: &str,
) -> Result<(), Failed> {
    eventually(&format!("Secret {name} says {expected}"), async || {
        Ok(secret_value(fixture, name).await?.as_deref() == Some(expected))
    })
    .await
}

/// Triggers another sync of all Secrets, and waits until it is done.
async fn trigger_resync(
    fixture: &KubernetesTrialFixture,
    node: &SecretSyncNode,
    stamp: &str,
) -> Result<(), Failed> {
    sleep(SETTLE_TIME).await;
    node.counting_api.take_requests();
    let patch = json!({"metadata": {"annotations": {"lanyard.dev/refresh": stamp}}});
    fixture.merge_patch::<SecretProviderClass>("c", patch).await?;
    eventually("the controller has read a Secret", async || {
        Ok(node.counting_api.peek_requests().iter().any(|it| it.contains("/secrets/")))
    })
    .await?;
    sleep(SETTLE_TIME).await;
    Ok(())
}

/// The UIDs of a Secret's owners, sorted, because their order has no meaning.
fn owner_uids(secret: &Secret) -> Vec<&str> {
    let owners = secret.metadata.owner_references.iter().flatten();
    let mut uids: Vec<_> = owners.map(|it| it.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

async fn secret_follows_volume(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount_volume(&fixture, "p", &[("token", "first")]).await?;
    wait_for_secret_value(&fixture, "s", "first").await?;
    let secrets = fixture.api::<Secret>();
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
    fixture.merge_patch::<Secret>("s", foreign).await?;
    trigger_resync(&fixture, &node, "1").await?;
    expect_equal("writes of an unchanged Secret", node.counting_api.take_writes(), Vec::new())?;
    node.publish_files(&mut mounted, &[("token", "second")]).await?;
    wait_for_secret_value(&fixture, "s", "second").await?;
    let secret = secrets.get("s").await?;
    expect_equal("owners", owner_uids(&secret), vec!["foreign-uid", "rs-uid"])?;
    for map in [&secret.metadata.labels, &secret.metadata.annotations] {
        let foreign = map.as_ref().and_then(|it| it.get("foreign")).map(String::as_str);
        expect_equal("the foreign label or annotation", foreign, Some("1"))?;
    }
    let retained = secret.data.is_some_and(|data| data.contains_key("foreign"));
    expect_equal("the foreign key", retained, true)?;
    trigger_resync(&fixture, &node, "2").await?;
    trigger_resync(&fixture, &node, "3").await?;
    expect_equal("writes of an unchanged Secret", node.counting_api.take_writes(), Vec::new())
}

async fn upstream_secret_is_taken_over(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
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
    fixture.api::<Secret>().create(&parameters, &put).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&fixture, "p", &[("token", "ours")]).await?;
    wait_for_secret_value(&fixture, "s", "ours").await?;
    eventually("the Secret has both owners", async || {
        let secret = fixture.api::<Secret>().get("s").await?;
        Ok(owner_uids(&secret) == ["old-uid", "rs-uid"])
    })
    .await
}

async fn older_volume_does_not_overwrite(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    let (one, two) = (
        SecretSyncNode::start(&fixture, "one", ControlPlane::ADMINISTRATOR).await?,
        SecretSyncNode::start(&fixture, "two", ControlPlane::ADMINISTRATOR).await?,
    );
    let mut behind = one.mount_volume(&fixture, "p1", &[("token", "old")]).await?;
    wait_for_secret_value(&fixture, "s", "old").await?;
    let _ahead = two.mount_volume(&fixture, "p2", &[("token", "new")]).await?;
    wait_for_secret_value(&fixture, "s", "new").await?;
    trigger_resync(&fixture, &one, "1").await?;
    expect_equal("the value", secret_value(&fixture, "s").await?.as_deref(), Some("new"))?;
    expect_equal("writes of the node behind", one.counting_api.take_writes(), Vec::new())?;
    let before = fixture.api::<Secret>().get("s").await?.metadata.resource_version;
    one.publish_files(&mut behind, &[("token", "new")]).await?;
    trigger_resync(&fixture, &one, "2").await?;
    let after = fixture.api::<Secret>().get("s").await?.metadata.resource_version;
    expect_equal("the version once both have rotated", after, before)
}

async fn tampered_path_is_not_read(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let elsewhere = node.kubelet_directory.path().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join("..data"))?;
    std::fs::write(elsewhere.join("..data/token"), "stolen")?;
    let created: Pod = fixture.create_object(pod_manifest("p")).await?;
    let mut report =
        status_update(&fixture, "p", &created.metadata.uid.unwrap_or_default(), "creds");
    report.target = elsewhere;
    start_reporter(&node.counting_api, &node.name).report_status(&report).await?;
    eventually("the controller has read the pod", async || {
        Ok(node.counting_api.peek_requests().iter().any(|it| it.ends_with("/pods/p")))
    })
    .await?;
    sleep(SETTLE_TIME).await;
    expect_equal("the Secret", secret_value(&fixture, "s").await?, None)
}

async fn failing_secret_does_not_block_others(
    fixture: KubernetesTrialFixture,
) -> Result<(), Failed> {
    let mut class = class_manifest(&["broken", "good"]);
    class["secretObjects"][0]["data"][0]["objectName"] = json!("absent");
    fixture.create_class("c", class).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&fixture, "p", &[("token", "value")]).await?;
    wait_for_secret_value(&fixture, "good", "value").await?;
    let events = fixture.api::<Event>();
    eventually("an event reports the missing file", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedToCreateSecret")
                && event.message.as_deref().is_some_and(|it| it.contains("file `absent` not found"))
        }))
    })
    .await?;
    expect_equal("the other", secret_value(&fixture, "broken").await?, None)?;
    fixture
        .merge_patch::<SecretProviderClass>(
            "c",
            json!({"spec": class_manifest(&["broken", "good"])}),
        )
        .await?;
    wait_for_secret_value(&fixture, "broken", "value").await?;
    eventually("an event reports the recovery", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some("Recovered")))
    })
    .await
}

async fn changed_secret_is_restored(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount_volume(&fixture, "p", &[("token", "right")]).await?;
    wait_for_secret_value(&fixture, "s", "right").await?;
    fixture.merge_patch::<Secret>("s", json!({"data": {"password": "d3Jvbmc="}})).await?;
    trigger_resync(&fixture, &node, "1").await?;
    wait_for_secret_value(&fixture, "s", "right").await?;
    // The controller removes a key that the class no longer has, and adds the new one.
    let mut class = class_manifest(&["s"]);
    class["secretObjects"][0]["data"][0]["key"] = json!("other");
    fixture.merge_patch::<SecretProviderClass>("c", json!({"spec": class})).await?;
    eventually("the Secret has the new key", async || {
        let data = fixture.api::<Secret>().get("s").await?.data.unwrap_or_default();
        Ok(data.keys().collect::<Vec<_>>() == ["other"])
    })
    .await?;
    let stamp = fixture.api::<Secret>().get("s").await?.metadata.annotations.unwrap_or_default();
    let stamp = stamp.get("lanyard.dev/content-since").map(|it| it.parse::<Timestamp>().is_ok());
    expect_equal("the stamp", stamp, Some(true))
}

async fn api_server_outage(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    let node = SecretSyncNode::start(&fixture, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount_volume(&fixture, "p", &[("token", "before")]).await?;
    wait_for_secret_value(&fixture, "s", "before").await?;
    fixture.plane.kill_api_server();
    let silent = node.publish_files(&mut mounted, &[("token", "during")]).await;
    expect_equal("a report during the outage fails", silent.is_err(), true)?;
    fixture.plane.start_api_server().await?;
    start_reporter(&node.counting_api, &node.name).report_status(&mounted.report).await?;
    wait_for_secret_value(&fixture, "s", "during").await?;
    node.publish_files(&mut mounted, &[("token", "after")]).await?;
    wait_for_secret_value(&fixture, "s", "after").await
}

async fn role_is_required_and_sufficient(fixture: KubernetesTrialFixture) -> Result<(), Failed> {
    fixture.create_class("c", class_manifest(&["s"])).await?;
    grant_cluster_role(&fixture, "node", fixture.permissions.base_rules.clone()).await?;
    grant_cluster_role(
        &fixture,
        "node-sync",
        fixture.permissions.secret_sync_rules_without_secrets(),
    )
    .await?;
    let node = SecretSyncNode::start(&fixture, "node", NODE_PLUGIN_USER).await?;
    eventually("the permissions are effective", async || {
        let probe = status_update(&fixture, "probe", "u", "v");
        Ok(start_reporter(&node.counting_api, &node.name).report_status(&probe).await.is_ok())
    })
    .await?;
    let _mounted = node.mount_volume(&fixture, "p", &[("token", "value")]).await?;
    let events = fixture.api::<Event>();
    eventually("an event reports the missing permission", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            message.contains("HTTP 403") && message.contains("syncSecret.enabled")
        }))
    })
    .await?;
    grant_cluster_role(&fixture, "node-sync", fixture.permissions.secret_sync_rules.clone())
        .await?;
    wait_for_secret_value(&fixture, "s", "value").await?;
    eventually("the Secret has its owner", async || {
        Ok(owner_uids(&fixture.api::<Secret>().get("s").await?) == ["rs-uid"])
    })
    .await?;
    let statuses = fixture.api::<SecretProviderClassPodStatus>();
    expect_equal("pod statuses", statuses.list(&ListParams::default()).await?.items.len(), 2)
}

const DRIVER: &str = "secrets-store.csi.k8s.io";
const SETTLE_TIME: std::time::Duration = std::time::Duration::from_millis(400);
