//! The stand-in for the Deployment controller and the kubelet: a pod of each Deployment, on a node
//! of our own, whose volumes are mounted and whose canary runs in this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use lanyard_api::whole_second;
use lanyard_azure::Transport;
use lanyard_canary::{Canary, CanaryMetrics, CanaryParts, PodAnnotation, Telling};
use lanyard_clock::SharedClock;
use lanyard_credential::TokenTransport;
use lanyard_kubelet::{Kubelet, VolumeKey};
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::ReadCanary;
use super::board::Board;
use super::container::{self, Mounts};
use super::node_plugin::ended;

/// What the stand-in works with.
#[derive(Debug, Clone)]
pub(super) struct PodsParts {
    /// The API as the stand-in reaches it.
    pub(super) api: KubernetesApi,
    /// The API as canaries reach it.
    pub(super) canary_api: KubernetesApi,
    pub(super) board: Board,
    pub(super) kubelet: Kubelet,
    /// The kubelet's directory.
    pub(super) directory: PathBuf,
    pub(super) node: String,
    /// The namespace of the control plane.
    pub(super) namespace: String,
    /// The canaries' way to Azure.
    pub(super) transport: Transport,
    /// The canaries' way to Entra.
    pub(super) token_transport: TokenTransport,
    pub(super) read_canary: ReadCanary,
}

/// Makes pods, mounts their volumes and runs their canaries.
#[derive(Debug)]
pub(super) struct Pods {
    parts: PodsParts,
    lives: BTreeMap<String, Life>,
    /// Nothing is made or started before.
    patience: Option<Duration>,
}

/// A pod that is served.
#[derive(Debug)]
struct Life {
    pod: Arc<Pod>,
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
    #[error("Secret `{0}` is not there")]
    NoSecret(String),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("could not write {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Launch(#[from] super::LaunchError),
}

impl Pods {
    pub(super) const fn new(parts: PodsParts) -> Self {
        Self { parts, lives: BTreeMap::new(), patience: None }
    }

    /// Works until the end begins. Then canaries end; volumes are the kubelet's.
    pub(super) async fn run(mut self, end: watch::Receiver<bool>) {
        let clock = SharedClock::clone(self.parts.api.clock());
        let mut changes = self.parts.board.changes();
        let mut end = std::pin::pin!(ended(end));
        loop {
            self.make_pods().await;
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

    /// As the Deployment controller: a pod of the present template of each Deployment.
    async fn make_pods(&mut self) {
        let now = self.parts.api.clock().monotonic();
        if self.patience.is_some_and(|until| until > now) {
            return;
        }
        let pods = self.parts.board.pods();
        for deployment in self.parts.board.deployments() {
            let Some(wanted) = wanted(&deployment) else { continue };
            let ours = pods.iter().filter(|pod| is_of(pod, &deployment));
            let (present, old): (Vec<_>, Vec<_>) =
                ours.partition(|pod| pod.annotations().get(TEMPLATE) == Some(&wanted.template));
            let made = match (present.first(), old.first()) {
                (Some(_), None) => continue,
                (_, Some(old)) if old.metadata.deletion_timestamp.is_some() => continue,
                (_, Some(old)) => self.delete(old, None).await,
                (None, None) => self.make(&deployment, wanted).await,
            };
            if let Err(error) = made {
                tracing::debug!(%error, "a pod is not as it should be");
                self.patience = Some(now.saturating_add(PAUSE));
                return;
            }
        }
        // One whose Deployment is gone goes too, where nobody collects garbage.
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let deployments = self.parts.board.deployments();
            if self.is_on_our_node(pod) && !deployments.iter().any(|it| is_of(pod, it)) {
                drop(self.delete(pod, None).await);
            }
        }
    }

    async fn make(&self, deployment: &Deployment, wanted: Wanted) -> Result<(), ApiError> {
        let name = format!("{}-{}", deployment.name_any(), short_name());
        let pod = wanted.pod(deployment, &name, &self.parts.node);
        let pods = self.pods();
        let parameters =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let create = || pods.create(&parameters, &pod);
        // Its name is never the same, so a try that arrived unheard is made up for by the next look.
        self.parts.api.call(Patience::ONE_TRY, format!("make pod {name}"), create).await?;
        Ok(())
    }

    async fn delete(&self, pod: &Pod, grace: Option<u32>) -> Result<(), ApiError> {
        let name = pod.name_any();
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let parameters = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: grace,
            ..DeleteParams::background()
        };
        let pods = self.pods();
        let delete = || pods.delete(&name, &parameters);
        self.parts.api.find(Patience::ONE_TRY, format!("delete pod {name}"), delete).await?;
        Ok(())
    }

    /// As the kubelet: what is on our node is mounted and started, what goes is ended and unmounted.
    async fn tend(&mut self) {
        let pods = self.parts.board.pods();
        let ours: Vec<_> = pods.into_iter().filter(|pod| self.is_on_our_node(pod)).collect();
        for pod in &ours {
            let uid = pod.uid().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() {
                self.end(&uid);
                if self.is_unmounted(pod) {
                    drop(self.delete(pod, Some(0)).await);
                }
            } else if let Some(life) = self.lives.get_mut(&uid) {
                life.pod = Arc::clone(pod);
            } else {
                self.parts.kubelet.add(container::pod_spec(pod));
                let life = Life { pod: Arc::clone(pod), canary: JoinSet::new(), told: None };
                self.lives.insert(uid, life);
            }
        }
        let is_there = |uid: &String| ours.iter().any(|pod| pod.uid().as_ref() == Some(uid));
        let gone: Vec<_> = self.lives.keys().filter(|uid| !is_there(uid)).cloned().collect();
        for uid in gone {
            self.end(&uid);
        }
        self.start_canaries().await;
    }

    fn end(&mut self, uid: &str) {
        if self.lives.remove(uid).is_some() {
            self.parts.kubelet.delete(uid);
        }
    }

    async fn start_canaries(&mut self) {
        let waiting: Vec<_> = self
            .lives
            .iter()
            .filter(|(_, life)| life.canary.is_empty() && self.is_mounted(&life.pod))
            .map(|(uid, life)| (uid.clone(), Arc::clone(&life.pod)))
            .collect();
        for (uid, pod) in waiting {
            let started = self.prepare(&pod).await;
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

    /// The canary of a pod whose volumes are mounted.
    async fn prepare(&self, pod: &Pod) -> Result<Canary, StartError> {
        let PodsParts { api, canary_api, .. } = &self.parts;
        let container = container::canary_of(pod).ok_or(StartError::NoCanary)?;
        let mounts = Mounts::of(container, &self.places(pod).await?);
        let settings = (self.parts.read_canary)(&container::launch_of(pod, container))?;
        let settings = mounts.translate_settings(settings);
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

    /// Where the volumes of a pod are; those of Secrets are written here.
    async fn places(&self, pod: &Pod) -> Result<BTreeMap<String, PathBuf>, StartError> {
        let uid = pod.uid().unwrap_or_default();
        let mut places = BTreeMap::new();
        for volume in container::volumes(pod) {
            let name = &volume.name;
            if volume.csi.is_some() {
                let key = VolumeKey::new(&uid, name);
                places.insert(name.clone(), self.parts.kubelet.target(&key));
            } else if let Some((secret, names)) = container::secret_files(volume) {
                let place = self.parts.directory.join("pods").join(&uid);
                let place = place.join("volumes").join("kubernetes.io~secret").join(name);
                self.write_secret(secret, &names, &place).await?;
                places.insert(name.clone(), place);
            }
        }
        Ok(places)
    }

    async fn write_secret(
        &self,
        name: &str,
        names: &BTreeMap<String, String>,
        place: &Path,
    ) -> Result<(), StartError> {
        let secrets: Api<Secret> =
            Api::namespaced(self.parts.api.client().clone(), &self.parts.namespace);
        let get = || secrets.get(name);
        let secret = self.parts.api.find(Patience::ONE_TRY, format!("read Secret {name}"), get);
        let secret = secret.await?.ok_or_else(|| StartError::NoSecret(name.to_owned()))?;
        let refused = |path: &Path| {
            let path = path.to_owned();
            move |source| StartError::File { path, source }
        };
        std::fs::create_dir_all(place).map_err(refused(place))?;
        for (key, content) in secret.data.unwrap_or_default() {
            // Without a list of keys every key is a file of its name.
            let file = if names.is_empty() { Some(&key) } else { names.get(&key) };
            if let Some(file) = file {
                let path = place.join(file);
                std::fs::write(&path, &content.0).map_err(refused(&path))?;
            }
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
        let (name, pods) = (pod.name_any(), self.pods());
        let (parameters, patch) = (PatchParams::default(), Patch::Strategic(status));
        let write = || pods.patch_status(&name, &parameters, &patch);
        let action = format!("write the status of pod {name}");
        self.parts.api.call(Patience::USUAL, action, write).await.map(|_pod| ())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.parts.api.client().clone(), &self.parts.namespace)
    }

    fn is_on_our_node(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node == Some(&self.parts.node)
    }

    fn keys(pod: &Pod) -> impl Iterator<Item = VolumeKey> {
        let served = container::pod_spec(pod);
        let uid = served.uid.clone();
        served.volumes.into_iter().map(move |volume| VolumeKey::new(&uid, volume.name))
    }

    fn is_mounted(&self, pod: &Pod) -> bool {
        Self::keys(pod).all(|key| self.parts.kubelet.is_mounted(&key))
    }

    fn is_unmounted(&self, pod: &Pod) -> bool {
        Self::keys(pod).all(|key| !self.parts.kubelet.is_mounted(&key))
    }
}

/// What a Deployment wants.
struct Wanted {
    /// The digest of its template.
    template: String,
}

impl Wanted {
    fn pod(self, deployment: &Deployment, name: &str, node: &str) -> Pod {
        let template = deployment.spec.as_ref().map(|spec| spec.template.clone());
        let template = template.unwrap_or_default();
        let mut pod = Pod {
            metadata: template.metadata.unwrap_or_default(),
            spec: template.spec,
            status: None,
        };
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = deployment.namespace();
        pod.annotations_mut().insert(TEMPLATE.to_owned(), self.template);
        let owner = k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: deployment.name_any(),
            uid: deployment.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        pod.metadata.owner_references = Some(vec![owner]);
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node.to_owned());
        }
        pod
    }
}

/// What a Deployment wants; nothing where it wants no pod or goes. It is paused, so that no other
/// controller makes pods of it.
fn wanted(deployment: &Deployment) -> Option<Wanted> {
    let spec = deployment.spec.as_ref()?;
    let is_for_us = spec.paused == Some(true) && spec.replicas != Some(0);
    if deployment.metadata.deletion_timestamp.is_some() || !is_for_us {
        return None;
    }
    let template = serde_json::to_vec(&spec.template).unwrap_or_default();
    let mut digest = hex::encode(digest(&SHA256, &template));
    digest.truncate(16);
    Some(Wanted { template: digest })
}

/// Whether a pod was made of this Deployment.
fn is_of(pod: &Pod, deployment: &Deployment) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    owners.into_iter().any(|owner| owner.uid == uid)
}

fn short_name() -> String {
    let mut name = Uuid::new_v4().simple().to_string();
    name.truncate(5);
    name
}

const MANAGER: &str = "lanyard-up";
/// Of which template a pod was made.
const TEMPLATE: &str = "lanyard.dev/template";
/// How soon a mount is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a pod could not be made it is tried again.
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(change: impl FnOnce(&mut serde_json::Value)) -> Deployment {
        let mut value = json!({
            "metadata": {"name": "disk", "namespace": "n", "uid": "d"},
            "spec": {
                "paused": true,
                "replicas": 1,
                "selector": {},
                "template": {
                    "metadata": {"labels": {"app": "disk"}},
                    "spec": {"containers": [{"name": "c"}]},
                },
            },
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pod_is_of_its_deployment_and_on_our_node() {
        let deployment = deployment(|_| ());
        let pod = wanted(&deployment).unwrap().pod(&deployment, "disk-1", "node");
        assert!(is_of(&pod, &deployment));
        assert_eq!(pod.labels()["app"], "disk");
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node"));
    }

    #[test]
    fn only_paused_deployments_that_stay_and_want_pods_are_ours() {
        let goes = "2026-11-01T08:00:00Z";
        assert!(wanted(&deployment(|it| it["spec"]["paused"] = json!(false))).is_none());
        assert!(wanted(&deployment(|it| it["spec"]["replicas"] = json!(0))).is_none());
        assert!(
            wanted(&deployment(|it| it["metadata"]["deletionTimestamp"] = json!(goes))).is_none()
        );
    }

    #[test]
    fn another_template_is_another_pod() {
        let one = wanted(&deployment(|_| ())).unwrap().template;
        let changed =
            deployment(|it| it["spec"]["template"]["metadata"]["labels"]["x"] = json!("y"));
        assert_ne!(one, wanted(&changed).unwrap().template);
        assert_eq!(one, wanted(&deployment(|_| ())).unwrap().template);
    }
}
