//! Writes reports as pod statuses, and pod events as Kubernetes events.

mod desired;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::SecretProviderClassPodStatus;
use lanyard_clock::ErrorHint as _;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use parking_lot::Mutex;

use self::desired::{
    PodStatusNameKind, desired_pod_status, is_up_to_date, owner_cleanup_patch, report_fingerprint,
    select_name_kind,
};
use super::FIELD_MANAGER;
use super::api::NodeKubernetesApi;
use super::events::PodEventQueue;
use super::names::{node_label_value, pod_status_name, pod_status_name_with_digest};
use crate::metrics::PodStatusWriteResult;
use crate::reporter::{PodEvent, Reporter, StatusReportError, VolumeStatusUpdate};

/// Writes a `SecretProviderClassPodStatus` per volume, and events about pods.
///
/// A status is written with server-side apply, and only if the object differs: it is read when this process
/// first reports the volume, and again from time to time, because it is not watched. The apply takes
/// ownership of the fields of upstream's driver by force; upstream can take them back, because it replaces
/// the whole object. The pod owns the status, so the reporter never deletes it.
///
/// Two volumes of a pod may use one class, and two pods may share one status name (in the namespace `n`, pod
/// `p` with class `q-n-c` and pod `p-n-q` with class `c`). Upstream lets them overwrite each other. Here, the
/// volume that finds the name in use writes its status under a second name with a digest of its target.
pub struct KubeReporter {
    api: NodeKubernetesApi,
    settings: KubeReporterSettings,
    node_label: String,
    events: PodEventQueue,
    status_names: Mutex<HashMap<NamespacedStatusName, Arc<SharedStatusName>>>,
}

/// Settings of a [`KubeReporter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeReporterSettings {
    /// The age after which an unchanged status is read again, in case another client removed or changed it.
    pub reread_after: Duration,
}

impl Default for KubeReporterSettings {
    fn default() -> Self {
        Self { reread_after: Duration::from_hours(1) }
    }
}

/// A namespace and a name.
type NamespacedStatusName = (String, String);

/// The volumes that share a plain status name. At most one of their statuses is written at a time.
#[derive(Default)]
struct SharedStatusName {
    written: tokio::sync::Mutex<BTreeMap<PathBuf, WrittenPodStatus>>,
    /// The targets that were forgotten during a write.
    forgotten_targets: Mutex<Vec<PathBuf>>,
}

impl SharedStatusName {
    /// Removes a volume, immediately or when the running write has finished.
    fn forget(&self, target: &Path) {
        self.forgotten_targets.lock().push(target.to_owned());
        if let Ok(mut written) = self.written.try_lock() {
            self.remove_forgotten(&mut written);
        }
    }

    fn remove_forgotten(&self, written: &mut BTreeMap<PathBuf, WrittenPodStatus>) {
        for target in self.forgotten_targets.lock().drain(..) {
            written.remove(&target);
        }
    }

    fn is_empty(&self) -> bool {
        self.written.try_lock().is_ok_and(|written| written.is_empty())
    }
}

/// The last known pod status of a volume in the API.
struct WrittenPodStatus {
    name: String,
    fingerprint: [u8; 32],
    read_at: Duration,
}

impl KubeReporter {
    /// Creates a reporter for the node `node`. It sends events through `events`.
    pub fn new(
        api: NodeKubernetesApi,
        node: &str,
        events: PodEventQueue,
        settings: KubeReporterSettings,
    ) -> Self {
        let status_names = Mutex::new(HashMap::new());
        Self { api, settings, node_label: node_label_value(node), events, status_names }
    }

    async fn write_status(
        &self,
        report: &VolumeStatusUpdate,
        written: &mut BTreeMap<PathBuf, WrittenPodStatus>,
    ) -> Result<(), ApiError> {
        let now = self.api.clock().monotonic();
        let fingerprint = report_fingerprint(report);
        // A caller that stops waiting leaves the state of the object unknown, so the entry is removed first.
        let (name, existing) = match written.remove(&report.target) {
            Some(before) if before.fingerprint == fingerprint => {
                if now.saturating_sub(before.read_at) < self.settings.reread_after {
                    self.api.record_metrics(|metrics| {
                        metrics.record_status_write(PodStatusWriteResult::Unchanged);
                    });
                    written.insert(report.target.clone(), before);
                    return Ok(());
                }
                let existing = self.fetch_status(report, &before.name).await?;
                (before.name, existing)
            }
            // The object is known to be the last one that this process wrote, and the report differs from it.
            Some(before) => (before.name, None),
            None => self.choose_name(report).await?,
        };
        let desired = desired_pod_status(report, &name, &self.node_label);
        let result = if existing.is_some_and(|existing| is_up_to_date(&existing, &desired)) {
            PodStatusWriteResult::Unchanged
        } else {
            self.apply_status(&desired).await?;
            PodStatusWriteResult::Written
        };
        self.api.record_metrics(|metrics| metrics.record_status_write(result));
        let entry = WrittenPodStatus { name, fingerprint, read_at: now };
        written.insert(report.target.clone(), entry);
        Ok(())
    }

    /// Returns the status name for a volume that this process reports first, and the existing object.
    async fn choose_name(
        &self,
        report: &VolumeStatusUpdate,
    ) -> Result<(String, Option<SecretProviderClassPodStatus>), ApiError> {
        let name = pod_status_name(&report.pod, &report.class_name);
        let existing = self.fetch_status(report, &name).await?;
        if select_name_kind(existing.as_ref(), report) == PodStatusNameKind::Plain {
            return Ok((name, existing));
        }
        let name = pod_status_name_with_digest(&report.pod, &report.class_name, &report.target);
        let existing = self.fetch_status(report, &name).await?;
        Ok((name, existing))
    }

    fn pod_statuses_api(&self, namespace: &str) -> Api<SecretProviderClassPodStatus> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    async fn fetch_status(
        &self,
        report: &VolumeStatusUpdate,
        name: &str,
    ) -> Result<Option<SecretProviderClassPodStatus>, ApiError> {
        let namespace = &report.pod.namespace;
        let statuses = self.pod_statuses_api(namespace);
        let action = format!("read SecretProviderClassPodStatus {namespace}/{name}");
        self.api.call_optional(ApiRetryPolicy::STANDARD, action, || statuses.get(name)).await
    }

    async fn apply_status(&self, desired: &SecretProviderClassPodStatus) -> Result<(), ApiError> {
        let namespace = desired.metadata.namespace.as_deref().unwrap_or_default();
        let name = desired.metadata.name.as_deref().unwrap_or_default();
        let statuses = self.pod_statuses_api(namespace);
        let action = format!("apply SecretProviderClassPodStatus {namespace}/{name}");
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(desired);
        let apply = || statuses.patch(name, &parameters, &patch);
        let applied = self.api.call(ApiRetryPolicy::STANDARD, action, apply).await?;
        // An apply keeps the owners that other clients added, such as a former pod of the same name.
        if let Some(patch) = owner_cleanup_patch(&applied, desired) {
            let action = format!("replace the owners of {namespace}/{name}");
            let parameters = PatchParams::default();
            let patch = Patch::Merge(patch);
            let replace = || statuses.patch(name, &parameters, &patch);
            self.api.call(ApiRetryPolicy::STANDARD, action, replace).await?;
        }
        Ok(())
    }

    fn shared_name(&self, report: &VolumeStatusUpdate) -> Arc<SharedStatusName> {
        let name = pod_status_name(&report.pod, &report.class_name);
        let key = (report.pod.namespace.clone(), name);
        Arc::clone(self.status_names.lock().entry(key).or_default())
    }

    /// Removes names that have no volume and no running write.
    fn remove_unused_names(&self) {
        self.status_names.lock().retain(|_, name| Arc::strong_count(name) > 1 || !name.is_empty());
    }
}

#[async_trait]
impl Reporter for KubeReporter {
    async fn report_status(&self, report: &VolumeStatusUpdate) -> Result<(), StatusReportError> {
        let name = self.shared_name(report);
        let mut written = name.written.lock().await;
        let settle = self.write_status(report, &mut written).await;
        name.remove_forgotten(&mut written);
        let is_left = !written.is_empty();
        drop(written);
        drop(name);
        if !is_left {
            self.remove_unused_names();
        }
        settle.map_err(|error| {
            self.api.record_metrics(|metrics| {
                metrics.record_status_write(PodStatusWriteResult::Failed);
            });
            let hint = error.hint().unwrap_or_default();
            StatusReportError { message: format!("{error}; {hint}") }
        })
    }

    fn emit_event(&self, event: PodEvent) {
        self.events.enqueue(event);
    }

    fn forget_volume(&self, target: &Path) {
        for name in self.status_names.lock().values() {
            name.forget(target);
        }
        self.remove_unused_names();
    }
}

lanyard_vocabulary::debug_fields!(KubeReporter { node_label });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_forgotten_during_a_write_is_removed_afterwards() {
        let name = SharedStatusName::default();
        let mut written = name.written.try_lock().unwrap();
        name.forget(Path::new("/t"));
        for target in ["/t", "/other"] {
            let entry = WrittenPodStatus {
                name: "p-n-c".to_owned(),
                fingerprint: [0; 32],
                read_at: Duration::ZERO,
            };
            written.insert(target.into(), entry);
        }
        name.remove_forgotten(&mut written);
        assert_eq!(written.keys().collect::<Vec<_>>(), [Path::new("/other")]);
        drop(written);
        name.forget(Path::new("/other"));
        assert!(name.is_empty());
    }
}
