//! The controller: what happens when, and who is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::runtime::watcher;
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_keyvault::Pod;
use lanyard_vocabulary::{OutcomeCode, causes};
use tokio::sync::broadcast::error::RecvError;

use super::desired::{SecretProblems, desired_secret, files_of};
use super::mounted::{MountedError, MountedFiles, load_files};
use super::owners::desired_owners;
use super::pod_slice::PodSlice;
use super::schedule::{Schedule, StatusKey};
use super::secrets::{SecretError, Secrets};
use super::selection::{Place, Unfit, select_volume};
use crate::classes::{ClassError, ClassSource};
use crate::kubernetes::call::{ApiError, KubernetesApi, Patience, backoff};
use crate::kubernetes::{EventQueue, KubeClasses, node_label_value};
use crate::reporter::{Notice, NoticeKind};

/// Keeps Secrets in step with the files that are mounted on this node.
///
/// A Secret is applied on the server, so labels, annotations, keys and owners of others stay; it
/// is written only where it says something else. It is not removed here: it goes with the last of
/// its owners.
#[derive(Debug)]
pub struct SecretSync {
    api: KubernetesApi,
    classes: Arc<KubeClasses>,
    events: EventQueue,
    settings: SecretSyncSettings,
    secrets: Secrets,
    schedule: Schedule,
    followed: BTreeMap<StatusKey, Followed>,
}

/// Where the volumes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSyncSettings {
    /// The name of this node.
    pub node: String,
    /// The name of the driver: volumes of others are not read.
    pub driver: String,
    /// The kubelet's directory.
    pub kubelet_directory: PathBuf,
}

/// A pod status of this node.
#[derive(Debug)]
struct Followed {
    status: SecretProviderClassPodStatus,
    /// Whether somebody was told that it does not work.
    told: bool,
}

impl SecretSync {
    /// The controller of a node. Nothing happens until it runs.
    pub fn new(
        api: KubernetesApi,
        classes: Arc<KubeClasses>,
        events: EventQueue,
        settings: SecretSyncSettings,
    ) -> Self {
        let secrets = Secrets::new(api.clone());
        let (schedule, followed) = (Schedule::default(), BTreeMap::new());
        Self { api, classes, events, settings, secrets, schedule, followed }
    }

    /// Runs for ever. Dropping the future stops it; what is half done is found and finished by the
    /// next run.
    pub async fn run(mut self) {
        let statuses = Api::<SecretProviderClassPodStatus>::all(self.api.client().clone());
        let label = node_label_value(&self.settings.node);
        let selector = format!("{}={label}", SecretProviderClassPodStatus::NODE_NAME);
        let config = watcher::Config::default().labels(&selector);
        let mut events = watcher(statuses, config).boxed();
        let mut changes = self.classes.changes();
        let mut seen = BTreeSet::new();
        let mut failures = 0;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        failures = 0;
                        self.take(event, &mut seen);
                    }
                    Some(Err(error)) => {
                        failures += 1;
                        tracing::warn!(%error, "the watch of pod statuses broke");
                        let chance = fastrand::f64();
                        let pause = backoff(failures, FIRST_PAUSE, LONGEST_PAUSE, chance);
                        self.api.clock().sleep(pause).await;
                    }
                    None => return,
                },
                change = changes.recv() => match change {
                    Ok(change) => self.hasten(|status| {
                        let class = status.status.secret_provider_class_name.as_deref();
                        status.metadata.namespace.as_deref() == Some(&change.namespace)
                            && class == Some(&change.name)
                    }),
                    Err(RecvError::Lagged(_)) => self.hasten(|_| true),
                    Err(RecvError::Closed) => return,
                },
                () = self.until_due() => self.look_at_next().await,
            }
        }
    }

    fn take(
        &mut self,
        event: watcher::Event<SecretProviderClassPodStatus>,
        seen: &mut BTreeSet<StatusKey>,
    ) {
        match event {
            watcher::Event::Init => seen.clear(),
            watcher::Event::InitApply(status) => {
                seen.extend(key_of(&status));
                self.follow(status);
            }
            watcher::Event::InitDone => {
                let gone: Vec<_> =
                    self.followed.keys().filter(|key| !seen.contains(key)).cloned().collect();
                for key in &gone {
                    self.forget(key);
                }
            }
            watcher::Event::Apply(status) => self.follow(status),
            watcher::Event::Delete(status) => {
                if let Some(key) = key_of(&status) {
                    self.forget(&key);
                }
            }
        }
    }

    fn follow(&mut self, mut status: SecretProviderClassPodStatus) {
        let Some(key) = key_of(&status) else { return };
        // What is told besides changes nothing here.
        status.metadata.managed_fields = None;
        status.metadata.resource_version = None;
        status.metadata.generation = None;
        status.metadata.annotations = None;
        let told = match self.followed.get(&key) {
            Some(followed) if followed.status == status => return,
            Some(followed) => followed.told,
            None => false,
        };
        self.followed.insert(key.clone(), Followed { status, told });
        self.schedule.hasten(key, self.api.clock().monotonic());
    }

    fn forget(&mut self, key: &StatusKey) {
        self.followed.remove(key);
        self.schedule.remove(key);
        let followed = &self.followed;
        self.secrets.forget_all_but(|namespace| followed.keys().any(|(it, _)| it == namespace));
    }

    fn hasten(&mut self, which: impl Fn(&SecretProviderClassPodStatus) -> bool) {
        let now = self.api.clock().monotonic();
        for (key, followed) in &self.followed {
            if which(&followed.status) {
                self.schedule.hasten(key.clone(), now);
            }
        }
    }

    async fn until_due(&self) {
        let now = self.api.clock().monotonic();
        match self.schedule.next_due() {
            Some(due) => self.api.clock().sleep(due.saturating_sub(now)).await,
            None => std::future::pending().await,
        }
    }

    async fn look_at_next(&mut self) {
        let Some(key) = self.schedule.due(self.api.clock().monotonic()) else { return };
        let Some(followed) = self.followed.get(&key) else { return };
        let status = followed.status.clone();
        let outcome = self.reconcile(&key.0, &status).await;
        let now = self.api.clock().monotonic();
        let chance = fastrand::f64();
        match outcome {
            Ok(()) => {
                self.schedule.settle(&key, now, chance);
                self.tell_recovery(&key, &status);
            }
            Err(error) if error.is_no_fault() => {
                tracing::debug!(namespace = %key.0, status = %key.1, "{error}");
                self.schedule.retry(&key, now, chance);
            }
            Err(error) => {
                let failures = self.schedule.retry(&key, now, chance);
                // What may pass by itself is nobody's business at once.
                if !error.is_transient() || failures >= WORTH_TELLING {
                    self.tell_failure(&key, &status, &error);
                }
            }
        }
    }

    /// Makes every Secret of a volume say what its files say. One that cannot be made keeps none
    /// of the others from it.
    async fn reconcile(
        &mut self,
        namespace: &str,
        status: &SecretProviderClassPodStatus,
    ) -> Result<(), SyncError> {
        let name = status.status.secret_provider_class_name.as_deref().unwrap_or_default();
        let class = self.classes.class(namespace, name).await?;
        if class.spec.secret_objects.is_empty() {
            return Ok(());
        }
        let pod = self.fetch_pod(namespace, status).await?;
        let place =
            Place { kubelet: &self.settings.kubelet_directory, driver: &self.settings.driver };
        let volume = select_volume(status, &pod, place)?;
        let mounted = self.load(volume, &class).await?;
        let owners = desired_owners(&pod, status);
        let mut first = None;
        for object in &class.spec.secret_objects {
            let made = match desired_secret(object, &mounted) {
                Ok(desired) => self.ensure(namespace, &desired, &mounted, &owners).await,
                Err(problems) => Err(SyncError::Problems {
                    secret: object.secret_name.clone().unwrap_or_default(),
                    problems,
                }),
            };
            if let Err(error) = made {
                tracing::warn!(namespace, class = name, hint = error.hint(), "{}", causes(&error));
                first = first.or(Some(error));
            }
        }
        first.map_or(Ok(()), Err)
    }

    async fn ensure(
        &mut self,
        namespace: &str,
        desired: &super::desired::DesiredSecret,
        mounted: &MountedFiles,
        owners: &[OwnerReference],
    ) -> Result<(), SyncError> {
        Ok(self.secrets.ensure(namespace, desired, mounted.since, owners).await?)
    }

    async fn fetch_pod(
        &self,
        namespace: &str,
        status: &SecretProviderClassPodStatus,
    ) -> Result<PodSlice, SyncError> {
        let name = status.status.pod_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(SyncError::NoPod);
        }
        let pods = Api::<PodSlice>::namespaced(self.api.client().clone(), namespace);
        let action = format!("read pod {namespace}/{name}");
        match self.api.call(Patience::USUAL, action, || pods.get(name)).await {
            Ok(pod) => Ok(pod),
            Err(error) if error.is_absence() => Err(SyncError::NoPod),
            Err(error) => Err(SyncError::Pod(error)),
        }
    }

    async fn load(
        &self,
        volume: PathBuf,
        class: &SecretProviderClass,
    ) -> Result<MountedFiles, SyncError> {
        let names: Vec<_> = class.spec.secret_objects.iter().flat_map(files_of).collect();
        let kubelet = self.settings.kubelet_directory.clone();
        let read = tokio::task::spawn_blocking(move || load_files(&kubelet, &volume, &names));
        match read.await {
            Ok(read) => Ok(read?),
            // The runtime ends, and this task with it.
            Err(_ended) => Err(SyncError::NoPod),
        }
    }

    fn tell_failure(
        &mut self,
        key: &StatusKey,
        status: &SecretProviderClassPodStatus,
        error: &SyncError,
    ) {
        let Some(followed) = self.followed.get_mut(key) else { return };
        if std::mem::replace(&mut followed.told, true) {
            return;
        }
        let message = format!("{}; {}", causes(error), error.hint());
        self.tell(status, NoticeKind::Failed(OutcomeCode::SecretNotSynced), message);
    }

    fn tell_recovery(&mut self, key: &StatusKey, status: &SecretProviderClassPodStatus) {
        let Some(followed) = self.followed.get_mut(key) else { return };
        if std::mem::replace(&mut followed.told, false) {
            let message = "the Secrets of the volume are in step with it again".to_owned();
            self.tell(status, NoticeKind::Recovered(OutcomeCode::SecretNotSynced), message);
        }
    }

    fn tell(&self, status: &SecretProviderClassPodStatus, kind: NoticeKind, message: String) {
        let owner = status.metadata.owner_references.iter().flatten().next();
        let pod = Pod {
            namespace: status.metadata.namespace.clone().unwrap_or_default(),
            name: status.status.pod_name.clone().unwrap_or_default(),
            uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            service_account: String::new(),
        };
        self.events.tell(Notice { pod, kind, message });
    }
}

/// The Secrets of a volume are not in step with it.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Class(#[from] ClassError),
    #[error("the pod is gone")]
    NoPod,
    #[error(transparent)]
    Pod(ApiError),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error(transparent)]
    Mounted(#[from] MountedError),
    #[error("could not make Secret `{secret}`: {problems}")]
    Problems { secret: String, problems: SecretProblems },
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl SyncError {
    fn hint(&self) -> &'static str {
        match self {
            Self::Class(error) => error.hint(),
            Self::Pod(error) => error.hint(),
            Self::Mounted(_) => "see whether the volume is mounted and the node has memory",
            Self::Problems { problems, .. } => problems.hint(),
            Self::Secret(error) => error.hint(),
            Self::NoPod | Self::Unfit(_) => "nothing: the pod status goes with its pod",
        }
    }

    /// Whether it only means that there is nothing to do any more, or not yet.
    const fn is_no_fault(&self) -> bool {
        matches!(self, Self::NoPod | Self::Unfit(_))
    }

    const fn is_transient(&self) -> bool {
        match self {
            Self::Class(_) | Self::Mounted(_) | Self::NoPod | Self::Unfit(_) => true,
            Self::Pod(error) | Self::Secret(SecretError::Api(error)) => error.is_transient(),
            Self::Problems { .. } | Self::Secret(SecretError::OtherType { .. }) => false,
        }
    }
}

fn key_of(status: &SecretProviderClassPodStatus) -> Option<StatusKey> {
    Some((status.metadata.namespace.clone()?, status.metadata.name.clone()?))
}

/// After how many tries something that may pass by itself is told.
const WORTH_TELLING: u32 = 3;
const FIRST_PAUSE: std::time::Duration = std::time::Duration::from_millis(500);
const LONGEST_PAUSE: std::time::Duration = std::time::Duration::from_secs(30);
