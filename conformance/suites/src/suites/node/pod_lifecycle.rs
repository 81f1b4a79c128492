//! Trials of running pods while vaults, plugin and kubelet change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_cluster::ClusterComponent;
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::probe_pod::{PodVolume, ProbeEvent, ProbePod, file_digests};
use super::{NAMESPACE, NodeSuiteFixture, ROTATION_TIMEOUT, START_TIMEOUT, failed_with_causes};
use crate::class_manifests::ClassIdentityMode;
use crate::sign_in_method::SignInMethod;

const CREDENTIAL_OBJECT: &str =
    "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
const CREDENTIAL_FILE: &str = "credential";

/// Starts a pod that reads a credential which the local Azure can rotate.
async fn start_reader_pod<'a>(
    fixture: &'a NodeSuiteFixture,
    name: &'static str,
) -> Result<ProbePod<'a>, Failed> {
    fixture.create_class(
        name,
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        CREDENTIAL_OBJECT,
    )?;
    let pod = ProbePod::new(fixture, name, PodVolume::of_class(name), &[CREDENTIAL_FILE]);
    pod.create_and_wait().await?;
    Ok(pod)
}

/// Rotates the credential and waits until the container has read it.
async fn rotate_and_wait(
    fixture: &NodeSuiteFixture,
    pod: &ProbePod<'_>,
) -> Result<Vec<ProbeEvent>, Failed> {
    // A restarted kubelet does not serve container logs immediately.
    let known =
        pod.wait_for_probe_events("the log of the container", START_TIMEOUT, |_| true).await?;
    let before = file_digests(&known, CREDENTIAL_FILE).len();
    fixture.azure.rotate_component_credential().await.map_err(failed_with_causes)?;
    let newer = |events: &[ProbeEvent]| file_digests(events, CREDENTIAL_FILE).len() > before;
    pod.wait_for_probe_events("the new version in the container", ROTATION_TIMEOUT, newer).await
}

pub(super) async fn rotation_reaches_pod(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let pod = start_reader_pod(fixture, "rotation").await?;
    let first = pod_status_objects(fixture, "rotation")?;
    pod.expect_uninterrupted_reads(&rotate_and_wait(fixture, &pod).await?)?;
    let second = pod_status_objects(fixture, "rotation")?;
    pod.delete()?;
    if first == second {
        return Err(format!("the pod status still lists {first}").into());
    }
    Ok(())
}

/// The objects that a pod's status lists.
fn pod_status_objects(fixture: &NodeSuiteFixture, pod: &str) -> Result<Value, Failed> {
    let name = format!("{pod}-{NAMESPACE}-{pod}");
    let arguments = ["secretproviderclasspodstatus", &name, "--namespace", NAMESPACE];
    let status = fixture.suite_cluster.kubectl.get_json(&arguments).map_err(failed_with_causes)?;
    Ok(status["status"]["objects"].clone())
}

pub(super) async fn deleted_pod_leaves_nothing(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let pod = start_reader_pod(fixture, "deletion").await?;
    let uid = pod.read_object()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let place = fixture.suite_cluster.cluster.layout().kubelet_directory().join("pods").join(&uid);
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
    fixture
        .suite_cluster
        .kubectl
        .wait_for_object(what, START_TIMEOUT, &arguments, gone)
        .await
        .map_err(failed_with_causes)?;
    if is_mounted_below(&place)? {
        return Err(format!("something is mounted below {}", place.display()).into());
    }
    // The kubelet removes directories in its periodic cleanup.
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + START_TIMEOUT;
    while place.exists() {
        if clock.monotonic() > deadline {
            return Err(format!("{} is left behind", place.display()).into());
        }
        clock.sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn is_mounted_below(place: &Path) -> Result<bool, Failed> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(failed_with_causes)?;
    let place = place.display().to_string();
    Ok(table.lines().any(|line| line.contains(&place) && line.contains("kubernetes.io~csi")))
}

/// A new pod of the plugin takes over the mounts of the old one.
pub(super) async fn upgraded_plugin(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let pod = start_reader_pod(fixture, "upgrade").await?;
    let before = plugin_pod_uid(fixture)?;
    let values = fixture.write_values_file().await?;
    let change =
        ["--set", "linux.podAnnotations.example\\.com/release=second", "--wait", "--timeout", "2m"];
    fixture.helm.upgrade(&values, &change).map_err(failed_with_causes)?;
    if plugin_pod_uid(fixture)? == before {
        return Err("the upgrade replaced no pod".into());
    }
    let whole = pod.expect_uninterrupted_reads(&rotate_and_wait(fixture, &pod).await?);
    pod.delete()?;
    whole
}

/// After SIGKILL, only the kubelet restarts the container.
pub(super) async fn killed_plugin(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let pod = start_reader_pod(fixture, "kill").await?;
    let before = plugin_restart_count(fixture)?;
    let process = find_plugin_process(fixture)?;
    kill_process(process, Signal::KILL).map_err(failed_with_causes)?;
    let selector =
        ["pods", "--namespace", crate::helm::Helm::NAMESPACE, "--selector", PLUGIN_SELECTOR];
    let ready_again = |list: &Value| {
        let state = &list["items"][0]["status"]["containerStatuses"][0];
        state["ready"] == true && state["restartCount"].as_u64().unwrap_or_default() > before
    };
    let what = "the plugin is ready again";
    fixture
        .suite_cluster
        .kubectl
        .wait_for_object(what, START_TIMEOUT, &selector, ready_again)
        .await
        .map_err(failed_with_causes)?;
    let whole = pod.expect_uninterrupted_reads(&rotate_and_wait(fixture, &pod).await?);
    pod.delete()?;
    whole?;
    // Pods that are created afterwards are served too.
    start_reader_pod(fixture, "after-kill").await?.delete()
}

pub(super) async fn restarted_kubelet(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    let pod = start_reader_pod(fixture, "kubelet").await?;
    let cluster = &fixture.suite_cluster.cluster;
    cluster.stop(ClusterComponent::Kubelet, false).await.map_err(failed_with_causes)?;
    cluster.start(ClusterComponent::Kubelet).await.map_err(failed_with_causes)?;
    fixture.wait_for_driver(true).await?;
    let whole = pod.expect_uninterrupted_reads(&rotate_and_wait(fixture, &pod).await?);
    pod.delete()?;
    whole
}

const PLUGIN_SELECTOR: &str = "app.kubernetes.io/name=lanyard-node";

fn read_plugin_pod(fixture: &NodeSuiteFixture) -> Result<Value, Failed> {
    let arguments =
        ["pods", "--namespace", crate::helm::Helm::NAMESPACE, "--selector", PLUGIN_SELECTOR];
    let mut pods =
        fixture.suite_cluster.kubectl.get_json(&arguments).map_err(failed_with_causes)?;
    match pods["items"].as_array_mut().map(std::mem::take).as_deref_mut() {
        Some([pod]) => Ok(pod.take()),
        other => Err(format!("{} pods of the plugin", other.map_or(0, |it| it.len())).into()),
    }
}

fn plugin_pod_uid(fixture: &NodeSuiteFixture) -> Result<String, Failed> {
    Ok(read_plugin_pod(fixture)?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

fn plugin_restart_count(fixture: &NodeSuiteFixture) -> Result<u64, Failed> {
    let plugin = read_plugin_pod(fixture)?;
    Ok(plugin["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default())
}

/// The process of the plugin's container, identified by its kubelet directory, which only this suite uses.
fn find_plugin_process(fixture: &NodeSuiteFixture) -> Result<Pid, Failed> {
    let flag = format!(
        "--kubelet-dir={}",
        fixture.suite_cluster.cluster.layout().kubelet_directory().display()
    );
    let processes = fs::read_dir("/proc").map_err(failed_with_causes)?.filter_map(Result::ok);
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
