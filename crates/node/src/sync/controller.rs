//! The controller of the Secret synchronization: scheduling, reconciles and reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::api::{ApiResource, ObjectMeta};
use lanyard_api::SecretProviderClassPodStatus;
use lanyard_clock::ErrorHint as _;
use lanyard_keyvault::VolumePod;
use lanyard_kubernetes::{ResourceWatch, WatchUpdate};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::health::SecretSyncHealth;
use super::schedule::{PodStatusKey, SecretSyncAttempt, SecretSyncSchedule};
use super::secret_applier::SecretApplyOutcome;
use super::settings::SecretSyncSettings;
use super::worker::{SecretSyncError, SecretSyncOutcome, SecretSyncWorker};
use crate::kubernetes::NodeKubernetesApi;
use crate::kubernetes::{KubeClassCache, node_label_value};
use crate::reporter::{PodEvent, PodEventKind, Reporter};

/// Synchronizes Secrets with the files that are mounted on this node.
///
/// A Secret is written with server-side apply, so labels, annotations, keys and owners of other field
/// managers stay. It is written only if it differs. The controller never deletes a Secret: garbage collection
/// does, with the last of its owners.
///
/// Several volumes are reconciled concurrently, so that a slow one does not delay the others.
#[derive(Debug)]
pub struct SecretSync {
    worker: Arc<SecretSyncWorker>,
    reporter: Arc<dyn Reporter>,
    schedule: SecretSyncSchedule,
    pod_statuses: BTreeMap<PodStatusKey, WatchedPodStatus>,
    health: SecretSyncHealth,
}

/// A pod status of this node, with the state of its reports.
#[derive(Debug)]
struct WatchedPodStatus {
    status: SecretProviderClassPodStatus,
    /// Whether a failure was reported that has not recovered yet.
    failure_reported: bool,
    /// The skipped Secrets, which another node wrote from newer content, and since when they are skipped.
    skipped_secrets: BTreeMap<String, Duration>,
}

/// A finished reconcile.
type FinishedSecretSync =
    (SecretSyncAttempt, SecretProviderClassPodStatus, Result<SecretSyncOutcome, SecretSyncError>);

impl SecretSync {
    /// Creates the controller of a node. It does nothing until it runs. It reports failures to `reporter`.
    pub fn new(
        api: NodeKubernetesApi,
        classes: Arc<KubeClassCache>,
        reporter: Arc<dyn Reporter>,
        settings: SecretSyncSettings,
    ) -> Self {
        let worker = Arc::new(SecretSyncWorker::new(api, classes, settings));
        Self {
            worker,
            reporter,
            schedule: SecretSyncSchedule::default(),
            pod_statuses: BTreeMap::new(),
            health: SecretSyncHealth::default(),
        }
    }

    /// Returns the health of the pod status watch, for readiness pages and metrics.
    pub fn health(&self) -> SecretSyncHealth {
        self.health.clone()
    }

    /// Runs forever. Dropping the future stops it; the next run completes unfinished work.
    pub async fn run(mut self) {
        let (api, watch) = (self.worker.api.clone(), self.pod_status_watch());
        let (sender, mut updates) = mpsc::unbounded_channel();
        // The receiver is dropped only when this future ends.
        let forward = move |update| sender.send(update).unwrap_or_default();
        let mut following = std::pin::pin!(watch.follow(&api, forward));
        let mut changes = self.worker.classes.changes();
        let mut listed = None;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_CONCURRENT_RECONCILES
                && let Some(attempt) = self.start_next_reconcile()
            {
                running.push(attempt);
            }
            let has_room = running.len() < MAX_CONCURRENT_RECONCILES;
            tokio::select! {
                () = &mut following => return,
                Some(update) = updates.recv() => self.handle_watch_event(update, &mut listed),
                change = changes.recv() => match change {
                    Ok(change) => self.schedule_matching(|status| {
                        let class = status.status.secret_provider_class_name.as_deref();
                        status.metadata.namespace.as_deref() == Some(&change.namespace)
                            && class == Some(&change.name)
                    }),
                    Err(RecvError::Lagged(_)) => self.schedule_matching(|_| true),
                    Err(RecvError::Closed) => return,
                },
                Some((attempt, status, outcome)) = running.next() => self.finish_reconcile(&attempt, &status, outcome),
                () = self.sleep_until(self.schedule.next_due()), if has_room => {}
            }
        }
    }

    /// Returns a watch of the pod statuses of this node.
    fn pod_status_watch(&self) -> ResourceWatch {
        let label = node_label_value(&self.worker.settings.node);
        let selector = format!("{}={label}", SecretProviderClassPodStatus::NODE_NAME_LABEL);
        let resource = ApiResource::erase::<SecretProviderClassPodStatus>(&());
        ResourceWatch { resource, namespace: None, labels: Some(selector), fields: None }
    }

    /// Handles a watch event. `listed` are the statuses received in the list so far; `None` while no list is
    /// in progress.
    fn handle_watch_event(
        &mut self,
        observed: WatchUpdate,
        listed: &mut Option<BTreeSet<PodStatusKey>>,
    ) {
        match observed {
            WatchUpdate::ListStarted => *listed = Some(BTreeSet::new()),
            WatchUpdate::Applied(object) => {
                if let Some(listed) = listed {
                    listed.extend(status_key(&object.metadata));
                }
                match object.try_parse() {
                    Ok(status) => self.track_pod_status(status),
                    Err(error) => tracing::warn!("a pod status cannot be read: {error}"),
                }
            }
            WatchUpdate::Deleted(object) => {
                if let Some(key) = status_key(&object.metadata) {
                    self.forget_pod_status(&key);
                }
            }
            WatchUpdate::ListCompleted => {
                let listed = listed.take().unwrap_or_default();
                let gone: Vec<_> =
                    self.pod_statuses.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in &gone {
                    self.forget_pod_status(key);
                }
                self.health.record_recovery();
            }
            WatchUpdate::Failed(error, refusals) => {
                self.health.record_failure(error, refusals, self.worker.api.clock().now());
            }
        }
    }

    fn track_pod_status(&mut self, mut status: SecretProviderClassPodStatus) {
        let Some(key) = status_key(&status.metadata) else { return };
        // Changes of these two fields do not affect the synchronization.
        status.metadata.managed_fields = None;
        status.metadata.resource_version = None;
        status.metadata.generation = None;
        status.metadata.annotations = None;
        let (failure_reported, skipped_secrets) = match self.pod_statuses.get_mut(&key) {
            Some(tracked) if tracked.status == status => return,
            Some(tracked) => {
                (tracked.failure_reported, std::mem::take(&mut tracked.skipped_secrets))
            }
            None => (false, BTreeMap::new()),
        };
        self.pod_statuses
            .insert(key.clone(), WatchedPodStatus { status, failure_reported, skipped_secrets });
        self.schedule.schedule_now(key, self.now());
    }

    fn forget_pod_status(&mut self, key: &PodStatusKey) {
        self.pod_statuses.remove(key);
        self.schedule.remove(key);
        let tracked = &self.pod_statuses;
        let secrets = &self.worker.secrets;
        secrets.retain_namespaces(|namespace| tracked.keys().any(|(it, _)| it == namespace));
    }

    fn schedule_matching(&mut self, which: impl Fn(&SecretProviderClassPodStatus) -> bool) {
        let now = self.now();
        for (key, tracked) in &self.pod_statuses {
            if which(&tracked.status) {
                self.schedule.schedule_now(key.clone(), now);
            }
        }
    }

    fn now(&self) -> Duration {
        self.worker.api.clock().monotonic()
    }

    /// Sleeps until that time; forever if there is none.
    async fn sleep_until(&self, due: Option<Duration>) {
        match due {
            Some(due) => self.worker.api.clock().sleep(due.saturating_sub(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Starts the reconcile of the volume that has been due the longest.
    fn start_next_reconcile(&mut self) -> Option<BoxFuture<'static, FinishedSecretSync>> {
        let attempt = self.schedule.start_due(self.now())?;
        let status = self.pod_statuses.get(&attempt.key)?.status.clone();
        let worker = Arc::clone(&self.worker);
        Some(Box::pin(async move {
            let outcome = worker.reconcile(&attempt.key.0, &status).await;
            (attempt, status, outcome)
        }))
    }

    fn finish_reconcile(
        &mut self,
        attempt: &SecretSyncAttempt,
        status: &SecretProviderClassPodStatus,
        outcome: Result<SecretSyncOutcome, SecretSyncError>,
    ) {
        let (now, chance) = (self.now(), fastrand::f64());
        match outcome {
            Ok(done) => {
                self.schedule.record_success(attempt, now, chance);
                self.record_outcome(&attempt.key, status, done);
            }
            Err(error) if error.is_expected() => {
                tracing::debug!(namespace = %attempt.key.0, status = %attempt.key.1, "{error}");
                self.schedule.record_failure(attempt, now, chance);
            }
            Err(error) => {
                let failures = self.schedule.record_failure(attempt, now, chance);
                // A transient failure is not reported at once.
                if !error.is_transient() || failures >= FAILURES_BEFORE_REPORT {
                    let hint = error.hint().unwrap_or_default();
                    let message = format!("{}; {hint}", format_error_chain(&error));
                    self.report_failure(&attempt.key, status, message);
                }
            }
        }
    }

    fn record_outcome(
        &mut self,
        key: &PodStatusKey,
        status: &SecretProviderClassPodStatus,
        done: SecretSyncOutcome,
    ) {
        let now = self.now();
        let Some(tracked) = self.pod_statuses.get_mut(key) else { return };
        let SecretSyncOutcome::Reconciled { secrets, report_skipped_after: report_after } = done
        else {
            // Removing `secretObjects` from the class is not a recovery.
            tracked.failure_reported = false;
            tracked.skipped_secrets.clear();
            return;
        };
        let before = std::mem::take(&mut tracked.skipped_secrets);
        let is_in_sync = secrets.iter().all(|(_, ensured)| *ensured == SecretApplyOutcome::InSync);
        let mut messages = Vec::new();
        for (secret, ensured) in secrets {
            match ensured {
                SecretApplyOutcome::InSync => {}
                SecretApplyOutcome::OverwroteClass { class } => {
                    messages.push(overwritten_class_message(&secret, &class));
                }
                SecretApplyOutcome::SkippedOlder { content_since: written } => {
                    let since = before.get(&secret).copied().unwrap_or(now);
                    let message = skipped_older_message(&secret, written);
                    let (namespace, name) = key;
                    tracing::info!(%namespace, status = %name, "{message}");
                    if now.saturating_sub(since) > report_after {
                        messages.push(format!("{message}; check why this volume is not rotated"));
                    }
                    tracked.skipped_secrets.insert(secret, since);
                }
            }
        }
        if !messages.is_empty() {
            self.report_failure(key, status, messages.join("; "));
        } else if is_in_sync && std::mem::take(&mut tracked.failure_reported) {
            let message = "the Secrets of the volume are in sync again".to_owned();
            self.emit_event(status, PodEventKind::Recovered(OutcomeCode::SecretNotSynced), message);
        }
    }

    /// Emits the failure at every occurrence; the recorder folds repetitions into one event.
    fn report_failure(
        &mut self,
        key: &PodStatusKey,
        status: &SecretProviderClassPodStatus,
        message: String,
    ) {
        let Some(tracked) = self.pod_statuses.get_mut(key) else { return };
        tracked.failure_reported = true;
        self.emit_event(status, PodEventKind::Failed(OutcomeCode::SecretNotSynced), message);
    }

    fn emit_event(
        &self,
        status: &SecretProviderClassPodStatus,
        kind: PodEventKind,
        message: String,
    ) {
        let owner = status.metadata.owner_references.iter().flatten().next();
        let pod = VolumePod {
            namespace: status.metadata.namespace.clone().unwrap_or_default(),
            name: status.status.pod_name.clone().unwrap_or_default(),
            uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            service_account: String::new(),
        };
        self.reporter.emit_event(PodEvent { pod, kind, message });
    }
}

fn overwritten_class_message(secret: &str, class: &str) -> String {
    format!(
        "Secret `{secret}` of SecretProviderClass `{class}` was overwritten for this class: while \
         both classes name it, they revert each other; change the `secretName` in one of them"
    )
}

fn skipped_older_message(secret: &str, written: Timestamp) -> String {
    format!(
        "Secret `{secret}` was not written: another node wrote newer content at {written}, and the \
         source has not confirmed the content of this volume since"
    )
}

fn status_key(metadata: &ObjectMeta) -> Option<PodStatusKey> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// The maximum number of concurrent reconciles.
const MAX_CONCURRENT_RECONCILES: usize = 4;
/// The number of attempts before a transient failure is reported.
const FAILURES_BEFORE_REPORT: u32 = 3;

#[cfg(test)]
mod tests;
