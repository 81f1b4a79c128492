//! One reconcile of one volume: from its pod status to its Secrets.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use lanyard_api::{SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_clock::ErrorHint;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use lanyard_provider::{ClassError, ClassSource};
use lanyard_vocabulary::format_error_chain;

use super::desired::{InvalidSecretObjectError, desired_secret, referenced_files};
use super::mounted_files::{
    MountedFiles, MountedFilesError, MountedVolumeLocation, load_mounted_files,
};
use super::owners::desired_owners;
use super::partial_pod::PartialPod;
use super::secret_applier::{
    SecretApplier, SecretApplyError, SecretApplyOutcome, SecretSyncSource,
};
use super::settings::SecretSyncSettings;
use super::volume_selection::{DriverVolumesLocation, SelectVolumeError, select_volume};
use crate::kubernetes::KubeClassCache;
use crate::kubernetes::NodeKubernetesApi;

/// Reconciles the Secrets of one volume.
#[derive(Debug)]
pub(super) struct SecretSyncWorker {
    pub(super) api: NodeKubernetesApi,
    pub(super) classes: Arc<KubeClassCache>,
    pub(super) settings: SecretSyncSettings,
    pub(super) secrets: SecretApplier,
}

/// The outcome of a reconcile.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SecretSyncOutcome {
    /// The class has no `secretObjects`.
    NoSecretObjects,
    /// No Secret failed.
    Reconciled {
        /// The outcome of each Secret, by name.
        secrets: Vec<(String, SecretApplyOutcome)>,
        /// How long a Secret may be skipped before this is reported.
        report_skipped_after: Duration,
    },
}

impl SecretSyncWorker {
    pub(super) fn new(
        api: NodeKubernetesApi,
        classes: Arc<KubeClassCache>,
        settings: SecretSyncSettings,
    ) -> Self {
        let secrets = SecretApplier::new(api.clone());
        Self { api, classes, settings, secrets }
    }

    /// Applies every Secret of a volume. A failing Secret does not prevent the others.
    pub(super) async fn reconcile(
        &self,
        namespace: &str,
        status: &SecretProviderClassPodStatus,
    ) -> Result<SecretSyncOutcome, SecretSyncError> {
        let name = status.status.secret_provider_class_name.as_deref().unwrap_or_default();
        let class = self.classes.class(namespace, name).await?;
        if class.spec.secret_objects.is_empty() {
            return Ok(SecretSyncOutcome::NoSecretObjects);
        }
        let pod = self.fetch_pod(namespace, status).await?;
        let location = DriverVolumesLocation {
            kubelet_directory: &self.settings.kubelet_directory,
            driver: &self.settings.driver,
        };
        let volume = select_volume(status, &pod, location)?;
        let mounted = self.load_volume_files(volume, &class).await?;
        let owners = desired_owners(&pod, status);
        let source = SecretSyncSource { namespace, class: name, age: &mounted.age };
        let mut secrets = Vec::new();
        let mut first = None;
        for object in &class.spec.secret_objects {
            let created = match desired_secret(object, &mounted) {
                Ok(desired) => self
                    .secrets
                    .apply_unless_newer(source, &desired, &owners)
                    .await
                    .map_err(SecretSyncError::ApplySecret),
                Err(problems) => Err(SecretSyncError::InvalidSecretObject {
                    secret: object.secret_name.clone().unwrap_or_default(),
                    problems,
                }),
            };
            match created {
                Ok(ensured) => {
                    secrets.push((object.secret_name.clone().unwrap_or_default(), ensured));
                }
                Err(error) => {
                    let hint = error.hint();
                    let hint = hint.as_deref();
                    tracing::warn!(namespace, class = name, hint, "{}", format_error_chain(&error));
                    first = first.or(Some(error));
                }
            }
        }
        let timeout =
            mounted.age.max_read_age.saturating_mul(2).saturating_add(SKIPPED_REPORT_MARGIN);
        first.map_or(
            Ok(SecretSyncOutcome::Reconciled { secrets, report_skipped_after: timeout }),
            Err,
        )
    }

    async fn fetch_pod(
        &self,
        namespace: &str,
        status: &SecretProviderClassPodStatus,
    ) -> Result<PartialPod, SecretSyncError> {
        let name = status.status.pod_name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(SecretSyncError::PodNotFound);
        }
        let pods = Api::<PartialPod>::namespaced(self.api.client().clone(), namespace);
        let action = format!("read pod {namespace}/{name}");
        match self.api.call(ApiRetryPolicy::STANDARD, action, || pods.get(name)).await {
            Ok(pod) => Ok(pod),
            Err(error) if error.is_not_found() => Err(SecretSyncError::PodNotFound),
            Err(error) => Err(SecretSyncError::ReadPod(error)),
        }
    }

    async fn load_volume_files(
        &self,
        volume: PathBuf,
        class: &SecretProviderClass,
    ) -> Result<MountedFiles, SecretSyncError> {
        let names: Vec<_> = class.spec.secret_objects.iter().flat_map(referenced_files).collect();
        let SecretSyncSettings { kubelet_directory, driver, interval, .. } = self.settings.clone();
        let read = tokio::task::spawn_blocking(move || {
            let (kubelet, driver) = (kubelet_directory.as_path(), driver.as_str());
            load_mounted_files(
                MountedVolumeLocation {
                    kubelet_directory: kubelet,
                    volume_path: &volume,
                    driver,
                    default_interval: interval,
                },
                &names,
            )
        });
        match read.await {
            Ok(read) => Ok(read?),
            // The runtime is shutting down, and this task with it.
            Err(_ended) => Err(SecretSyncError::PodNotFound),
        }
    }
}

/// The Secrets of a volume could not be synchronized.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretSyncError {
    #[error(transparent)]
    Class(#[from] ClassError),
    #[error("the pod no longer exists")]
    PodNotFound,
    #[error(transparent)]
    ReadPod(ApiError),
    #[error(transparent)]
    SelectVolume(#[from] SelectVolumeError),
    #[error(transparent)]
    ReadVolume(#[from] MountedFilesError),
    #[error("could not build Secret `{secret}`: {problems}")]
    InvalidSecretObject { secret: String, problems: InvalidSecretObjectError },
    #[error(transparent)]
    ApplySecret(#[from] SecretApplyError),
}

impl SecretSyncError {
    /// Returns whether the error only means that there is nothing to do any more, or nothing to do yet.
    pub(super) const fn is_expected(&self) -> bool {
        matches!(self, Self::PodNotFound | Self::SelectVolume(_))
    }

    pub(super) const fn is_transient(&self) -> bool {
        match self {
            Self::Class(_) | Self::ReadVolume(_) | Self::PodNotFound | Self::SelectVolume(_) => {
                true
            }
            Self::ReadPod(error) | Self::ApplySecret(SecretApplyError::Api(error)) => {
                error.retry_class().is_temporary()
            }
            Self::InvalidSecretObject { .. }
            | Self::ApplySecret(SecretApplyError::TypeMismatch { .. }) => false,
        }
    }
}

impl ErrorHint for SecretSyncError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Class(error) => return error.hint(),
            Self::ReadPod(error) => return error.hint(),
            Self::ReadVolume(MountedFilesError::ChangedDuringRead { .. }) => {
                "no action needed: the volume is read again"
            }
            Self::ReadVolume(_) => {
                "check that the volume is mounted and that the node has free memory"
            }
            Self::InvalidSecretObject { problems, .. } => return problems.hint(),
            Self::ApplySecret(error) => return error.hint(),
            Self::PodNotFound | Self::SelectVolume(_) => {
                "no action needed: the pod status is deleted with its pod"
            }
        }))
    }
}

/// How much longer than two poll intervals a Secret may be skipped: the next reconcile and a margin.
const SKIPPED_REPORT_MARGIN: Duration = Duration::from_mins(10);
