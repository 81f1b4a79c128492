//! A change of horses: upstream's driver and provider with running pods, then ours, then theirs
//! again. The pods read on, and rotation goes on under each.

use std::path::Path;
use std::process::Command;

use lanyard_cluster::choose_ports;
use libtest_mimic::Failed;
use serde_json::json;

use super::probe_pod::{PodVolume, ProbeEvent, ProbePod, file_digests};
use super::{DRIVER, NodeSuiteFixture, ROTATION_TIMEOUT, START_TIMEOUT, failed_with_causes};
use crate::azure_target::SignInMethod;
use crate::class_manifests::ClassIdentityMode;
use crate::daemon::Daemon;
use crate::registrar::DriverRegistrar;
use crate::volume::CsiDriverClient;

const CREDENTIAL_OBJECT: &str =
    "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
const CREDENTIAL_FILE: &str = "credential";

/// Upstream's node side: driver, provider, and what a sidecar does.
#[derive(Debug)]
struct UpstreamNodeStack {
    driver: Daemon,
    provider: Daemon,
    registrar: DriverRegistrar,
}

pub(super) async fn switch_drivers(stage: &NodeSuiteFixture) -> Result<(), Failed> {
    stage.helm.uninstall().map_err(failed_with_causes)?;
    stage.wait_for_driver(false).await?;
    let upstream = UpstreamNodeStack::start(stage).await?;
    stage.create_class(
        "horses",
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        CREDENTIAL_OBJECT,
    )?;
    let pod = ProbePod::new(stage, "horses", PodVolume::of_class("horses"), &[CREDENTIAL_FILE]);
    pod.create_and_wait().await?;
    rotate_and_wait(stage, &pod, "upstream").await?;
    upstream.stop(stage).await?;
    let read_by_us = run_with_lanyard(stage, &pod).await;
    stage.helm.uninstall().map_err(failed_with_causes)?;
    stage.wait_for_driver(false).await?;
    read_by_us?;
    let upstream = UpstreamNodeStack::start(stage).await?;
    let whole =
        pod.expect_uninterrupted_reads(&rotate_and_wait(stage, &pod, "upstream again").await?);
    pod.delete()?;
    upstream.stop(stage).await?;
    // The next trial finds the chart as the last one left it.
    stage.install().await?;
    whole
}

async fn run_with_lanyard(stage: &NodeSuiteFixture, pod: &ProbePod<'_>) -> Result<(), Failed> {
    stage.install().await?;
    rotate_and_wait(stage, pod, "ours").await?;
    // A pod that comes now stands beside the one that came before.
    let second =
        ProbePod::new(stage, "horses-second", PodVolume::of_class("horses"), &[CREDENTIAL_FILE]);
    second.create_and_wait().await?;
    second.delete()
}

async fn rotate_and_wait(
    stage: &NodeSuiteFixture,
    pod: &ProbePod<'_>,
    who: &str,
) -> Result<Vec<ProbeEvent>, Failed> {
    let before = file_digests(&pod.probe_events()?, CREDENTIAL_FILE).len();
    stage.azure.rotate_component_credential().await.map_err(failed_with_causes)?;
    let newer = |sights: &[ProbeEvent]| file_digests(sights, CREDENTIAL_FILE).len() > before;
    pod.wait_for_probe_events(&format!("a rotation by {who}"), ROTATION_TIMEOUT, newer).await
}

impl UpstreamNodeStack {
    async fn start(stage: &NodeSuiteFixture) -> Result<Self, Failed> {
        stage.suite_cluster.kubectl.apply(&csi_driver_manifest()).map_err(failed_with_causes)?;
        let kubelet = stage.suite_cluster.cluster.layout().kubelet_directory();
        let sockets = kubelet.join("plugins").join("csi-secrets-store");
        for directory in [&sockets, &stage.provider_socket_directory()] {
            std::fs::create_dir_all(directory).map_err(failed_with_causes)?;
        }
        let provider = start_provider(stage).await?;
        let socket = sockets.join("csi.sock");
        let driver = start_driver(stage, &socket).await?;
        let registrar =
            DriverRegistrar::start(&kubelet, DRIVER, &socket).map_err(failed_with_causes)?;
        stage.wait_for_driver(true).await?;
        Ok(Self { driver, provider, registrar })
    }

    async fn stop(self, stage: &NodeSuiteFixture) -> Result<(), Failed> {
        drop(self.registrar);
        self.driver.stop().await;
        self.provider.stop().await;
        stage.suite_cluster.kubectl.delete(&["csidriver", DRIVER]).map_err(failed_with_causes)?;
        stage.wait_for_driver(false).await
    }
}

async fn start_driver(stage: &NodeSuiteFixture, socket: &Path) -> Result<Daemon, Failed> {
    let mut command = Command::new(&stage.upstream_programs.0);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.args(["--nodeid=localhost", "--metrics-addr=127.0.0.1:0", "-v=2"]);
    command.arg(format!("--provider-volume={}", stage.provider_socket_directory().display()));
    command.arg(format!("--kubeconfig={}", stage.suite_cluster.kubectl.kubeconfig().display()));
    command.args(["--enable-secret-rotation=true", "--rotation-poll-interval=5s"]);
    let mut driver =
        Daemon::start("upstream-driver", &mut command, stage.suite_cluster.directory())
            .map_err(failed_with_causes)?;
    let plugin = CsiDriverClient::new(socket);
    driver
        .wait_until("answering", START_TIMEOUT, async || plugin.is_answering().await)
        .await
        .map_err(failed_with_causes)?;
    Ok(driver)
}

async fn start_provider(stage: &NodeSuiteFixture) -> Result<Daemon, Failed> {
    let socket = stage.provider_socket_directory().join("azure.sock");
    let mut command = Command::new(&stage.upstream_programs.1);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.envs(stage.azure.client_environment());
    let [health, metrics] = choose_ports().map_err(failed_with_causes)?;
    command.arg(format!("--healthz-port={health}"));
    command.arg(format!("--prometheus-port={metrics}"));
    let mut provider =
        Daemon::start("upstream-provider", &mut command, stage.suite_cluster.directory())
            .map_err(failed_with_causes)?;
    provider
        .wait_until("listening", START_TIMEOUT, async || socket.exists())
        .await
        .map_err(failed_with_causes)?;
    Ok(provider)
}

/// As upstream's static manifest has it.
fn csi_driver_manifest() -> serde_json::Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": DRIVER },
        "spec": {
            "podInfoOnMount": true,
            "attachRequired": false,
            "volumeLifecycleModes": ["Ephemeral"],
            "requiresRepublish": true,
            "tokenRequests": [{ "audience": "api://AzureADTokenExchange" }],
        },
    })
}
