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
use lanyard_kubernetes::{ApiError, Patience};
use parking_lot::Mutex;

use self::desired::{Place, desired_pod_status, fingerprint, is_same, leftovers, place};
use super::FIELD_MANAGER;
use super::api::NodeApi;
use super::events::EventQueue;
use super::names::{node_label_value, pod_status_name, pod_status_name_beside};
use crate::metrics::StatusWrite;
use crate::reporter::{Notice, ReportError, Reporter, VolumeReport};

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
    api: NodeApi,
    settings: KubeReporterSettings,
    node_label: String,
    events: EventQueue,
    names: Mutex<HashMap<ObjectName, Arc<Name>>>,
}

/// How pod statuses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KubeReporterSettings {
    /// After how long a status that was not written meanwhile is read again, in case somebody
    /// else removed or changed it.
    pub read_again_after: Duration,
}

impl Default for KubeReporterSettings {
    fn default() -> Self {
        Self { read_again_after: Duration::from_hours(1) }
    }
}

/// A namespace and a name.
type ObjectName = (String, String);

/// The volumes that share a plain name: at most one of them is being written.
#[derive(Default)]
struct Name {
    settled: tokio::sync::Mutex<BTreeMap<PathBuf, Settled>>,
    /// Those that went away while one was being written.
    gone: Mutex<Vec<PathBuf>>,
}

impl Name {
    /// Forgets a volume, at once or as soon as nobody is writing.
    fn forget(&self, target: &Path) {
        self.gone.lock().push(target.to_owned());
        if let Ok(mut settled) = self.settled.try_lock() {
            self.sweep(&mut settled);
        }
    }

    fn sweep(&self, settled: &mut BTreeMap<PathBuf, Settled>) {
        for target in self.gone.lock().drain(..) {
            settled.remove(&target);
        }
    }

    fn is_empty(&self) -> bool {
        self.settled.try_lock().is_ok_and(|settled| settled.is_empty())
    }
}

/// What stands in the API about a volume, as far as we know.
struct Settled {
    name: String,
    fingerprint: [u8; 32],
    read_at: Duration,
}

impl KubeReporter {
    /// Reports of the node of this name. Events go through `events`.
    pub fn new(
        api: NodeApi,
        node: &str,
        events: EventQueue,
        settings: KubeReporterSettings,
    ) -> Self {
        let names = Mutex::new(HashMap::new());
        Self { api, settings, node_label: node_label_value(node), events, names }
    }

    async fn settle(
        &self,
        report: &VolumeReport,
        settled: &mut BTreeMap<PathBuf, Settled>,
    ) -> Result<(), ApiError> {
        let now = self.api.clock().monotonic();
        let fingerprint = fingerprint(report);
        // Whoever stops waiting in the middle leaves nobody knowing what stands there.
        let (name, existing) = match settled.remove(&report.target) {
            Some(before) if before.fingerprint == fingerprint => {
                if now.saturating_sub(before.read_at) < self.settings.read_again_after {
                    self.api.count(|metrics| metrics.status_written(StatusWrite::Unchanged));
                    settled.insert(report.target.clone(), before);
                    return Ok(());
                }
                let existing = self.fetch(report, &before.name).await?;
                (before.name, existing)
            }
            // What stands there is what we wrote, and that is something else.
            Some(before) => (before.name, None),
            None => self.find(report).await?,
        };
        let desired = desired_pod_status(report, &name, &self.node_label);
        let result = if existing.is_some_and(|existing| is_same(&existing, &desired)) {
            StatusWrite::Unchanged
        } else {
            self.apply(&desired).await?;
            StatusWrite::Written
        };
        self.api.count(|metrics| metrics.status_written(result));
        let entry = Settled { name, fingerprint, read_at: now };
        settled.insert(report.target.clone(), entry);
        Ok(())
    }

    /// The name for a volume that this process sees first, and what stands there.
    async fn find(
        &self,
        report: &VolumeReport,
    ) -> Result<(String, Option<SecretProviderClassPodStatus>), ApiError> {
        let name = pod_status_name(&report.pod, &report.class_name);
        let existing = self.fetch(report, &name).await?;
        if place(existing.as_ref(), report) == Place::Plain {
            return Ok((name, existing));
        }
        let name = pod_status_name_beside(&report.pod, &report.class_name, &report.target);
        let existing = self.fetch(report, &name).await?;
        Ok((name, existing))
    }

    fn statuses(&self, namespace: &str) -> Api<SecretProviderClassPodStatus> {
        Api::namespaced(self.api.client().clone(), namespace)
    }

    async fn fetch(
        &self,
        report: &VolumeReport,
        name: &str,
    ) -> Result<Option<SecretProviderClassPodStatus>, ApiError> {
        let namespace = &report.pod.namespace;
        let statuses = self.statuses(namespace);
        let action = format!("read SecretProviderClassPodStatus {namespace}/{name}");
        self.api.find(Patience::USUAL, action, || statuses.get(name)).await
    }

    async fn apply(&self, desired: &SecretProviderClassPodStatus) -> Result<(), ApiError> {
        let namespace = desired.metadata.namespace.as_deref().unwrap_or_default();
        let name = desired.metadata.name.as_deref().unwrap_or_default();
        let statuses = self.statuses(namespace);
        let action = format!("apply SecretProviderClassPodStatus {namespace}/{name}");
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(desired);
        let apply = || statuses.patch(name, &parameters, &patch);
        let applied = self.api.call(Patience::USUAL, action, apply).await?;
        // Applying adds to the owners that others gave: those of a former pod of the same name.
        if let Some(patch) = leftovers(&applied, desired) {
            let action = format!("replace the owners of {namespace}/{name}");
            let parameters = PatchParams::default();
            let patch = Patch::Merge(patch);
            let replace = || statuses.patch(name, &parameters, &patch);
            self.api.call(Patience::USUAL, action, replace).await?;
        }
        Ok(())
    }

    fn name(&self, report: &VolumeReport) -> Arc<Name> {
        let name = pod_status_name(&report.pod, &report.class_name);
        let key = (report.pod.namespace.clone(), name);
        Arc::clone(self.names.lock().entry(key).or_default())
    }

    /// Forgets names that nobody has or is about to write.
    fn forget_empty(&self) {
        self.names.lock().retain(|_, name| Arc::strong_count(name) > 1 || !name.is_empty());
    }
}

#[async_trait]
impl Reporter for KubeReporter {
    async fn report(&self, report: &VolumeReport) -> Result<(), ReportError> {
        let name = self.name(report);
        let mut settled = name.settled.lock().await;
        let settle = self.settle(report, &mut settled).await;
        name.sweep(&mut settled);
        let is_left = !settled.is_empty();
        drop(settled);
        drop(name);
        if !is_left {
            self.forget_empty();
        }
        settle.map_err(|error| {
            self.api.count(|metrics| metrics.status_written(StatusWrite::Failed));
            ReportError { message: format!("{error}; {}", error.hint()) }
        })
    }

    fn tell(&self, notice: Notice) {
        self.events.tell(notice);
    }

    fn forget(&self, target: &Path) {
        for name in self.names.lock().values() {
            name.forget(target);
        }
        self.forget_empty();
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
    fn a_volume_that_goes_while_its_status_is_written_is_forgotten_after_that() {
        let name = Name::default();
        let mut settled = name.settled.try_lock().unwrap();
        name.forget(Path::new("/t"));
        for target in ["/t", "/other"] {
            let entry =
                Settled { name: "p-n-c".to_owned(), fingerprint: [0; 32], read_at: Duration::ZERO };
            settled.insert(target.into(), entry);
        }
        name.sweep(&mut settled);
        assert_eq!(settled.keys().collect::<Vec<_>>(), [Path::new("/other")]);
        drop(settled);
        name.forget(Path::new("/other"));
        assert!(name.is_empty());
    }
}
