//! Trial of a switch between drivers while pods run: upstream's driver and provider, then lanyard's, then
//! upstream's again. The pods keep reading, and rotation continues.

use std::path::Path;
use std::process::Command;

use lanyard_cluster::choose_ports;
use libtest_mimic::Failed;
use serde_json::json;

use super::probe_pod::{PodVolume, ProbeEvent, ProbePod, file_digests};
use super::{DRIVER, NodeSuiteFixture, ROTATION_TIMEOUT, START_TIMEOUT, failed_with_causes};
use crate::class_manifests::ClassIdentityMode;
use crate::daemon::Daemon;
use crate::registrar::DriverRegistrar;
use crate::sign_in_method::SignInMethod;
use crate::volume::CsiDriverClient;

const CREDENTIAL_OBJECT: &str =
    "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
const CREDENTIAL_FILE: &str = "credential";

/// Upstream's processes on the node: driver, provider, and the registration that a sidecar does.
#[derive(Debug)]
struct UpstreamNodeStack {
    driver: Daemon,
    provider: Daemon,
    registrar: DriverRegistrar,
}

pub(super) async fn switch_drivers(fixture: &NodeSuiteFixture) -> Result<(), Failed> {
    fixture.helm.uninstall().map_err(failed_with_causes)?;
    fixture.wait_for_driver(false).await?;
    let upstream = UpstreamNodeStack::start(fixture).await?;
    fixture.create_class(
        "switch",
        SignInMethod::ManagedIdentity,
        ClassIdentityMode::ManagedIdentity,
        CREDENTIAL_OBJECT,
    )?;
    let pod = ProbePod::new(fixture, "switch", PodVolume::of_class("switch"), &[CREDENTIAL_FILE]);
    pod.create_and_wait().await?;
    rotate_and_wait(fixture, &pod, "upstream").await?;
    upstream.stop(fixture).await?;
    let read_by_us = run_with_lanyard(fixture, &pod).await;
    fixture.helm.uninstall().map_err(failed_with_causes)?;
    fixture.wait_for_driver(false).await?;
    read_by_us?;
    let upstream = UpstreamNodeStack::start(fixture).await?;
    let whole =
        pod.expect_uninterrupted_reads(&rotate_and_wait(fixture, &pod, "upstream again").await?);
    pod.delete()?;
    upstream.stop(fixture).await?;
    // The next trial expects an installed chart.
    fixture.install().await?;
    whole
}

async fn run_with_lanyard(fixture: &NodeSuiteFixture, pod: &ProbePod<'_>) -> Result<(), Failed> {
    fixture.install().await?;
    rotate_and_wait(fixture, pod, "ours").await?;
    // A pod that is created now runs next to the older one.
    let second =
        ProbePod::new(fixture, "switch-second", PodVolume::of_class("switch"), &[CREDENTIAL_FILE]);
    second.create_and_wait().await?;
    second.delete()
}

async fn rotate_and_wait(
    fixture: &NodeSuiteFixture,
    pod: &ProbePod<'_>,
    stack: &str,
) -> Result<Vec<ProbeEvent>, Failed> {
    let before = file_digests(&pod.probe_events()?, CREDENTIAL_FILE).len();
    fixture.azure.rotate_component_credential().await.map_err(failed_with_causes)?;
    let newer = |events: &[ProbeEvent]| file_digests(events, CREDENTIAL_FILE).len() > before;
    pod.wait_for_probe_events(&format!("a rotation by {stack}"), ROTATION_TIMEOUT, newer).await
}

impl UpstreamNodeStack {
    async fn start(fixture: &NodeSuiteFixture) -> Result<Self, Failed> {
        fixture.suite_cluster.kubectl.apply(&csi_driver_manifest()).map_err(failed_with_causes)?;
        let kubelet = fixture.suite_cluster.cluster.layout().kubelet_directory();
        let sockets = kubelet.join("plugins").join("csi-secrets-store");
        for directory in [&sockets, &fixture.provider_socket_directory()] {
            std::fs::create_dir_all(directory).map_err(failed_with_causes)?;
        }
        let provider = start_provider(fixture).await?;
        let socket = sockets.join("csi.sock");
        let driver = start_driver(fixture, &socket).await?;
        let registrar =
            DriverRegistrar::start(&kubelet, DRIVER, &socket).map_err(failed_with_causes)?;
        fixture.wait_for_driver(true).await?;
        Ok(Self { driver, provider, registrar })
    }

    async fn stop(self, fixture: &NodeSuiteFixture) -> Result<(), Failed> {
        drop(self.registrar);
        self.driver.stop().await;
        self.provider.stop().await;
        fixture.suite_cluster.kubectl.delete(&["csidriver", DRIVER]).map_err(failed_with_causes)?;
        fixture.wait_for_driver(false).await
    }
}

async fn start_driver(fixture: &NodeSuiteFixture, socket: &Path) -> Result<Daemon, Failed> {
    let mut command = Command::new(&fixture.upstream_programs.0);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.args(["--nodeid=localhost", "--metrics-addr=127.0.0.1:0", "-v=2"]);
    command.arg(format!("--provider-volume={}", fixture.provider_socket_directory().display()));
    command.arg(format!("--kubeconfig={}", fixture.suite_cluster.kubectl.kubeconfig().display()));
    command.args(["--enable-secret-rotation=true", "--rotation-poll-interval=5s"]);
    let mut driver =
        Daemon::start("upstream-driver", &mut command, fixture.suite_cluster.directory())
            .map_err(failed_with_causes)?;
    let plugin = CsiDriverClient::new(socket);
    driver
        .wait_until("answering", START_TIMEOUT, async || plugin.is_answering().await)
        .await
        .map_err(failed_with_causes)?;
    Ok(driver)
}

async fn start_provider(fixture: &NodeSuiteFixture) -> Result<Daemon, Failed> {
    let socket = fixture.provider_socket_directory().join("azure.sock");
    let mut command = Command::new(&fixture.upstream_programs.1);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.envs(fixture.azure.client_environment());
    let [health, metrics] = choose_ports().map_err(failed_with_causes)?;
    command.arg(format!("--healthz-port={health}"));
    command.arg(format!("--prometheus-port={metrics}"));
    let mut provider =
        Daemon::start("upstream-provider", &mut command, fixture.suite_cluster.directory())
            .map_err(failed_with_causes)?;
    provider
        .wait_until("listening", START_TIMEOUT, async || socket.exists())
        .await
        .map_err(failed_with_causes)?;
    Ok(provider)
}

/// Upstream's static manifest of the CSIDriver.
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
