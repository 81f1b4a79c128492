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
use lanyard_keyvault::Pod;
use lanyard_kubernetes::{Seen, Watch};
use lanyard_vocabulary::{OutcomeCode, causes};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::problem::SyncProblem;
use super::schedule::{Look, Schedule, StatusKey};
use super::secrets::Ensured;
use super::worker::{Done, SyncError, Worker};
use crate::kubernetes::NodeApi;
use crate::kubernetes::{KubeClasses, node_label_value};
use crate::reporter::{Notice, NoticeKind, Reporter};
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
    worker: Arc<Worker>,
    reporter: Arc<dyn Reporter>,
    schedule: Schedule,
    followed: BTreeMap<StatusKey, Followed>,
    problem: SyncProblem,
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
struct Followed {
    status: SecretProviderClassPodStatus,
    /// Whether somebody was told that it does not work.
    told: bool,
    /// Which of its Secrets stand back behind the newer volume of another node, and since when.
    stood_back: BTreeMap<String, Duration>,
}

/// A look that has ended.
type Ended = (Look, SecretProviderClassPodStatus, Result<Done, SyncError>);

impl SecretSync {
    /// The controller of a node. Nothing happens until it runs. What does not work is told to
    /// `reporter`.
    pub fn new(
        api: NodeApi,
        classes: Arc<KubeClasses>,
        reporter: Arc<dyn Reporter>,
        settings: SecretSyncSettings,
    ) -> Self {
        let worker = Arc::new(Worker::new(api, classes, settings));
        Self {
            worker,
            reporter,
            schedule: Schedule::default(),
            followed: BTreeMap::new(),
            problem: SyncProblem::default(),
        }
    }

    /// What keeps it from hearing of pods that start, for who tells how the node is.
    pub fn problem(&self) -> SyncProblem {
        self.problem.clone()
    }

    /// Runs for ever. Dropping the future stops it; what is half done is found and finished by the
    /// next run.
    pub async fn run(mut self) {
        let (api, watch) = (self.worker.api.clone(), self.watch());
        let (tell, mut told) = mpsc::unbounded_channel();
        // Nobody hears it any more only where this ends.
        let take = move |seen| tell.send(seen).unwrap_or_default();
        let mut following = std::pin::pin!(watch.follow(&api, take));
        let mut changes = self.worker.classes.changes();
        let mut listed = None;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < AT_ONCE
                && let Some(look) = self.begin_next()
            {
                running.push(look);
            }
            let has_room = running.len() < AT_ONCE;
            tokio::select! {
                () = &mut following => return,
                Some(seen) = told.recv() => self.take(seen, &mut listed),
                change = changes.recv() => match change {
                    Ok(change) => self.hasten(|status| {
                        let class = status.status.secret_provider_class_name.as_deref();
                        status.metadata.namespace.as_deref() == Some(&change.namespace)
                            && class == Some(&change.name)
                    }),
                    Err(RecvError::Lagged(_)) => self.hasten(|_| true),
                    Err(RecvError::Closed) => return,
                },
                Some((look, status, outcome)) = running.next() => self.end(&look, &status, outcome),
                () = self.until(self.schedule.next_due()), if has_room => {}
            }
        }
    }

    /// The pod statuses of this node.
    fn watch(&self) -> Watch {
        let label = node_label_value(&self.worker.settings.node);
        let selector = format!("{}={label}", SecretProviderClassPodStatus::NODE_NAME);
        let resource = ApiResource::erase::<SecretProviderClassPodStatus>(&());
        Watch { resource, namespace: None, labels: Some(selector), fields: None }
    }

    /// `listed` are those that a list has told until now; nothing where none is under way.
    fn take(&mut self, seen: Seen, listed: &mut Option<BTreeSet<StatusKey>>) {
        match seen {
            Seen::Anew => *listed = Some(BTreeSet::new()),
            Seen::There(object) => {
                if let Some(listed) = listed {
                    listed.extend(key_of(&object.metadata));
                }
                match object.try_parse() {
                    Ok(status) => self.follow(status),
                    Err(error) => tracing::warn!("a pod status cannot be read: {error}"),
                }
            }
            Seen::Gone(object) => {
                if let Some(key) = key_of(&object.metadata) {
                    self.forget(&key);
                }
            }
            Seen::Complete => {
                let listed = listed.take().unwrap_or_default();
                let gone: Vec<_> =
                    self.followed.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in &gone {
                    self.forget(key);
                }
                self.problem.is_over();
            }
            Seen::Broken(error, refusals) => {
                self.problem.broke(error, refusals, self.worker.api.clock().now());
            }
        }
    }

    fn follow(&mut self, mut status: SecretProviderClassPodStatus) {
        let Some(key) = key_of(&status.metadata) else { return };
        // What is told besides changes nothing here.
        status.metadata.managed_fields = None;
        status.metadata.resource_version = None;
        status.metadata.generation = None;
        status.metadata.annotations = None;
        let (told, stood_back) = match self.followed.get_mut(&key) {
            Some(followed) if followed.status == status => return,
            Some(followed) => (followed.told, std::mem::take(&mut followed.stood_back)),
            None => (false, BTreeMap::new()),
        };
        self.followed.insert(key.clone(), Followed { status, told, stood_back });
        self.schedule.hasten(key, self.now());
    }

    fn forget(&mut self, key: &StatusKey) {
        self.followed.remove(key);
        self.schedule.remove(key);
        let followed = &self.followed;
        let secrets = &self.worker.secrets;
        secrets.forget_all_but(|namespace| followed.keys().any(|(it, _)| it == namespace));
    }

    fn hasten(&mut self, which: impl Fn(&SecretProviderClassPodStatus) -> bool) {
        let now = self.now();
        for (key, followed) in &self.followed {
            if which(&followed.status) {
                self.schedule.hasten(key.clone(), now);
            }
        }
    }

    fn now(&self) -> Duration {
        self.worker.api.clock().monotonic()
    }

    /// Ready at that time; never where there is none.
    async fn until(&self, due: Option<Duration>) {
        match due {
            Some(due) => self.worker.api.clock().sleep(due.saturating_sub(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Begins to look at the volume that is due for longest.
    fn begin_next(&mut self) -> Option<BoxFuture<'static, Ended>> {
        let look = self.schedule.begin(self.now())?;
        let status = self.followed.get(&look.key)?.status.clone();
        let worker = Arc::clone(&self.worker);
        Some(Box::pin(async move {
            let outcome = worker.reconcile(&look.key.0, &status).await;
            (look, status, outcome)
        }))
    }

    fn end(
        &mut self,
        look: &Look,
        status: &SecretProviderClassPodStatus,
        outcome: Result<Done, SyncError>,
    ) {
        let (now, chance) = (self.now(), fastrand::f64());
        match outcome {
            Ok(done) => {
                self.schedule.settle(look, now, chance);
                self.settled(&look.key, status, done);
            }
            Err(error) if error.is_no_fault() => {
                tracing::debug!(namespace = %look.key.0, status = %look.key.1, "{error}");
                self.schedule.retry(look, now, chance);
            }
            Err(error) => {
                let failures = self.schedule.retry(look, now, chance);
                // What may pass by itself is nobody's business at once.
                if !error.is_transient() || failures >= WORTH_TELLING {
                    let message = format!("{}; {}", causes(&error), error.hint());
                    self.tell_failure(&look.key, status, message);
                }
            }
        }
    }

    fn settled(&mut self, key: &StatusKey, status: &SecretProviderClassPodStatus, done: Done) {
        let now = self.now();
        let Some(followed) = self.followed.get_mut(key) else { return };
        let Done::Looked { secrets, patience } = done else {
            // A class that wants no Secrets any more has mended nothing.
            followed.told = false;
            followed.stood_back.clear();
            return;
        };
        let before = std::mem::take(&mut followed.stood_back);
        let is_in_step = secrets.iter().all(|(_, ensured)| *ensured == Ensured::InStep);
        let mut messages = Vec::new();
        for (secret, ensured) in secrets {
            match ensured {
                Ensured::InStep => {}
                Ensured::TakenFrom { class } => messages.push(taken_from(&secret, &class)),
                Ensured::StoodBack { written } => {
                    let since = before.get(&secret).copied().unwrap_or(now);
                    let message = stood_back(&secret, written);
                    let (namespace, name) = key;
                    tracing::info!(%namespace, status = %name, "{message}");
                    if now.saturating_sub(since) > patience {
                        messages.push(format!("{message}; see why this volume is not rotated"));
                    }
                    followed.stood_back.insert(secret, since);
                }
            }
        }
        if !messages.is_empty() {
            self.tell_failure(key, status, messages.join("; "));
        } else if is_in_step && std::mem::take(&mut followed.told) {
            let message = "the Secrets of the volume are in step with it again".to_owned();
            self.tell(status, NoticeKind::Recovered(OutcomeCode::SecretNotSynced), message);
        }
    }

    /// Tells it as often as it is found: that becomes one event that lives on.
    fn tell_failure(
        &mut self,
        key: &StatusKey,
        status: &SecretProviderClassPodStatus,
        message: String,
    ) {
        let Some(followed) = self.followed.get_mut(key) else { return };
        followed.told = true;
        self.tell(status, NoticeKind::Failed(OutcomeCode::SecretNotSynced), message);
    }

    fn tell(&self, status: &SecretProviderClassPodStatus, kind: NoticeKind, message: String) {
        let owner = status.metadata.owner_references.iter().flatten().next();
        let pod = Pod {
            namespace: status.metadata.namespace.clone().unwrap_or_default(),
            name: status.status.pod_name.clone().unwrap_or_default(),
            uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            service_account: String::new(),
        };
        self.reporter.tell(Notice { pod, kind, message });
    }
}

fn taken_from(secret: &str, class: &str) -> String {
    format!(
        "Secret `{secret}` was the one of SecretProviderClass `{class}` and says now what this \
         class wants: where both name it they undo each other; give one of them another \
         `secretName`"
    )
}

fn stood_back(secret: &str, written: Timestamp) -> String {
    format!(
        "Secret `{secret}` was written from a newer volume of another node at {written}, and this \
         volume was not confirmed by its source since: the Secret is left as it is"
    )
}

fn key_of(metadata: &ObjectMeta) -> Option<StatusKey> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

/// How many volumes are looked at at once.
const AT_ONCE: usize = 4;
/// After how many tries something that may pass by itself is told.
const WORTH_TELLING: u32 = 3;

#[cfg(test)]
mod tests;
