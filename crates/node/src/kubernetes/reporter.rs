//! Reports as pod statuses, notices as events.

mod desired;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lanyard_api::SecretProviderClassPodStatus;
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
use crate::metrics::StatusWrite;
use crate::reporter::{PodEvent, Reporter, StatusReportError, VolumeReport};

/// Writes a `SecretProviderClassPodStatus` per volume, and events about pods.
///
/// A status is written with server-side apply, and only where the object differs: it is read when
/// this process sees the volume first, and again from time to time, since nothing watches it.
/// What upstream's driver wrote is taken over by force, and can be taken back: upstream replaces
/// the whole object. The pod owns it, so nothing is ever deleted here.
///
/// Two volumes of a pod may name one class, and two pods may come to one name (in the namespace `n`
/// pod `p` with class `q-n-c`, and pod `p-n-q` with class `c`). Upstream lets them overwrite each
/// other. Here the volume that finds the name taken writes beside it, under a name with a digest of
/// its target.
pub struct KubeReporter {
    api: NodeKubernetesApi,
    settings: KubeReporterSettings,
    node_label: String,
    events: PodEventQueue,
    status_names: Mutex<HashMap<NamespacedStatusName, Arc<SharedStatusName>>>,
}

/// How pod statuses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeReporterSettings {
    /// After how long a status that was not written meanwhile is read again, in case somebody
    /// else removed or changed it.
    pub reread_after: Duration,
}

impl Default for KubeReporterSettings {
    fn default() -> Self {
        Self { reread_after: Duration::from_hours(1) }
    }
}

/// A namespace and a name.
type NamespacedStatusName = (String, String);

/// The volumes that share a plain name: at most one of them is being written.
#[derive(Default)]
struct SharedStatusName {
    written: tokio::sync::Mutex<BTreeMap<PathBuf, WrittenPodStatus>>,
    /// Those that went away while one was being written.
    forgotten_targets: Mutex<Vec<PathBuf>>,
}

impl SharedStatusName {
    /// Forgets a volume, at once or as soon as nobody is writing.
    fn forget(&self, target: &Path) {
        self.forgotten_targets.lock().push(target.to_owned());
        if let Ok(mut settled) = self.written.try_lock() {
            self.remove_forgotten(&mut settled);
        }
    }

    fn remove_forgotten(&self, settled: &mut BTreeMap<PathBuf, WrittenPodStatus>) {
        for target in self.forgotten_targets.lock().drain(..) {
            settled.remove(&target);
        }
    }

    fn is_empty(&self) -> bool {
        self.written.try_lock().is_ok_and(|settled| settled.is_empty())
    }
}

/// What stands in the API about a volume, as far as we know.
struct WrittenPodStatus {
    name: String,
    fingerprint: [u8; 32],
    read_at: Duration,
}

impl KubeReporter {
    /// Reports of the node of this name. Events go through `events`.
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
        report: &VolumeReport,
        settled: &mut BTreeMap<PathBuf, WrittenPodStatus>,
    ) -> Result<(), ApiError> {
        let now = self.api.clock().monotonic();
        let fingerprint = report_fingerprint(report);
        // Whoever stops waiting in the middle leaves nobody knowing what stands there.
        let (name, existing) = match settled.remove(&report.target) {
            Some(before) if before.fingerprint == fingerprint => {
                if now.saturating_sub(before.read_at) < self.settings.reread_after {
                    self.api.record_metrics(|metrics| {
                        metrics.record_status_write(StatusWrite::Unchanged)
                    });
                    settled.insert(report.target.clone(), before);
                    return Ok(());
                }
                let existing = self.fetch_status(report, &before.name).await?;
                (before.name, existing)
            }
            // What stands there is what we wrote, and that is something else.
            Some(before) => (before.name, None),
            None => self.choose_name(report).await?,
        };
        let desired = desired_pod_status(report, &name, &self.node_label);
        let result = if existing.is_some_and(|existing| is_up_to_date(&existing, &desired)) {
            StatusWrite::Unchanged
        } else {
            self.apply_status(&desired).await?;
            StatusWrite::Written
        };
        self.api.record_metrics(|metrics| metrics.record_status_write(result));
        let entry = WrittenPodStatus { name, fingerprint, read_at: now };
        settled.insert(report.target.clone(), entry);
        Ok(())
    }

    /// The name for a volume that this process sees first, and what stands there.
    async fn choose_name(
        &self,
        report: &VolumeReport,
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
        report: &VolumeReport,
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
        // Applying adds to the owners that others gave: those of a former pod of the same name.
        if let Some(patch) = owner_cleanup_patch(&applied, desired) {
            let action = format!("replace the owners of {namespace}/{name}");
            let parameters = PatchParams::default();
            let patch = Patch::Merge(patch);
            let replace = || statuses.patch(name, &parameters, &patch);
            self.api.call(ApiRetryPolicy::STANDARD, action, replace).await?;
        }
        Ok(())
    }

    fn shared_name(&self, report: &VolumeReport) -> Arc<SharedStatusName> {
        let name = pod_status_name(&report.pod, &report.class_name);
        let key = (report.pod.namespace.clone(), name);
        Arc::clone(self.status_names.lock().entry(key).or_default())
    }

    /// Forgets names that nobody has or is about to write.
    fn remove_unused_names(&self) {
        self.status_names.lock().retain(|_, name| Arc::strong_count(name) > 1 || !name.is_empty());
    }
}

#[async_trait]
impl Reporter for KubeReporter {
    async fn report_status(&self, report: &VolumeReport) -> Result<(), StatusReportError> {
        let name = self.shared_name(report);
        let mut settled = name.written.lock().await;
        let settle = self.write_status(report, &mut settled).await;
        name.remove_forgotten(&mut settled);
        let is_left = !settled.is_empty();
        drop(settled);
        drop(name);
        if !is_left {
            self.remove_unused_names();
        }
        settle.map_err(|error| {
            self.api.record_metrics(|metrics| metrics.record_status_write(StatusWrite::Failed));
            StatusReportError { message: format!("{error}; {}", error.hint()) }
        })
    }

    fn emit_event(&self, notice: PodEvent) {
        self.events.enqueue(notice);
    }

    fn forget_volume(&self, target: &Path) {
        for name in self.status_names.lock().values() {
            name.forget(target);
        }
        self.remove_unused_names();
    }
}

impl fmt::Debug for KubeReporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KubeReporter")
            .field("node_label", &self.node_label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_forgotten_during_a_write_is_removed_afterwards() {
        let name = SharedStatusName::default();
        let mut settled = name.written.try_lock().unwrap();
        name.forget(Path::new("/t"));
        for target in ["/t", "/other"] {
            let entry = WrittenPodStatus {
                name: "p-n-c".to_owned(),
                fingerprint: [0; 32],
                read_at: Duration::ZERO,
            };
            settled.insert(target.into(), entry);
        }
        name.remove_forgotten(&mut settled);
        assert_eq!(settled.keys().collect::<Vec<_>>(), [Path::new("/other")]);
        drop(settled);
        name.forget(Path::new("/other"));
        assert!(name.is_empty());
    }
}
