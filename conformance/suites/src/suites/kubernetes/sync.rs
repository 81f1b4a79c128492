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
    FileEntry, KubeClasses, KubeClassesSettings, Reporter, SecretSync, SecretSyncSettings, Volume,
    VolumeReport,
};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::least::grant;
use super::reports::{report, reporter};
use super::world::{Counted, World};
use super::{NODE, Stage, trial};
use crate::suites::expect_same;
use crate::waiting::{eventually, pause};

pub(super) fn trials(stage: &Stage) -> Vec<Trial> {
    vec![
        trial(stage, "sync::a_secret_follows_its_volume_and_keeps_what_others_added", follows),
        trial(stage, "sync::what_upstream_put_is_taken_over_with_its_owners", taken_over),
        trial(stage, "sync::an_older_volume_does_not_undo_a_newer_one", two_nodes),
        trial(stage, "sync::a_tampered_path_is_not_read", tampered),
        trial(stage, "sync::one_secret_that_fails_is_told_and_keeps_no_other_from_it", partly),
        trial(stage, "sync::what_a_person_changed_is_restored", restored),
        trial(stage, "sync::an_outage_of_the_api_server_is_caught_up_with", outage),
        trial(stage, "sync::its_own_role_is_needed_and_enough", rights),
    ]
}

/// A node with one mounted volume of one pod, and the controller on it.
struct Node {
    name: String,
    counted: Counted,
    kubelet: TempDir,
    controller: JoinHandle<()>,
    /// Lives as long as the controller listens to it.
    _classes: Arc<KubeClasses>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// A pod on a node, with its volume.
struct Mounted {
    volume: Volume,
    report: VolumeReport,
}

impl Node {
    async fn start(world: &World, name: &str, user: &str) -> Result<Self, Failed> {
        let name = format!("{name}-{}", world.namespace);
        let counted = world.counted(user).await?;
        let kubelet = tempfile::tempdir_in("/dev/shm")?;
        let settings = KubeClassesSettings::default();
        let classes = Arc::new(KubeClasses::new(counted.api.clone(), settings));
        let reporter = Arc::new(reporter(&counted, &name));
        let settings = SecretSyncSettings {
            node: name.clone(),
            driver: DRIVER.to_owned(),
            kubelet_directory: kubelet.path().to_owned(),
            interval: PollInterval::DEFAULT,
        };
        let sync = SecretSync::new(counted.api.clone(), Arc::clone(&classes), reporter, settings);
        let controller = tokio::spawn(sync.run());
        Ok(Self { name, counted, kubelet, controller, _classes: classes })
    }

    /// A running pod with a volume of the class `c` that holds these files.
    async fn mount(
        &self,
        world: &World,
        pod: &str,
        files: &[(&str, &str)],
    ) -> Result<Mounted, Failed> {
        let made: Pod = world.create(pod_named(pod)).await?;
        let uid = made.metadata.uid.unwrap_or_default();
        let mut report = report(world, pod, &uid, "creds");
        let path = Path::new("pods").join(&uid).join("volumes/kubernetes.io~csi/creds/mount");
        report.target = self.kubelet.path().join(path);
        std::fs::create_dir_all(&report.target)?;
        let volume = Volume::open(&report.target, SystemClock::shared())?;
        let mut mounted = Mounted { volume, report };
        self.publish(&mut mounted, files).await?;
        Ok(mounted)
    }

    /// The volume holds these files from now on, and the pod status says so.
    async fn publish(&self, mounted: &mut Mounted, files: &[(&str, &str)]) -> Result<(), Failed> {
        let entries: Result<Vec<_>, Failed> = files
            .iter()
            .map(|(path, content)| Ok(FileEntry::new(path.parse()?, content.as_bytes(), 0o600)))
            .collect();
        mounted.volume.publish(&entries?)?;
        for object in &mut mounted.report.objects {
            object.version.push('+');
        }
        reporter(&self.counted, &self.name).report(&mounted.report).await?;
        Ok(())
    }
}

fn pod_named(name: &str) -> Value {
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

fn class_of(secrets: &[&str]) -> Value {
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

async fn value(world: &World, name: &str) -> Result<Option<String>, Failed> {
    let secret = world.api::<Secret>().get_opt(name).await?;
    let data = secret.and_then(|it| it.data).unwrap_or_default();
    Ok(data.get("password").map(|it| String::from_utf8_lossy(&it.0).into_owned()))
}

async fn wait_for(world: &World, name: &str, expected: &str) -> Result<(), Failed> {
    eventually(&format!("Secret {name} says {expected}"), async || {
        Ok(value(world, name).await?.as_deref() == Some(expected))
    })
    .await
}

/// Lets the controller look at everything once more, and waits until it has.
async fn nudge(world: &World, node: &Node, stamp: &str) -> Result<(), Failed> {
    pause(SETTLING).await;
    node.counted.take();
    let patch = json!({"metadata": {"annotations": {"lanyard.dev/refresh": stamp}}});
    world.merge::<SecretProviderClass>("c", patch).await?;
    eventually("the controller has looked", async || {
        Ok(node.counted.peek().iter().any(|it| it.contains("/secrets/")))
    })
    .await?;
    pause(SETTLING).await;
    Ok(())
}

/// The owners of a Secret, sorted: their order says nothing.
fn owner_uids(secret: &Secret) -> Vec<&str> {
    let owners = secret.metadata.owner_references.iter().flatten();
    let mut uids: Vec<_> = owners.map(|it| it.uid.as_str()).collect();
    uids.sort_unstable();
    uids
}

async fn follows(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount(&world, "p", &[("token", "first")]).await?;
    wait_for(&world, "s", "first").await?;
    let secrets = world.api::<Secret>();
    eventually("the Secret has its owner", async || {
        Ok(owner_uids(&secrets.get("s").await?) == ["rs-uid"])
    })
    .await?;
    let secret = secrets.get("s").await?;
    let labels = secret.metadata.labels.unwrap_or_default();
    expect_same("the label", labels.get("team").map(String::as_str), Some("x"))?;
    let managed = labels.get("secrets-store.csi.k8s.io/managed");
    expect_same("managed", managed.map(String::as_str), Some("true"))?;
    expect_same("the type", secret.type_.as_deref(), Some("Opaque"))?;
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
    world.merge::<Secret>("s", foreign).await?;
    nudge(&world, &node, "1").await?;
    expect_same("writes of an unchanged Secret", node.counted.take_writes(), Vec::new())?;
    node.publish(&mut mounted, &[("token", "second")]).await?;
    wait_for(&world, "s", "second").await?;
    let secret = secrets.get("s").await?;
    expect_same("owners", owner_uids(&secret), vec!["foreign-uid", "rs-uid"])?;
    for map in [&secret.metadata.labels, &secret.metadata.annotations] {
        let foreign = map.as_ref().and_then(|it| it.get("foreign")).map(String::as_str);
        expect_same("what others added", foreign, Some("1"))?;
    }
    let kept = secret.data.is_some_and(|data| data.contains_key("foreign"));
    expect_same("the key that others added", kept, true)?;
    nudge(&world, &node, "2").await?;
    nudge(&world, &node, "3").await?;
    expect_same("writes of an unchanged Secret", node.counted.take_writes(), Vec::new())
}

async fn taken_over(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
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
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount(&world, "p", &[("token", "ours")]).await?;
    wait_for(&world, "s", "ours").await?;
    eventually("both own the Secret", async || {
        let secret = world.api::<Secret>().get("s").await?;
        Ok(owner_uids(&secret) == ["old-uid", "rs-uid"])
    })
    .await
}

async fn two_nodes(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    let (one, two) = (
        Node::start(&world, "one", ControlPlane::ADMINISTRATOR).await?,
        Node::start(&world, "two", ControlPlane::ADMINISTRATOR).await?,
    );
    let mut behind = one.mount(&world, "p1", &[("token", "old")]).await?;
    wait_for(&world, "s", "old").await?;
    let _ahead = two.mount(&world, "p2", &[("token", "new")]).await?;
    wait_for(&world, "s", "new").await?;
    nudge(&world, &one, "1").await?;
    expect_same("the value", value(&world, "s").await?.as_deref(), Some("new"))?;
    expect_same("writes of the node behind", one.counted.take_writes(), Vec::new())?;
    let before = world.api::<Secret>().get("s").await?.metadata.resource_version;
    one.publish(&mut behind, &[("token", "new")]).await?;
    nudge(&world, &one, "2").await?;
    let after = world.api::<Secret>().get("s").await?.metadata.resource_version;
    expect_same("the version once both have rotated", after, before)
}

async fn tampered(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let elsewhere = node.kubelet.path().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join("..data"))?;
    std::fs::write(elsewhere.join("..data/token"), "stolen")?;
    let made: Pod = world.create(pod_named("p")).await?;
    let mut report = report(&world, "p", &made.metadata.uid.unwrap_or_default(), "creds");
    report.target = elsewhere;
    reporter(&node.counted, &node.name).report(&report).await?;
    eventually("the pod was looked at", async || {
        Ok(node.counted.peek().iter().any(|it| it.ends_with("/pods/p")))
    })
    .await?;
    pause(SETTLING).await;
    expect_same("the Secret", value(&world, "s").await?, None)
}

async fn partly(world: World) -> Result<(), Failed> {
    let mut class = class_of(&["broken", "good"]);
    class["secretObjects"][0]["data"][0]["objectName"] = json!("absent");
    world.create_class("c", class).await?;
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount(&world, "p", &[("token", "value")]).await?;
    wait_for(&world, "good", "value").await?;
    let events = world.api::<Event>();
    eventually("the pod is told", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedToCreateSecret")
                && event.message.as_deref().is_some_and(|it| it.contains("no file `absent`"))
        }))
    })
    .await?;
    expect_same("the other", value(&world, "broken").await?, None)?;
    world.merge::<SecretProviderClass>("c", json!({"spec": class_of(&["broken", "good"])})).await?;
    wait_for(&world, "broken", "value").await?;
    eventually("the pod is told that it is well", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| event.reason.as_deref() == Some("Recovered")))
    })
    .await
}

async fn restored(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let _mounted = node.mount(&world, "p", &[("token", "right")]).await?;
    wait_for(&world, "s", "right").await?;
    world.merge::<Secret>("s", json!({"data": {"password": "d3Jvbmc="}})).await?;
    nudge(&world, &node, "1").await?;
    wait_for(&world, "s", "right").await?;
    // A key that the class no longer has goes, and the one that it has now comes.
    let mut class = class_of(&["s"]);
    class["secretObjects"][0]["data"][0]["key"] = json!("other");
    world.merge::<SecretProviderClass>("c", json!({"spec": class})).await?;
    eventually("the key is another one", async || {
        let data = world.api::<Secret>().get("s").await?.data.unwrap_or_default();
        Ok(data.keys().collect::<Vec<_>>() == ["other"])
    })
    .await?;
    let stamp = world.api::<Secret>().get("s").await?.metadata.annotations.unwrap_or_default();
    let stamp = stamp.get("lanyard.dev/content-since").map(|it| it.parse::<Timestamp>().is_ok());
    expect_same("the stamp", stamp, Some(true))
}

async fn outage(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    let node = Node::start(&world, "node", ControlPlane::ADMINISTRATOR).await?;
    let mut mounted = node.mount(&world, "p", &[("token", "before")]).await?;
    wait_for(&world, "s", "before").await?;
    world.plane.kill_server();
    let silent = node.publish(&mut mounted, &[("token", "during")]).await;
    expect_same("a report during the outage fails", silent.is_err(), true)?;
    world.plane.start_server().await?;
    reporter(&node.counted, &node.name).report(&mounted.report).await?;
    wait_for(&world, "s", "during").await?;
    node.publish(&mut mounted, &[("token", "after")]).await?;
    wait_for(&world, "s", "after").await
}

async fn rights(world: World) -> Result<(), Failed> {
    world.create_class("c", class_of(&["s"])).await?;
    grant(&world, "node", world.rights.plain.clone()).await?;
    grant(&world, "node-sync", world.rights.sync_without_secrets()).await?;
    let node = Node::start(&world, "node", NODE).await?;
    eventually("the rights are there", async || {
        let probe = report(&world, "probe", "u", "v");
        Ok(reporter(&node.counted, &node.name).report(&probe).await.is_ok())
    })
    .await?;
    let _mounted = node.mount(&world, "p", &[("token", "value")]).await?;
    let events = world.api::<Event>();
    eventually("the missing right is told", async || {
        let events = events.list(&ListParams::default()).await?.items;
        Ok(events.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            message.contains("HTTP 403") && message.contains("syncSecret.enabled")
        }))
    })
    .await?;
    grant(&world, "node-sync", world.rights.sync.clone()).await?;
    wait_for(&world, "s", "value").await?;
    eventually("the Secret has its owner", async || {
        Ok(owner_uids(&world.api::<Secret>().get("s").await?) == ["rs-uid"])
    })
    .await?;
    let statuses = world.api::<SecretProviderClassPodStatus>();
    expect_same("pod statuses", statuses.list(&ListParams::default()).await?.items.len(), 2)
}

const DRIVER: &str = "secrets-store.csi.k8s.io";
const SETTLING: std::time::Duration = std::time::Duration::from_millis(400);
