//! Volumes of the real node plugin: a process of its own, on memory file systems, driven as the
//! kubelet drives it.

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

pub(super) fn trials(stage: &Arc<GoSuiteFixture>) -> Vec<Trial> {
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
            let stage = Arc::clone(stage);
            let run = move || stage.local().and_then(|local| case(&stage, local));
            // Mounting needs root; a case that is left out is counted as such.
            Trial::test(name, run).with_ignored_flag(!is_root)
        })
        .collect()
}

/// One process on the first generation of a pod's file; a hundred rotations, and a plugin that is
/// killed and started again half-way.
fn rotations_across_plugin_restart(
    stage: &GoSuiteFixture,
    local: &LocalAzureTarget,
) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = stage.largest_plain_component(local)?;
    let (mut node, file) = start_node_with_pods(stage, local, component, 1)?;
    let link = generation_link(&file);
    let first = CredentialSummary::load(&file)?;
    let shown = file.display().to_string();
    let mut witness = stage
        .program
        .start_watching(&[("file", &shown), ("watch", "true")])
        .map_err(failed_with_causes)?;
    wait_for_certificate(&mut witness, &first.thumbprint, START_TIMEOUT)?;

    let mut slowest = Duration::ZERO;
    for number in 1..=ROTATION_COUNT {
        if number == ROTATION_COUNT / 2 {
            node.restart_plugin().map_err(failed_with_causes)?;
        }
        let padding = (MAX_CREDENTIAL_SIZE.saturating_sub(first.bytes)) * number / ROTATION_COUNT;
        let before = fs::read_link(&link).map_err(failed_with_causes)?;
        stage
            .runtime
            .block_on(local.control_api().rotate_credential(component.name(), padding))
            .map_err(failed_with_causes)?;
        let is_swapped = |_: &NodePluginProcess| fs::read_link(&link).is_ok_and(|it| it != before);
        node.wait_until("the plugin has taken the new version", ROTATION_TIMEOUT, is_swapped)
            .map_err(failed_with_causes)?;
        let began = clock.monotonic();
        let content = CredentialSummary::load(&file)?;
        wait_for_certificate(&mut witness, &content.thumbprint, NOTICE_TIMEOUT).map_err(|why| {
            let why = why.message().unwrap_or_default().to_owned();
            format!("rotation {number} ({} bytes): {why}", content.bytes)
        })?;
        slowest = slowest.max(clock.monotonic().saturating_sub(began));
    }
    print_figure(&format!(
        "the slowest of {ROTATION_COUNT} rotations by the plugin was noticed after {slowest:?}"
    ));
    drop(witness);
    delete_pods_and_expect_no_leftovers(&mut node, 1)
}

/// A hundred pods that start, see a rotation and go.
fn many_pods_mounted_and_unmounted(
    stage: &GoSuiteFixture,
    local: &LocalAzureTarget,
) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = stage.largest_plain_component(local)?;
    let began = clock.monotonic();
    let (mut node, file) = start_node_with_pods(stage, local, component, PODS)?;
    let started = clock.monotonic().saturating_sub(began);
    let mounts = node.mount_points().map_err(failed_with_causes)?.len();
    if mounts != PODS {
        return Err(format!("{mounts} mounts for {PODS} pods").into());
    }
    let name = file.file_name().unwrap_or_default();
    let files: Vec<PathBuf> =
        volume_keys(PODS).map(|key| node.kubelet().target_path(&key).join(name)).collect();
    let before = CredentialSummary::load(&file)?.thumbprint;
    stage
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

/// A node whose pods have their volumes, and the file of the first.
fn start_node_with_pods(
    stage: &GoSuiteFixture,
    local: &LocalAzureTarget,
    component: Component,
    pods: usize,
) -> Result<(NodePluginProcess, PathBuf), Failed> {
    let parameters = &stage.component_credential(component)?.parameters;
    let mut class = SecretProviderClass {
        api_version: SecretProviderClass::API_VERSION.to_owned(),
        kind: SecretProviderClass::KIND.to_owned(),
        ..SecretProviderClass::default()
    };
    class.metadata.namespace = Some(NAMESPACE.to_owned());
    class.metadata.name = Some(CLASS.to_owned());
    class.spec.provider = Some(SecretProviderClass::AZURE_PROVIDER.to_owned());
    class.spec.parameters = Some(parameters.to_parameters());
    let mut environment = stage.azure_target.client_environment();
    environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", local.azure.proxy_url().into());
    let program = local.azure.program();
    let mut node =
        NodePluginProcess::start(program, &class, ROTATION_INTERVAL, environment, &stage.runtime)
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

/// Deletes the pods; nothing of theirs may stay.
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

/// The link that a swap replaces.
fn generation_link(file: &Path) -> PathBuf {
    file.with_file_name("..data")
}

/// For whoever follows the figures from run to run.
fn print_figure(figure: &str) {
    writeln!(std::io::stderr().lock(), "{figure}").unwrap_or_default();
}

const PODS: usize = 100;
const NAMESPACE: &str = "clusters-example";
const CLASS: &str = "managed-azure";

/// How often the plugin looks for new versions.
const ROTATION_INTERVAL: &str = "1s";

/// How long it may take to find one.
const ROTATION_TIMEOUT: Duration = Duration::from_secs(15);

/// How long all pods may take to start, or to go.
const MOUNT_TIMEOUT: Duration = Duration::from_mins(1);
