//! What one case runs: a driver, providers, a class and a volume.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{NAMESPACE, Stage, chain};
use crate::classes::{self, Mode};
use crate::daemon::Daemon;
use crate::ground::Holder;
use crate::peers::{Nook, Rotation, RunningDriver, SharedDirectory};
use crate::program::Inputs;
use crate::volume::{CallError, FileSeen, NodePlugin, Volume};
use crate::waiting::{PATIENCE, pause};

/// The processes of one case, in a place of their own.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    stage: &'a Stage,
    pub(super) nook: Nook,
}

/// What came of a mount: the files, and what the pod status lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    pub(super) files: BTreeMap<String, FileSeen>,
    pub(super) objects: Vec<(String, String)>,
}

impl<'a> Stack<'a> {
    pub(super) fn new(stage: &'a Stage, name: &str) -> Result<Self, Failed> {
        let site = &stage.site;
        let nook = Nook::new(site.directory(), name, site.kubectl.kubeconfig()).map_err(chain)?;
        Ok(Self { stage, nook })
    }

    pub(super) async fn upstream_driver(
        &self,
        program: &Path,
        rotation: Rotation,
    ) -> Result<RunningDriver, Failed> {
        self.nook.upstream_driver(program, rotation).await.map_err(chain)
    }

    /// The same for a version that speaks to the API as a pod does, and in no other way.
    pub(super) async fn upstream_driver_in_pod(
        &self,
        program: &Path,
        rotation: Rotation,
    ) -> Result<(RunningDriver, SharedDirectory), Failed> {
        let pod = self.stage.in_cluster()?;
        self.nook.upstream_driver_in_pod(program, rotation, &pod).await.map_err(chain)
    }

    pub(super) async fn upstream_provider(&self, name: &str) -> Result<Daemon, Failed> {
        let program = &self.stage.programs.azure_provider;
        let environment = self.stage.azure.environment();
        self.nook.upstream_provider(program, name, &environment).await.map_err(chain)
    }

    pub(super) async fn lanyard(&self, rotation: Rotation) -> Result<RunningDriver, Failed> {
        let program = &self.stage.programs.lanyard;
        let environment = self.stage.azure.environment_of_ours();
        self.nook.lanyard(program, rotation, &environment).await.map_err(chain)
    }

    /// Writes a class and returns a volume of it.
    pub(super) fn volume(
        &self,
        name: &str,
        provider: &str,
        holder: Holder,
        objects: &[&str],
    ) -> Result<Volume, Failed> {
        let (mode, inputs) = (mode(holder), self.stage.azure.inputs(holder));
        // A credential of the world that the local Azure can rotate.
        let objects: Vec<String> =
            objects.iter().map(|it| it.replace("{component}", &inputs.secret_name)).collect();
        let class = classes::class(NAMESPACE, name, provider, mode, &inputs, &objects);
        self.stage.site.kubectl.apply(&class).map_err(chain)?;
        let mut volume = Volume::new(&self.nook.kubelet(), NAMESPACE, name, name);
        prove(&mut volume, mode, &inputs)?;
        Ok(volume)
    }

    /// Gives a volume a pod of the node that nobody runs: without it, its pod status would be
    /// collected, and drivers that look for the pod would find none.
    pub(super) fn give_pod(&self, volume: &mut Volume) -> Result<(), Failed> {
        let kubectl = &self.stage.site.kubectl;
        kubectl.apply(&volume.pod_object()).map_err(chain)?;
        let found = kubectl.read(&["pod", &volume.pod, "--namespace", NAMESPACE]).map_err(chain)?;
        let uid = found["metadata"]["uid"].as_str().ok_or("the pod has no id")?;
        uid.clone_into(&mut volume.uid);
        Ok(())
    }

    /// Takes that pod away.
    pub(super) fn take_pod(&self, volume: &Volume) -> Result<(), Failed> {
        let arguments =
            ["pod", &volume.pod, "--namespace", NAMESPACE, "--force", "--grace-period=0"];
        self.stage.site.kubectl.delete(&arguments).map_err(chain)
    }

    /// Publishes a volume and reads what came of it; the volume stays.
    pub(super) async fn mount(
        &self,
        plugin: &NodePlugin,
        volume: &Volume,
    ) -> Result<Mounted, Failed> {
        publish(plugin, volume).await.map_err(chain)?;
        self.seen(volume)
    }

    /// What is in a volume and in its pod status.
    pub(super) fn seen(&self, volume: &Volume) -> Result<Mounted, Failed> {
        let files = volume.files().map_err(chain)?;
        let name = volume.status_name();
        let kubectl = &self.stage.site.kubectl;
        let arguments = ["secretproviderclasspodstatus", &name, "--namespace", NAMESPACE];
        let status = kubectl.read(&arguments).map_err(chain)?;
        Ok(Mounted { files, objects: objects_of(&status) })
    }

    /// Unpublishes a volume, and sees that nothing is left of it.
    pub(super) async fn unmount(&self, plugin: &NodePlugin, volume: &Volume) -> Result<(), Failed> {
        plugin.unpublish(volume).await.map_err(chain)?;
        if volume.target().exists() {
            return Err(format!("{} is still there", volume.target().display()).into());
        }
        Ok(())
    }
}

/// Gives the volume what the kubelet would bring for it.
fn prove(volume: &mut Volume, mode: Mode, inputs: &Inputs) -> Result<(), Failed> {
    match mode {
        Mode::ManagedIdentity => {}
        Mode::ServicePrincipal => {
            volume.secrets = BTreeMap::from([
                ("clientid".to_owned(), inputs.client.clone()),
                ("clientsecret".to_owned(), inputs.client_secret.clone()),
            ]);
        }
        Mode::WorkloadIdentity | Mode::IdentityBinding => {
            let token = std::fs::read_to_string(&inputs.token_file).map_err(chain)?;
            volume.tokens = Some(json!({
                "api://AzureADTokenExchange": {
                    "token": token, "expirationTimestamp": "2100-01-01T00:00:00Z",
                },
            }));
        }
    }
    Ok(())
}

fn objects_of(status: &Value) -> Vec<(String, String)> {
    let text =
        |object: &Value, field: &str| object[field].as_str().map(str::to_owned).unwrap_or_default();
    let objects = status["status"]["objects"].as_array().cloned().unwrap_or_default();
    objects.iter().map(|object| (text(object, "id"), text(object, "version"))).collect()
}

const fn mode(holder: Holder) -> Mode {
    match holder {
        Holder::Secret => Mode::ServicePrincipal,
        Holder::ManagedIdentity => Mode::ManagedIdentity,
        // The guest with a certificate signs in by no mode of a volume.
        Holder::Federated | Holder::Certificate => Mode::WorkloadIdentity,
    }
}

/// Publishes a volume. Upstream's driver reads classes from a watch and refuses a class that it does not
/// know yet; then the call is repeated, as the kubelet repeats it.
pub(super) async fn publish(plugin: &NodePlugin, volume: &Volume) -> Result<(), CallError> {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    loop {
        match plugin.publish(volume).await {
            Err(error) if is_unknown_class(&error) && clock.monotonic() < deadline => {
                pause(RETRY_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

/// Whether a driver answered that the SecretProviderClass does not exist.
pub(super) fn is_unknown_class(error: &CallError) -> bool {
    let message = error.status.message();
    message.contains("failed to get secretproviderclass") && message.contains("not found")
}

const RETRY_INTERVAL: Duration = Duration::from_millis(200);
