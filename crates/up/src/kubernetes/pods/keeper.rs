//! As the kubelet: what is on our node and of this run is mounted and started, what goes is ended and
//! unmounted.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use lanyard_api::whole_second;
use lanyard_canary::{Canary, CanaryMetrics, CanaryParts, PodAnnotation, Telling};
use lanyard_clock::SharedClock;
use lanyard_kubelet::VolumeKey;
use lanyard_kubernetes::{ApiError, Patience};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::PodsParts;
use crate::kubernetes::LaunchError;
use crate::kubernetes::container::{self, Mounts, OutsideMounts};
use crate::kubernetes::node_plugin::ended;
use crate::kubernetes::served::{SecretVolume, ServedPod, UnsafeNames};

/// Mounts the volumes of pods and runs their canaries.
#[derive(Debug)]
pub(super) struct Keeper {
    parts: PodsParts,
    lives: BTreeMap<String, Life>,
}

/// A pod that is served.
#[derive(Debug)]
struct Life {
    pod: Arc<Pod>,
    served: Result<ServedPod, UnsafeNames>,
    /// The canary, once it runs.
    canary: JoinSet<()>,
    /// What was told of why it does not run.
    told: Option<String>,
}

/// Why a container does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("there is no container with a canary")]
    NoCanary,
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Names(#[from] UnsafeNames),
    #[error(transparent)]
    Outside(#[from] OutsideMounts),
    #[error("Secret `{0}` is not there")]
    NoSecret(String),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("could not write {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Keeper {
    pub(super) const fn new(parts: PodsParts) -> Self {
        Self { parts, lives: BTreeMap::new() }
    }

    /// Works until the end begins. Then canaries end; volumes are the kubelet's.
    pub(super) async fn run(mut self, end: watch::Receiver<bool>) {
        let clock = SharedClock::clone(self.parts.api.clock());
        let mut changes = self.parts.board.changes();
        let mut end = std::pin::pin!(ended(end));
        loop {
            self.tend().await;
            tokio::select! {
                () = &mut end => break,
                changed = changes.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
                () = clock.sleep(LOOK_EVERY) => {}
            }
        }
        for uid in self.lives.keys() {
            self.parts.kubelet.delete(uid);
        }
    }

    async fn tend(&mut self) {
        let (pods, deployments) = (self.parts.board.pods(), self.parts.board.deployments());
        let marks = self.parts.marks.clone();
        let mut served = Vec::new();
        for pod in pods.iter().filter(|pod| marks.has_node_of(pod)) {
            let uid = pod.uid().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() {
                // No other kubelet lets go of what is on our node, whoever made it.
                self.end(&uid);
                if self.is_unmounted(pod) {
                    drop(self.parts.delete(pod, Some(0)).await);
                }
            } else if marks.serves(pod, deployments.iter().map(AsRef::as_ref)) {
                self.keep(&uid, pod);
                served.push(uid);
            }
        }
        let gone: Vec<_> = self.lives.keys().filter(|uid| !served.contains(uid)).cloned().collect();
        for uid in gone {
            self.end(&uid);
        }
        self.start_canaries().await;
    }

    fn keep(&mut self, uid: &str, pod: &Arc<Pod>) {
        if let Some(life) = self.lives.get_mut(uid) {
            life.pod = Arc::clone(pod);
            return;
        }
        let served = ServedPod::parse(pod);
        if let Ok(served) = &served {
            self.parts.kubelet.add(served.spec.clone());
        }
        let life = Life { pod: Arc::clone(pod), served, canary: JoinSet::new(), told: None };
        self.lives.insert(uid.to_owned(), life);
    }

    fn end(&mut self, uid: &str) {
        if self.lives.remove(uid).is_some() {
            self.parts.kubelet.delete(uid);
        }
    }

    async fn start_canaries(&mut self) {
        let is_due = |life: &Life| {
            let is_mounted = |served: &ServedPod| {
                let mut keys = keys(served);
                keys.all(|key| self.parts.kubelet.is_mounted(&key))
            };
            life.canary.is_empty() && life.served.as_ref().map_or(true, is_mounted)
        };
        let due = self.lives.iter().filter(|(_, life)| is_due(life));
        let due: Vec<_> = due
            .map(|(uid, life)| (uid.clone(), Arc::clone(&life.pod), life.served.clone()))
            .collect();
        for (uid, pod, served) in due {
            let started = self.prepare(&pod, served).await;
            let Some(life) = self.lives.get_mut(&uid) else { continue };
            let problem = match started {
                Ok(canary) => {
                    life.canary.spawn(canary.run());
                    None
                }
                Err(error) => Some(lanyard_vocabulary::causes(&error)),
            };
            if problem.is_none() || problem != life.told {
                let told = self.tell(&pod, problem.as_deref()).await;
                if let (Ok(()), Some(life)) = (told, self.lives.get_mut(&uid)) {
                    life.told = problem;
                }
            }
        }
    }

    /// The canary of a pod whose volumes are mounted. Nothing is made of what cannot be read.
    async fn prepare(
        &self,
        pod: &Pod,
        served: Result<ServedPod, UnsafeNames>,
    ) -> Result<Canary, StartError> {
        let PodsParts { api, canary_api, .. } = &self.parts;
        let container = container::canary_of(pod).ok_or(StartError::NoCanary)?;
        let settings = (self.parts.read_canary)(&container::launch_of(pod, container))?;
        let mounts = Mounts::of(container, &self.fill(&served?).await?);
        let settings = mounts.translate_settings(settings)?;
        let clock = api.clock();
        let metrics = CanaryMetrics::new(settings.component, SharedClock::clone(clock));
        let teller = PodAnnotation::new(canary_api.clone(), &self.parts.namespace, pod.name_any());
        let telling = Telling::new(Arc::new(teller), SharedClock::clone(clock), metrics.clone());
        let parts = CanaryParts {
            clock: SharedClock::clone(clock),
            transport: self.parts.transport.clone(),
            token_transport: self.parts.token_transport.clone(),
            metrics,
        };
        Ok(Canary::new(settings, parts).telling(telling))
    }

    /// Writes the volumes of Secrets; returns where every volume is.
    async fn fill(&self, served: &ServedPod) -> Result<BTreeMap<String, PathBuf>, StartError> {
        let target = |key: VolumeKey| {
            let target = self.parts.kubelet.target(&key);
            (key.volume, target)
        };
        let mut places: BTreeMap<_, _> = keys(served).map(target).collect();
        let volumes = self.parts.directory.join("pods").join(&served.spec.uid).join("volumes");
        for volume in &served.secrets {
            let place = volumes.join("kubernetes.io~secret").join(&volume.name);
            self.write_secret(volume, &place).await?;
            places.insert(volume.name.clone(), place);
        }
        Ok(places)
    }

    async fn write_secret(&self, volume: &SecretVolume, place: &Path) -> Result<(), StartError> {
        let name = volume.secret.as_str();
        let secrets: Api<Secret> =
            Api::namespaced(self.parts.api.client().clone(), &self.parts.namespace);
        let read = || secrets.get(name);
        let secret = self.parts.api.find(Patience::ONE_TRY, format!("read Secret {name}"), read);
        let secret = secret.await?.ok_or_else(|| StartError::NoSecret(name.to_owned()))?;
        let data = secret.data.unwrap_or_default();
        for (file, content) in volume.parse_files(&data)? {
            let path = place.join(file);
            write_private(&path, content).map_err(|source| StartError::File { path, source })?;
        }
        Ok(())
    }

    /// Says on the API server that the pod runs, or why it does not.
    async fn tell(&self, pod: &Pod, problem: Option<&str>) -> Result<(), ApiError> {
        let container = container::canary_of(pod).map(|it| it.name.clone()).unwrap_or_default();
        let now = whole_second(self.parts.api.clock().now()).to_string();
        let is_ready = problem.is_none();
        let state = match problem {
            None => json!({"running": {"startedAt": now}}),
            Some(message) => {
                json!({"waiting": {"reason": "CreateContainerConfigError", "message": message}})
            }
        };
        let word = if is_ready { "True" } else { "False" };
        let condition =
            |kind: &str| json!({"type": kind, "status": word, "lastTransitionTime": now});
        let conditions = ["ContainersReady", "Ready"].map(condition);
        let status = json!({"status": {
            "phase": if is_ready { "Running" } else { "Pending" },
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [{
                "name": container,
                "image": "in the process of lanyard up",
                "imageID": "",
                "ready": is_ready,
                "started": is_ready,
                "restartCount": 0,
                "state": state,
            }],
        }});
        let (name, pods) = (pod.name_any(), self.parts.pods());
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(status));
        let write = || pods.patch_status(&name, &parameters, &patch);
        let action = format!("write the status of pod {name}");
        self.parts.api.call(Patience::USUAL, action, write).await.map(|_pod| ())
    }

    fn is_unmounted(&self, pod: &Pod) -> bool {
        // Of what was not served nothing was mounted.
        let Ok(served) = ServedPod::parse(pod) else { return true };
        keys(&served).all(|key| !self.parts.kubelet.is_mounted(&key))
    }
}

/// The volumes that the kubelet mounts.
fn keys(served: &ServedPod) -> impl Iterator<Item = VolumeKey> {
    let spec = &served.spec;
    spec.volumes.iter().map(|volume| VolumeKey::new(&spec.uid, &volume.name))
}

/// Writes a file, in directories that are made, for nobody but this user.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file?.write_all(content)
}

/// How soon a mount is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_reads_a_secret_that_was_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("volume/deep/azure.json");
        for content in ["first and longer", "second"] {
            write_private(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&place.path().join("volume")), 0o700);
        assert_eq!(mode(&place.path().join("volume/deep")), 0o700);
    }
}
