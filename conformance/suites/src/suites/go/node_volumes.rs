//! Trials with volumes of the real node plugin: a process with tmpfs volumes and a fake kubelet.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::{SecretProviderClass, VaultObjectEntry};
use lanyard_clock::SystemClock;
use lanyard_kubelet::VolumeKey;
use lanyard_vocabulary::Component;
use libtest_mimic::{Failed, Trial};

use super::super::failed_with_causes;
use super::{
    CredentialSummary, GoSuiteFixture, MAX_CREDENTIAL_SIZE, NOTICE_TIMEOUT, ROTATION_COUNT,
    START_TIMEOUT, wait_for_certificate,
};
use crate::azure_target::LocalAzureTarget;
use crate::node_plugin_process::NodePluginProcess;

type NodeVolumeCase = fn(&GoSuiteFixture, &LocalAzureTarget) -> Result<(), Failed>;

pub(super) fn trials(fixture: &Arc<GoSuiteFixture>) -> Vec<Trial> {
    let cases: [(&str, NodeVolumeCase); 2] = [
        (
            "go::client_on_a_pod_volume_reloads_a_hundred_rotations_across_a_plugin_restart",
            rotations_across_plugin_restart,
        ),
        (
            "go::a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_plugin",
            many_pods_mounted_and_unmounted,
        ),
    ];
    let is_root = rustix::process::geteuid().is_root();
    cases
        .into_iter()
        .map(|(name, case)| {
            let fixture = Arc::clone(fixture);
            let run = move || fixture.local().and_then(|local| case(&fixture, local));
            // Mounting needs root. Without it the trial is reported as ignored.
            Trial::test(name, run).with_ignored_flag(!is_root)
        })
        .collect()
}

/// Runs a client that opens the first generation of a pod's file, through a hundred rotations and a restart
/// of the plugin after half of them.
fn rotations_across_plugin_restart(
    fixture: &GoSuiteFixture,
    local: &LocalAzureTarget,
) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = fixture.largest_plain_component(local)?;
    let (mut node, file) = start_node_with_pods(fixture, local, component, 1)?;
    let link = generation_link(&file);
    let first = CredentialSummary::load(&file)?;
    let shown = file.display().to_string();
    let mut client = fixture
        .program
        .start_watching(&[("file", &shown), ("watch", "true")])
        .map_err(failed_with_causes)?;
    wait_for_certificate(&mut client, &first.thumbprint, START_TIMEOUT)?;

    let mut slowest = Duration::ZERO;
    for number in 1..=ROTATION_COUNT {
        if number == ROTATION_COUNT / 2 {
            node.restart_plugin().map_err(failed_with_causes)?;
        }
        let padding = (MAX_CREDENTIAL_SIZE.saturating_sub(first.bytes)) * number / ROTATION_COUNT;
        let before = fs::read_link(&link).map_err(failed_with_causes)?;
        fixture
            .runtime
            .block_on(local.control_api().rotate_credential(component.name(), padding))
            .map_err(failed_with_causes)?;
        let is_swapped = |_: &NodePluginProcess| fs::read_link(&link).is_ok_and(|it| it != before);
        node.wait_until("the plugin has published the new version", ROTATION_TIMEOUT, is_swapped)
            .map_err(failed_with_causes)?;
        let began = clock.monotonic();
        let content = CredentialSummary::load(&file)?;
        wait_for_certificate(&mut client, &content.thumbprint, NOTICE_TIMEOUT).map_err(|why| {
            let why = why.message().unwrap_or_default().to_owned();
            format!("rotation {number} ({} bytes): {why}", content.bytes)
        })?;
        slowest = slowest.max(clock.monotonic().saturating_sub(began));
    }
    print_figure(&format!(
        "the slowest of {ROTATION_COUNT} rotations by the plugin was noticed after {slowest:?}"
    ));
    drop(client);
    delete_pods_and_expect_no_leftovers(&mut node, 1)
}

/// Mounts the volumes of a hundred pods, rotates them once, and unmounts them.
fn many_pods_mounted_and_unmounted(
    fixture: &GoSuiteFixture,
    local: &LocalAzureTarget,
) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = fixture.largest_plain_component(local)?;
    let began = clock.monotonic();
    let (mut node, file) = start_node_with_pods(fixture, local, component, PODS)?;
    let started = clock.monotonic().saturating_sub(began);
    let mounts = node.mount_points().map_err(failed_with_causes)?.len();
    if mounts != PODS {
        return Err(format!("{mounts} mounts for {PODS} pods").into());
    }
    let name = file.file_name().unwrap_or_default();
    let files: Vec<PathBuf> =
        volume_keys(PODS).map(|key| node.kubelet().target_path(&key).join(name)).collect();
    let before = CredentialSummary::load(&file)?.thumbprint;
    fixture
        .runtime
        .block_on(local.control_api().rotate_credential(component.name(), 0))
        .map_err(failed_with_causes)?;
    let is_new =
        |file: &PathBuf| CredentialSummary::load(file).is_ok_and(|it| it.thumbprint != before);
    node.wait_until("every pod has the new version", ROTATION_TIMEOUT, |_| {
        files.iter().all(is_new)
    })
    .map_err(failed_with_causes)?;
    print_figure(&format!("{PODS} pods had their volumes after {started:?}"));
    delete_pods_and_expect_no_leftovers(&mut node, PODS)
}

/// Starts a node with mounted pods. Returns it with the file of the first pod.
fn start_node_with_pods(
    fixture: &GoSuiteFixture,
    local: &LocalAzureTarget,
    component: Component,
    pods: usize,
) -> Result<(NodePluginProcess, PathBuf), Failed> {
    let parameters = &fixture.component_credential(component)?.parameters;
    let mut class = SecretProviderClass {
        api_version: SecretProviderClass::API_VERSION.to_owned(),
        kind: SecretProviderClass::KIND.to_owned(),
        ..SecretProviderClass::default()
    };
    class.metadata.namespace = Some(NAMESPACE.to_owned());
    class.metadata.name = Some(CLASS.to_owned());
    class.spec.provider = Some(SecretProviderClass::AZURE_PROVIDER.to_owned());
    class.spec.parameters = Some(parameters.to_parameters());
    let mut environment = fixture.azure_target.client_environment();
    environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", local.azure.proxy_url().into());
    let program = local.azure.program();
    let mut node =
        NodePluginProcess::start(program, &class, ROTATION_INTERVAL, environment, &fixture.runtime)
            .map_err(failed_with_causes)?;
    let keys: Vec<_> = (0..pods).map(|number| node.add_pod(NAMESPACE, CLASS, number)).collect();
    let all_mounted =
        |node: &NodePluginProcess| keys.iter().all(|key| node.kubelet().is_mounted(key));
    node.wait_until("every pod has its volume", MOUNT_TIMEOUT, all_mounted)
        .map_err(failed_with_causes)?;
    let name = parameters.objects.first().map(VaultObjectEntry::file_name).unwrap_or_default();
    let file = node.kubelet().target_path(&keys[0]).join(name);
    Ok((node, file))
}

fn volume_keys(pods: usize) -> impl Iterator<Item = VolumeKey> {
    (0..pods).map(|number| VolumeKey::new(format!("uid-{number}"), "credentials"))
}

/// Deletes the pods and expects that no mount is left.
fn delete_pods_and_expect_no_leftovers(
    node: &mut NodePluginProcess,
    pods: usize,
) -> Result<(), Failed> {
    for key in volume_keys(pods) {
        node.delete_pod(&key);
    }
    node.wait_until("the pods are gone", MOUNT_TIMEOUT, |node| node.kubelet().volume_count() == 0)
        .map_err(failed_with_causes)?;
    let left = node.mount_points().map_err(failed_with_causes)?;
    if left.is_empty() { Ok(()) } else { Err(format!("mounts are left: {left:?}").into()) }
}

/// The link that a publish replaces atomically.
fn generation_link(file: &Path) -> PathBuf {
    file.with_file_name("..data")
}

/// Prints a figure for comparison between runs.
fn print_figure(figure: &str) {
    writeln!(std::io::stderr().lock(), "{figure}").unwrap_or_default();
}

const PODS: usize = 100;
const NAMESPACE: &str = "clusters-example";
const CLASS: &str = "managed-azure";

/// How often the plugin checks for new versions.
const ROTATION_INTERVAL: &str = "1s";

/// How long the plugin may take to publish a new version.
const ROTATION_TIMEOUT: Duration = Duration::from_secs(15);

/// How long all pods may take to be mounted or unmounted.
const MOUNT_TIMEOUT: Duration = Duration::from_mins(1);
