//! What happens to running pods while vaults, plugin and kubelet change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::Component;
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::pods::{Pod, Sight, Volume, digests};
use super::{NAMESPACE, ROTATION, START, Stage, chain};
use crate::classes::Mode;
use crate::ground::Holder;

const OBJECT: &str = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
const FILE: &str = "credential";

/// A pod that reads a credential which the local Azure can rotate.
async fn reader<'a>(stage: &'a Stage, name: &'static str) -> Result<Pod<'a>, Failed> {
    stage.class(name, Holder::ManagedIdentity, Mode::ManagedIdentity, OBJECT)?;
    let pod = Pod::new(stage, name, Volume::of(name), &[FILE]);
    pod.run().await?;
    Ok(pod)
}

/// Rotates the credential and waits until the container has seen it.
async fn rotates(stage: &Stage, pod: &Pod<'_>) -> Result<Vec<Sight>, Failed> {
    // A kubelet that has just begun does not know its logs yet.
    let known = pod.await_sight("the log of the container", START, |_| true).await?;
    let before = digests(&known, FILE).len();
    stage.azure.rotate_component().await.map_err(chain)?;
    let newer = |sights: &[Sight]| digests(sights, FILE).len() > before;
    pod.await_sight("the new version in the container", ROTATION, newer).await
}

pub(super) async fn rotation(stage: &Stage) -> Result<(), Failed> {
    let pod = reader(stage, "rotation").await?;
    let first = versions(stage, "rotation")?;
    pod.judge_whole(&rotates(stage, &pod).await?)?;
    let second = versions(stage, "rotation")?;
    pod.delete()?;
    if first == second {
        return Err(format!("the pod status still lists {first}").into());
    }
    Ok(())
}

/// What the pod status of a pod lists.
fn versions(stage: &Stage, pod: &str) -> Result<Value, Failed> {
    let name = format!("{pod}-{NAMESPACE}-{pod}");
    let arguments = ["secretproviderclasspodstatus", &name, "--namespace", NAMESPACE];
    let status = stage.site.kubectl.read(&arguments).map_err(chain)?;
    Ok(status["status"]["objects"].clone())
}

pub(super) async fn deletion(stage: &Stage) -> Result<(), Failed> {
    let pod = reader(stage, "deletion").await?;
    let uid = pod.object()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let place = stage.site.cluster.layout().kubelet().join("pods").join(&uid);
    if !is_mounted_below(&place)? {
        return Err(format!("nothing is mounted below {}", place.display()).into());
    }
    pod.delete()?;
    let arguments = ["secretproviderclasspodstatus", "--namespace", NAMESPACE];
    let gone = |list: &Value| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().all(|item| item["status"]["podName"] != "deletion")
    };
    let what = "the pod status is collected";
    stage.site.kubectl.await_object(what, START, &arguments, gone).await.map_err(chain)?;
    if is_mounted_below(&place)? {
        return Err(format!("something is mounted below {}", place.display()).into());
    }
    // The kubelet takes directories away when it tidies up.
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + START;
    while place.exists() {
        if clock.monotonic() > deadline {
            return Err(format!("{} is left behind", place.display()).into());
        }
        clock.sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn is_mounted_below(place: &Path) -> Result<bool, Failed> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(chain)?;
    let place = place.display().to_string();
    Ok(table.lines().any(|line| line.contains(&place) && line.contains("kubernetes.io~csi")))
}

/// A new pod of the plugin takes over what the old one mounted.
pub(super) async fn upgrade(stage: &Stage) -> Result<(), Failed> {
    let pod = reader(stage, "upgrade").await?;
    let before = plugin_pod(stage)?;
    let values = stage.values().await?;
    let change =
        ["--set", "linux.podAnnotations.example\\.com/release=second", "--wait", "--timeout", "2m"];
    stage.helm.upgrade(&values, &change).map_err(chain)?;
    if plugin_pod(stage)? == before {
        return Err("the upgrade replaced no pod".into());
    }
    let whole = pod.judge_whole(&rotates(stage, &pod).await?);
    pod.delete()?;
    whole
}

/// The kubelet starts the container again; nobody else does anything.
pub(super) async fn kill(stage: &Stage) -> Result<(), Failed> {
    let pod = reader(stage, "kill").await?;
    let before = restarts(stage)?;
    let process = plugin_process(stage)?;
    kill_process(process, Signal::KILL).map_err(chain)?;
    let selector = ["pods", "--namespace", crate::helm::Helm::NAMESPACE, "--selector", SELECTOR];
    let ready_again = |list: &Value| {
        let state = &list["items"][0]["status"]["containerStatuses"][0];
        state["ready"] == true && state["restartCount"].as_u64().unwrap_or_default() > before
    };
    let what = "the plugin is ready again";
    stage.site.kubectl.await_object(what, START, &selector, ready_again).await.map_err(chain)?;
    let whole = pod.judge_whole(&rotates(stage, &pod).await?);
    pod.delete()?;
    whole?;
    // A pod that comes afterwards is served too.
    reader(stage, "after-kill").await?.delete()
}

pub(super) async fn kubelet_restart(stage: &Stage) -> Result<(), Failed> {
    let pod = reader(stage, "kubelet").await?;
    let cluster = &stage.site.cluster;
    cluster.stop(Component::Kubelet, false).await.map_err(chain)?;
    cluster.start(Component::Kubelet).await.map_err(chain)?;
    stage.await_driver(true).await?;
    let whole = pod.judge_whole(&rotates(stage, &pod).await?);
    pod.delete()?;
    whole
}

const SELECTOR: &str = "app.kubernetes.io/name=lanyard-node";

fn plugin(stage: &Stage) -> Result<Value, Failed> {
    let arguments = ["pods", "--namespace", crate::helm::Helm::NAMESPACE, "--selector", SELECTOR];
    let mut pods = stage.site.kubectl.read(&arguments).map_err(chain)?;
    match pods["items"].as_array_mut().map(std::mem::take).as_deref_mut() {
        Some([pod]) => Ok(pod.take()),
        other => Err(format!("{} pods of the plugin", other.map_or(0, |it| it.len())).into()),
    }
}

fn plugin_pod(stage: &Stage) -> Result<String, Failed> {
    Ok(plugin(stage)?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

fn restarts(stage: &Stage) -> Result<u64, Failed> {
    let plugin = plugin(stage)?;
    Ok(plugin["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default())
}

/// The process of the plugin's container, told from every other by the kubelet's directory, which
/// is that of this suite alone.
fn plugin_process(stage: &Stage) -> Result<Pid, Failed> {
    let flag = format!("--kubelet-dir={}", stage.site.cluster.layout().kubelet().display());
    let processes = fs::read_dir("/proc").map_err(chain)?.filter_map(Result::ok);
    let ours = processes.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words =
            fs::read(PathBuf::from("/proc").join(entry.file_name()).join("cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0);
        let is_ours = words.next()? == b"/lanyard" && words.any(|word| word == flag.as_bytes());
        is_ours.then_some(Pid::from_raw(pid)).flatten()
    });
    let ours: Vec<Pid> = ours.collect();
    match ours.as_slice() {
        [process] => Ok(*process),
        _ => Err(format!("{} processes of the plugin", ours.len()).into()),
    }
}
