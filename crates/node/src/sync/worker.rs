//! One look at one volume: from its pod status to its Secrets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_kubernetes::{ApiError, Patience};
use lanyard_vocabulary::causes;

use super::controller::SecretSyncSettings;
use super::desired::{SecretProblems, desired_secret, files_of};
use super::mounted::{MountedError, MountedFiles, Source, load_files};
use super::owners::desired_owners;
use super::pod_slice::PodSlice;
use super::secrets::{Cause, Ensured, SecretError, Secrets};
use super::selection::{Place, Unfit, select_volume};
use crate::classes::{ClassError, ClassSource};
use crate::kubernetes::KubeClasses;
use crate::kubernetes::NodeApi;

/// What looks at one volume.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) api: NodeApi,
    pub(super) classes: Arc<KubeClasses>,
    pub(super) settings: SecretSyncSettings,
    pub(super) secrets: Secrets,
}

/// What a look at a volume came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Its class wants no Secrets.
    NothingToDo,
    /// None of its Secrets failed.
    Looked {
        /// What became of each, by name.
        secrets: Vec<(String, Ensured)>,
        /// After how long it is strange that one stands back.
        patience: Duration,
    },
}

impl Worker {
    pub(super) fn new(
        api: NodeApi,
        classes: Arc<KubeClasses>,
        settings: SecretSyncSettings,
    ) -> Self {
        let secrets = Secrets::new(api.clone());
        Self { api, classes, settings, secrets }
    }

    /// Makes every Secret of a volume say what its files say. One that cannot be made keeps none
    /// of the others from it.
    pub(super) async fn reconcile(
        &self,
        namespace: &str,
        status: &SecretProviderClassPodStatus,
    ) -> Result<Done, SyncError> {
        let name = status.status.secret_provider_class_name.as_deref().unwrap_or_default();
        let class = self.classes.class(namespace, name).await?;
        if class.spec.secret_objects.is_empty() {
            return Ok(Done::NothingToDo);
        }
        let pod = self.fetch_pod(namespace, status).await?;
        let place =
            Place { kubelet: &self.settings.kubelet_directory, driver: &self.settings.driver };
        let volume = select_volume(status, &pod, place)?;
        let mounted = self.load(volume, &class).await?;
        let owners = desired_owners(&pod, status);
        let cause = Cause { namespace, class: name, age: &mounted.age };
        let mut secrets = Vec::new();
        let mut first = None;
        for object in &class.spec.secret_objects {
            let made = match desired_secret(object, &mounted) {
                Ok(desired) => {
                    self.secrets.ensure(cause, &desired, &owners).await.map_err(SyncError::Secret)
                }
                Err(problems) => Err(SyncError::Problems {
                    secret: object.secret_name.clone().unwrap_or_default(),
                    problems,
                }),
            };
            match made {
                Ok(ensured) => {
                    secrets.push((object.secret_name.clone().unwrap_or_default(), ensured));
                }
                Err(error) => {
                    let hint = error.hint();
                    tracing::warn!(namespace, class = name, hint, "{}", causes(&error));
                    first = first.or(Some(error));
                }
            }
        }
        let patience = mounted.age.lag.saturating_mul(2).saturating_add(STRANGE_AFTER);
        first.map_or(Ok(Done::Looked { secrets, patience }), Err)
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
        let SecretSyncSettings { kubelet_directory, driver, interval, .. } = self.settings.clone();
        let read = tokio::task::spawn_blocking(move || {
            let (kubelet, driver) = (kubelet_directory.as_path(), driver.as_str());
            load_files(Source { kubelet, volume: &volume, driver, interval }, &names)
        });
        match read.await {
            Ok(read) => Ok(read?),
            // The runtime ends, and this task with it.
            Err(_ended) => Err(SyncError::NoPod),
        }
    }
}

/// The Secrets of a volume are not in step with it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
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
    pub(super) fn hint(&self) -> &'static str {
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
    pub(super) const fn is_no_fault(&self) -> bool {
        matches!(self, Self::NoPod | Self::Unfit(_))
    }

    pub(super) const fn is_transient(&self) -> bool {
        match self {
            Self::Class(_) | Self::Mounted(_) | Self::NoPod | Self::Unfit(_) => true,
            Self::Pod(error) | Self::Secret(SecretError::Api(error)) => error.is_transient(),
            Self::Problems { .. } | Self::Secret(SecretError::OtherType { .. }) => false,
        }
    }
}

/// How much longer than two intervals another node's Secret may be newer: the next look at it, and
/// some time.
const STRANGE_AFTER: Duration = Duration::from_mins(10);
