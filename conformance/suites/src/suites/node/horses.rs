//! A change of horses: upstream's driver and provider with running pods, then ours, then theirs
//! again. The pods read on, and rotation goes on under each.

use std::path::Path;
use std::process::Command;

use lanyard_cluster::choose_ports;
use libtest_mimic::Failed;
use serde_json::json;

use super::pods::{Pod, Sight, Volume, digests};
use super::{DRIVER, ROTATION, START, Stage, chain};
use crate::classes::Mode;
use crate::daemon::Daemon;
use crate::ground::Holder;
use crate::registrar::Registrar;
use crate::volume::NodePlugin;

const OBJECT: &str = "objectName: {component}\nobjectType: secret\nobjectAlias: credential";
const FILE: &str = "credential";

/// Upstream's node side: driver, provider, and what a sidecar does.
#[derive(Debug)]
struct Upstream {
    driver: Daemon,
    provider: Daemon,
    registrar: Registrar,
}

pub(super) async fn change(stage: &Stage) -> Result<(), Failed> {
    stage.helm.uninstall().map_err(chain)?;
    stage.await_driver(false).await?;
    let upstream = Upstream::start(stage).await?;
    stage.class("horses", Holder::ManagedIdentity, Mode::ManagedIdentity, OBJECT)?;
    let pod = Pod::new(stage, "horses", Volume::of("horses"), &[FILE]);
    pod.run().await?;
    rotates(stage, &pod, "upstream").await?;
    upstream.end(stage).await?;
    let read_by_us = ours(stage, &pod).await;
    stage.helm.uninstall().map_err(chain)?;
    stage.await_driver(false).await?;
    read_by_us?;
    let upstream = Upstream::start(stage).await?;
    let whole = pod.judge_whole(&rotates(stage, &pod, "upstream again").await?);
    pod.delete()?;
    upstream.end(stage).await?;
    // The next trial finds the chart as the last one left it.
    stage.install().await?;
    whole
}

async fn ours(stage: &Stage, pod: &Pod<'_>) -> Result<(), Failed> {
    stage.install().await?;
    rotates(stage, pod, "ours").await?;
    // A pod that comes now stands beside the one that came before.
    let second = Pod::new(stage, "horses-second", Volume::of("horses"), &[FILE]);
    second.run().await?;
    second.delete()
}

async fn rotates(stage: &Stage, pod: &Pod<'_>, who: &str) -> Result<Vec<Sight>, Failed> {
    let before = digests(&pod.sights()?, FILE).len();
    stage.azure.rotate_component().await.map_err(chain)?;
    let newer = |sights: &[Sight]| digests(sights, FILE).len() > before;
    pod.await_sight(&format!("a rotation by {who}"), ROTATION, newer).await
}

impl Upstream {
    async fn start(stage: &Stage) -> Result<Self, Failed> {
        stage.site.kubectl.apply(&csi_driver()).map_err(chain)?;
        let kubelet = stage.site.cluster.layout().kubelet();
        let sockets = kubelet.join("plugins").join("csi-secrets-store");
        for directory in [&sockets, &stage.providers()] {
            std::fs::create_dir_all(directory).map_err(chain)?;
        }
        let provider = provider(stage).await?;
        let socket = sockets.join("csi.sock");
        let driver = driver(stage, &socket).await?;
        let registrar = Registrar::show(&kubelet, DRIVER, &socket).map_err(chain)?;
        stage.await_driver(true).await?;
        Ok(Self { driver, provider, registrar })
    }

    async fn end(self, stage: &Stage) -> Result<(), Failed> {
        drop(self.registrar);
        self.driver.end().await;
        self.provider.end().await;
        stage.site.kubectl.delete(&["csidriver", DRIVER]).map_err(chain)?;
        stage.await_driver(false).await
    }
}

async fn driver(stage: &Stage, socket: &Path) -> Result<Daemon, Failed> {
    let mut command = Command::new(&stage.upstream.0);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.args(["--nodeid=localhost", "--metrics-addr=127.0.0.1:0", "-v=2"]);
    command.arg(format!("--provider-volume={}", stage.providers().display()));
    command.arg(format!("--kubeconfig={}", stage.site.kubectl.kubeconfig().display()));
    command.args(["--enable-secret-rotation=true", "--rotation-poll-interval=5s"]);
    let mut driver =
        Daemon::start("upstream-driver", &mut command, stage.site.directory()).map_err(chain)?;
    let plugin = NodePlugin::at(socket);
    driver.await_until("answering", START, async || plugin.answers().await).await.map_err(chain)?;
    Ok(driver)
}

async fn provider(stage: &Stage) -> Result<Daemon, Failed> {
    let socket = stage.providers().join("azure.sock");
    let mut command = Command::new(&stage.upstream.1);
    command.arg(format!("--endpoint=unix://{}", socket.display()));
    command.envs(stage.azure.environment());
    let [health, metrics] = choose_ports().map_err(chain)?;
    command.arg(format!("--healthz-port={health}"));
    command.arg(format!("--prometheus-port={metrics}"));
    let mut provider =
        Daemon::start("upstream-provider", &mut command, stage.site.directory()).map_err(chain)?;
    provider.await_until("listening", START, async || socket.exists()).await.map_err(chain)?;
    Ok(provider)
}

/// As upstream's static manifest has it.
fn csi_driver() -> serde_json::Value {
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
