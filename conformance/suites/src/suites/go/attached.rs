//! Volumes of the real node plugin: a process of its own, on memory file systems, driven as the
//! kubelet drives it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lanyard_api::{ObjectEntry, SecretProviderClass};
use lanyard_clock::SystemClock;
use lanyard_kubelet::VolumeKey;
use lanyard_vocabulary::Component;
use libtest_mimic::{Failed, Trial};

use super::super::chain;
use super::{Content, LAST_SIZE, NOTICE, ROTATIONS, START, Stage, await_certificate};
use crate::ground::Local;
use crate::plugin::Node;

type Case = fn(&Stage, &Local) -> Result<(), Failed>;

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let cases: [(&str, Case); 2] = [
        ("go::a_process_on_a_pods_volume_follows_a_hundred_rotations_across_a_restart", follow),
        ("go::a_hundred_pods_are_mounted_rotated_and_unmounted_by_the_plugin", crowd),
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
fn follow(stage: &Stage, local: &Local) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = stage.rotated_component(local)?;
    let (mut node, file) = node_with_pods(stage, local, component, 1)?;
    let link = generation_link(&file);
    let first = Content::load(&file)?;
    let shown = file.display().to_string();
    let mut witness = stage.program.watch(&[("file", &shown), ("watch", "true")]).map_err(chain)?;
    await_certificate(&mut witness, &first.thumbprint, START)?;

    let mut slowest = Duration::ZERO;
    for number in 1..=ROTATIONS {
        if number == ROTATIONS / 2 {
            node.restart_plugin().map_err(chain)?;
        }
        let padding = (LAST_SIZE.saturating_sub(first.bytes)) * number / ROTATIONS;
        let before = fs::read_link(&link).map_err(chain)?;
        stage.runtime.block_on(local.control().rotate(component.name(), padding)).map_err(chain)?;
        let is_swapped = |_: &Node| fs::read_link(&link).is_ok_and(|it| it != before);
        node.until("the plugin has taken the new version", SWAP, is_swapped).map_err(chain)?;
        let began = clock.monotonic();
        let content = Content::load(&file)?;
        await_certificate(&mut witness, &content.thumbprint, NOTICE).map_err(|why| {
            let why = why.message().unwrap_or_default().to_owned();
            format!("rotation {number} ({} bytes): {why}", content.bytes)
        })?;
        slowest = slowest.max(clock.monotonic().saturating_sub(began));
    }
    tell(&format!(
        "the slowest of {ROTATIONS} rotations by the plugin was noticed after {slowest:?}"
    ));
    drop(witness);
    without_a_trace(&mut node, 1)
}

/// A hundred pods that start, see a rotation and go.
fn crowd(stage: &Stage, local: &Local) -> Result<(), Failed> {
    let clock = SystemClock::shared();
    let component = stage.rotated_component(local)?;
    let began = clock.monotonic();
    let (mut node, file) = node_with_pods(stage, local, component, PODS)?;
    let started = clock.monotonic().saturating_sub(began);
    let mounts = node.mounts().map_err(chain)?.len();
    if mounts != PODS {
        return Err(format!("{mounts} mounts for {PODS} pods").into());
    }
    let name = file.file_name().unwrap_or_default();
    let files: Vec<PathBuf> =
        keys(PODS).map(|key| node.kubelet().target(&key).join(name)).collect();
    let before = Content::load(&file)?.thumbprint;
    stage.runtime.block_on(local.control().rotate(component.name(), 0)).map_err(chain)?;
    let is_new = |file: &PathBuf| Content::load(file).is_ok_and(|it| it.thumbprint != before);
    node.until("every pod has the new version", SWAP, |_| files.iter().all(is_new))
        .map_err(chain)?;
    tell(&format!("{PODS} pods had their volumes after {started:?}"));
    without_a_trace(&mut node, PODS)
}

/// A node whose pods have their volumes, and the file of the first.
fn node_with_pods(
    stage: &Stage,
    local: &Local,
    component: Component,
    pods: usize,
) -> Result<(Node, PathBuf), Failed> {
    let parameters = &stage.subject(component)?.parameters;
    let mut class = SecretProviderClass {
        api_version: SecretProviderClass::API_VERSION.to_owned(),
        kind: SecretProviderClass::KIND.to_owned(),
        ..SecretProviderClass::default()
    };
    class.metadata.namespace = Some(NAMESPACE.to_owned());
    class.metadata.name = Some(CLASS.to_owned());
    class.spec.provider = Some(SecretProviderClass::AZURE.to_owned());
    class.spec.parameters = Some(parameters.to_parameters());
    let mut environment = stage.ground.environment();
    environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", local.azure.proxy().into());
    let program = local.azure.program();
    let mut node =
        Node::start(program, &class, INTERVAL, environment, &stage.runtime).map_err(chain)?;
    let keys: Vec<_> = (0..pods).map(|number| node.add_pod(NAMESPACE, CLASS, number)).collect();
    let all_mounted = |node: &Node| keys.iter().all(|key| node.kubelet().is_mounted(key));
    node.until("every pod has its volume", MOUNT, all_mounted).map_err(chain)?;
    let name = parameters.objects.first().map(ObjectEntry::file_name).unwrap_or_default();
    let file = node.kubelet().target(&keys[0]).join(name);
    Ok((node, file))
}

fn keys(pods: usize) -> impl Iterator<Item = VolumeKey> {
    (0..pods).map(|number| VolumeKey::new(format!("uid-{number}"), "credentials"))
}

/// Deletes the pods; nothing of theirs may stay.
fn without_a_trace(node: &mut Node, pods: usize) -> Result<(), Failed> {
    for key in keys(pods) {
        node.delete_pod(&key);
    }
    node.until("the pods are gone", MOUNT, |node| node.kubelet().volumes() == 0).map_err(chain)?;
    let left = node.mounts().map_err(chain)?;
    if left.is_empty() { Ok(()) } else { Err(format!("mounts are left: {left:?}").into()) }
}

/// The link that a swap replaces.
fn generation_link(file: &Path) -> PathBuf {
    file.with_file_name("..data")
}

/// For whoever follows the figures from run to run.
fn tell(figure: &str) {
    writeln!(std::io::stderr().lock(), "{figure}").unwrap_or_default();
}

const PODS: usize = 100;
const NAMESPACE: &str = "clusters-example";
const CLASS: &str = "managed-azure";

/// How often the plugin looks for new versions.
const INTERVAL: &str = "1s";

/// How long it may take to find one.
const SWAP: Duration = Duration::from_secs(15);

/// How long all pods may take to start, or to go.
const MOUNT: Duration = Duration::from_mins(1);
