//! The controller: what happens when, and who is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::api::{ApiResource, ObjectMeta};
use lanyard_api::SecretProviderClassPodStatus;
use lanyard_keyvault::VolumePod;
use lanyard_kubernetes::{ResourceWatch, WatchUpdate};
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::health::SecretSyncHealth;
use super::schedule::{PodStatusKey, SecretSyncAttempt, SecretSyncSchedule};
use super::secret_applier::SecretApplyOutcome;
use super::worker::{SecretSyncError, SecretSyncOutcome, SecretSyncWorker};
use crate::kubernetes::NodeKubernetesApi;
use crate::kubernetes::{KubeClassCache, node_label_value};
use crate::reporter::{PodEvent, PodEventKind, Reporter};
use crate::rotation::PollInterval;

/// Keeps Secrets in step with the files that are mounted on this node.
///
/// A Secret is applied on the server, so labels, annotations, keys and owners of others stay; it
/// is written only where it says something else. It is not removed here: it goes with the last of
/// its owners.
///
/// A few volumes are looked at at once, so that one that takes long keeps none of the others
/// waiting.
#[derive(Debug)]
pub struct SecretSync {
    worker: Arc<SecretSyncWorker>,
    reporter: Arc<dyn Reporter>,
    schedule: SecretSyncSchedule,
    pod_statuses: BTreeMap<PodStatusKey, WatchedPodStatus>,
    health: SecretSyncHealth,
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
    /// How often volumes are looked at whose class does not say it.
    pub interval: PollInterval,
}

/// A pod status of this node.
#[derive(Debug)]
struct WatchedPodStatus {
    status: SecretProviderClassPodStatus,
    /// Whether somebody was told that it does not work.
    failure_reported: bool,
    /// Which of its Secrets stand back behind the newer volume of another node, and since when.
    skipped_secrets: BTreeMap<String, Duration>,
}

/// A look that has ended.
type FinishedSecretSync =
    (SecretSyncAttempt, SecretProviderClassPodStatus, Result<SecretSyncOutcome, SecretSyncError>);

impl SecretSync {
    /// The controller of a node. Nothing happens until it runs. What does not work is told to
    /// `reporter`.
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

    /// What keeps it from hearing of pods that start, for who tells how the node is.
    pub fn health(&self) -> SecretSyncHealth {
        self.health.clone()
    }

    /// Runs for ever. Dropping the future stops it; what is half done is found and finished by the
    /// next run.
    pub async fn run(mut self) {
        let (api, watch) = (self.worker.api.clone(), self.pod_status_watch());
        let (tell, mut told) = mpsc::unbounded_channel();
        // Nobody hears it any more only where this ends.
        let take = move |seen| tell.send(seen).unwrap_or_default();
        let mut following = std::pin::pin!(watch.follow(&api, take));
        let mut changes = self.worker.classes.changes();
        let mut listed = None;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_CONCURRENT_RECONCILES
                && let Some(look) = self.start_next_reconcile()
            {
                running.push(look);
            }
            let has_room = running.len() < MAX_CONCURRENT_RECONCILES;
            tokio::select! {
                () = &mut following => return,
                Some(seen) = told.recv() => self.handle_watch_event(seen, &mut listed),
                change = changes.recv() => match change {
                    Ok(change) => self.schedule_matching(|status| {
                        let class = status.status.secret_provider_class_name.as_deref();
                        status.metadata.namespace.as_deref() == Some(&change.namespace)
                            && class == Some(&change.name)
                    }),
                    Err(RecvError::Lagged(_)) => self.schedule_matching(|_| true),
                    Err(RecvError::Closed) => return,
                },
                Some((look, status, outcome)) = running.next() => self.finish_reconcile(&look, &status, outcome),
                () = self.sleep_until(self.schedule.next_due()), if has_room => {}
            }
        }
    }

    /// The pod statuses of this node.
    fn pod_status_watch(&self) -> ResourceWatch {
        let label = node_label_value(&self.worker.settings.node);
        let selector = format!("{}={label}", SecretProviderClassPodStatus::NODE_NAME_LABEL);
        let resource = ApiResource::erase::<SecretProviderClassPodStatus>(&());
        ResourceWatch { resource, namespace: None, labels: Some(selector), fields: None }
    }

    /// `listed` are those that a list has told until now; nothing where none is under way.
    fn handle_watch_event(
        &mut self,
        seen: WatchUpdate,
        listed: &mut Option<BTreeSet<PodStatusKey>>,
    ) {
        match seen {
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
        // What is told besides changes nothing here.
        status.metadata.managed_fields = None;
        status.metadata.resource_version = None;
        status.metadata.generation = None;
        status.metadata.annotations = None;
        let (told, stood_back) = match self.pod_statuses.get_mut(&key) {
            Some(followed) if followed.status == status => return,
            Some(followed) => {
                (followed.failure_reported, std::mem::take(&mut followed.skipped_secrets))
            }
            None => (false, BTreeMap::new()),
        };
        self.pod_statuses.insert(
            key.clone(),
            WatchedPodStatus { status, failure_reported: told, skipped_secrets: stood_back },
        );
        self.schedule.schedule_now(key, self.now());
    }

    fn forget_pod_status(&mut self, key: &PodStatusKey) {
        self.pod_statuses.remove(key);
        self.schedule.remove(key);
        let followed = &self.pod_statuses;
        let secrets = &self.worker.secrets;
        secrets.retain_namespaces(|namespace| followed.keys().any(|(it, _)| it == namespace));
    }

    fn schedule_matching(&mut self, which: impl Fn(&SecretProviderClassPodStatus) -> bool) {
        let now = self.now();
        for (key, followed) in &self.pod_statuses {
            if which(&followed.status) {
                self.schedule.schedule_now(key.clone(), now);
            }
        }
    }

    fn now(&self) -> Duration {
        self.worker.api.clock().monotonic()
    }

    /// Ready at that time; never where there is none.
    async fn sleep_until(&self, due: Option<Duration>) {
        match due {
            Some(due) => self.worker.api.clock().sleep(due.saturating_sub(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Begins to look at the volume that is due for longest.
    fn start_next_reconcile(&mut self) -> Option<BoxFuture<'static, FinishedSecretSync>> {
        let look = self.schedule.start_due(self.now())?;
        let status = self.pod_statuses.get(&look.key)?.status.clone();
        let worker = Arc::clone(&self.worker);
        Some(Box::pin(async move {
            let outcome = worker.reconcile(&look.key.0, &status).await;
            (look, status, outcome)
        }))
    }

    fn finish_reconcile(
        &mut self,
        look: &SecretSyncAttempt,
        status: &SecretProviderClassPodStatus,
        outcome: Result<SecretSyncOutcome, SecretSyncError>,
    ) {
        let (now, chance) = (self.now(), fastrand::f64());
        match outcome {
            Ok(done) => {
                self.schedule.record_success(look, now, chance);
                self.record_outcome(&look.key, status, done);
            }
            Err(error) if error.is_expected() => {
                tracing::debug!(namespace = %look.key.0, status = %look.key.1, "{error}");
                self.schedule.record_failure(look, now, chance);
            }
            Err(error) => {
                let failures = self.schedule.record_failure(look, now, chance);
                // What may pass by itself is nobody's business at once.
                if !error.is_transient() || failures >= FAILURES_BEFORE_REPORT {
                    let message = format!("{}; {}", format_error_chain(&error), error.hint());
                    self.report_failure(&look.key, status, message);
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
        let Some(followed) = self.pod_statuses.get_mut(key) else { return };
        let SecretSyncOutcome::Reconciled { secrets, report_skipped_after: patience } = done else {
            // A class that wants no Secrets any more has mended nothing.
            followed.failure_reported = false;
            followed.skipped_secrets.clear();
            return;
        };
        let before = std::mem::take(&mut followed.skipped_secrets);
        let is_in_step = secrets.iter().all(|(_, ensured)| *ensured == SecretApplyOutcome::InSync);
        let mut messages = Vec::new();
        for (secret, ensured) in secrets {
            match ensured {
                SecretApplyOutcome::InSync => {}
                SecretApplyOutcome::OverwroteClass { class } => {
                    messages.push(overwritten_class_message(&secret, &class))
                }
                SecretApplyOutcome::SkippedOlder { content_since: written } => {
                    let since = before.get(&secret).copied().unwrap_or(now);
                    let message = skipped_older_message(&secret, written);
                    let (namespace, name) = key;
                    tracing::info!(%namespace, status = %name, "{message}");
                    if now.saturating_sub(since) > patience {
                        messages.push(format!("{message}; see why this volume is not rotated"));
                    }
                    followed.skipped_secrets.insert(secret, since);
                }
            }
        }
        if !messages.is_empty() {
            self.report_failure(key, status, messages.join("; "));
        } else if is_in_step && std::mem::take(&mut followed.failure_reported) {
            let message = "the Secrets of the volume are in step with it again".to_owned();
            self.emit_event(status, PodEventKind::Recovered(OutcomeCode::SecretNotSynced), message);
        }
    }

    /// Tells it as often as it is found: that becomes one event that lives on.
    fn report_failure(
        &mut self,
        key: &PodStatusKey,
        status: &SecretProviderClassPodStatus,
        message: String,
    ) {
        let Some(followed) = self.pod_statuses.get_mut(key) else { return };
        followed.failure_reported = true;
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
        "Secret `{secret}` was the one of SecretProviderClass `{class}` and says now what this \
         class wants: where both name it they undo each other; give one of them another \
         `secretName`"
    )
}

fn skipped_older_message(secret: &str, written: Timestamp) -> String {
    format!(
        "Secret `{secret}` was written from a newer volume of another node at {written}, and this \
         volume was not confirmed by its source since: the Secret is left as it is"
    )
}

fn status_key(metadata: &ObjectMeta) -> Option<PodStatusKey> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// How many volumes are looked at at once.
const MAX_CONCURRENT_RECONCILES: usize = 4;
/// After how many tries something that may pass by itself is told.
const FAILURES_BEFORE_REPORT: u32 = 3;

#[cfg(test)]
mod tests;
