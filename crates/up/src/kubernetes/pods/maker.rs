//! As the Deployment controller: a pod of the present template of each Deployment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::PostParams;
use lanyard_clock::SharedClock;
use lanyard_kubernetes::{ApiError, Patience, backoff};
use tokio::sync::watch;

use super::{Marks, PodsParts, is_of};
use crate::kubernetes::ledger::{MADE_BY, RUN};
use crate::kubernetes::node_plugin::ended;

/// Makes pods and deletes them.
pub(super) struct Maker {
    parts: PodsParts,
    tries: BTreeMap<String, Try>,
    /// What is tried now. One call that takes its time keeps no other Deployment waiting.
    pending: FuturesUnordered<BoxFuture<'static, Tried>>,
}

/// What was tried for a Deployment.
#[derive(Debug, Default)]
struct Try {
    is_pending: bool,
    /// How many times in a row it was refused.
    failures: u32,
    /// Nothing more is tried before.
    until: Duration,
}

/// What came of it, with the name of the Deployment.
type Tried = (String, Result<(), ApiError>);

/// What is to be done next for a Deployment.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Make(Box<Pod>),
    Delete(Vec<Arc<Pod>>),
    /// There is a pod of the name, and it is none of this run.
    Taken(String),
}

impl Maker {
    pub(super) fn new(parts: PodsParts) -> Self {
        Self { parts, tries: BTreeMap::new(), pending: FuturesUnordered::new() }
    }

    /// Works until the end begins; then what was sent is waited for.
    pub(super) async fn run(mut self, end: watch::Receiver<bool>) {
        let clock = SharedClock::clone(self.parts.api.clock());
        let mut changes = self.parts.board.changes();
        let mut end = std::pin::pin!(ended(end));
        loop {
            self.begin(clock.monotonic());
            tokio::select! {
                () = &mut end => break,
                Some(tried) = self.pending.next() => self.conclude(tried, clock.monotonic()),
                changed = changes.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
                () = clock.sleep(LOOK_EVERY) => {}
            }
        }
        while self.pending.next().await.is_some() {}
    }

    /// Begins whatever is due.
    fn begin(&mut self, now: Duration) {
        let (pods, deployments) = (self.parts.board.pods(), self.parts.board.deployments());
        let marks = &self.parts.marks;
        let steps = deployments.iter().map(|it| (it.name_any(), step(marks, it, &pods)));
        // One whose Deployment is gone goes too, where nobody collects garbage.
        let orphans = pods.iter().filter(|pod| is_orphan(marks, pod, &deployments)).map(|pod| {
            let step = Step::Delete(vec![Arc::clone(pod)]);
            (format!("orphan {}", pod.name_any()), Some(step))
        });
        for (name, step) in steps.chain(orphans) {
            let latest = self.tries.entry(name.clone()).or_default();
            if latest.is_pending || latest.until > now {
                continue;
            }
            match step {
                // It is as it should be, whatever was said of a try that arrived after all.
                None => self.parts.board.accept(&name),
                Some(Step::Taken(pod)) => {
                    latest.until = now.saturating_add(LONGEST_PAUSE);
                    let why = format!("there is a pod {pod} already, and it is none of this run");
                    self.parts.board.refuse(&name, why);
                }
                Some(step) => {
                    latest.is_pending = true;
                    let parts = self.parts.clone();
                    self.pending.push(async move { (name, parts.take(step).await) }.boxed());
                }
            }
        }
    }

    fn conclude(&mut self, (name, tried): Tried, now: Duration) {
        let latest = self.tries.entry(name.clone()).or_default();
        latest.is_pending = false;
        let Err(error) = tried else {
            // The watch may be behind what was just done.
            *latest = Try { until: now.saturating_add(PAUSE), ..Try::default() };
            self.parts.board.accept(&name);
            return;
        };
        latest.failures = latest.failures.saturating_add(1);
        let pause = backoff(latest.failures, PAUSE, LONGEST_PAUSE, 0.0);
        latest.until = now.saturating_add(error.retry_after().unwrap_or(pause));
        tracing::debug!(%error, "a pod is not as it should be");
        self.parts.board.refuse(&name, error.to_string());
    }
}

impl PodsParts {
    async fn take(self, step: Step) -> Result<(), ApiError> {
        match step {
            Step::Taken(_) => Ok(()),
            Step::Delete(pods) => {
                for pod in pods {
                    self.delete(&pod, None).await?;
                }
                Ok(())
            }
            Step::Make(pod) => {
                let name = pod.name_any();
                let pods = self.pods();
                let manager = Some(MANAGER.to_owned());
                let parameters = PostParams { field_manager: manager, ..PostParams::default() };
                let create = || pods.create(&parameters, &pod);
                let action = format!("make pod {name}");
                match self.api.call(Patience::ONE_TRY, action, create).await {
                    Err(error) if !is_there_already(&error) => Err(error),
                    // The name says of which template it is: the watch is behind, or an earlier
                    // try arrived unheard.
                    _ => Ok(()),
                }
            }
        }
    }
}

fn is_there_already(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { status: 409, reason, .. } if reason == "AlreadyExists")
}

/// What is to be done next for a Deployment, given the pods that are there.
fn step(marks: &Marks, deployment: &Deployment, pods: &[Arc<Pod>]) -> Option<Step> {
    let template = wanted(marks, deployment)?;
    let name = format!("{}-{template}", deployment.name_any());
    let ours = pods.iter().filter(|pod| marks.has_pod(pod) && is_of(pod, deployment));
    let (present, old): (Vec<_>, Vec<_>) =
        ours.partition(|pod| pod.annotations().get(TEMPLATE) == Some(&template));
    if !old.is_empty() {
        let mut stay = old;
        stay.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let stay: Vec<_> = stay.into_iter().map(Arc::clone).collect();
        return (!stay.is_empty()).then_some(Step::Delete(stay));
    }
    if !present.is_empty() {
        return None;
    }
    match pods.iter().find(|pod| pod.name_any() == name) {
        None => Some(Step::Make(Box::new(desired_pod(marks, deployment, name, template)))),
        // One of a Deployment of the same name, which is gone: the pod is on its way out.
        Some(pod) if marks.has_pod(pod) => None,
        Some(_) => Some(Step::Taken(name)),
    }
}

/// Whether a pod of this run is of no Deployment any more, and stays.
fn is_orphan(marks: &Marks, pod: &Pod, deployments: &[Arc<Deployment>]) -> bool {
    marks.has_pod(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && !deployments.iter().any(|it| is_of(pod, it))
}

/// The digest of the template of which a Deployment wants a pod; nothing where it wants none, goes,
/// or is not ours. It is paused, so that no other controller makes pods of it.
fn wanted(marks: &Marks, deployment: &Deployment) -> Option<String> {
    let spec = deployment.spec.as_ref().filter(|_| marks.has_deployment(deployment))?;
    let is_for_us = spec.paused == Some(true) && spec.replicas != Some(0);
    if deployment.metadata.deletion_timestamp.is_some() || !is_for_us {
        return None;
    }
    let template = serde_json::to_vec(&spec.template).unwrap_or_default();
    let mut digest = hex::encode(digest(&SHA256, &template));
    digest.truncate(DIGEST);
    Some(digest)
}

/// The pod of a template.
fn desired_pod(marks: &Marks, deployment: &Deployment, name: String, template: String) -> Pod {
    let told = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod =
        Pod { metadata: told.metadata.unwrap_or_default(), spec: told.spec, status: None };
    pod.metadata.name = Some(name);
    pod.metadata.namespace = deployment.namespace();
    pod.annotations_mut().insert(TEMPLATE.to_owned(), template);
    let labels = [(MADE_BY.0, MADE_BY.1), (RUN, marks.run.as_str())];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pod.labels_mut().extend(labels);
    let owner = OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: deployment.name_any(),
        uid: deployment.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    pod.metadata.owner_references = Some(vec![owner]);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(marks.node.clone());
    }
    pod
}

const MANAGER: &str = "lanyard-up";
/// Of which template a pod was made.
const TEMPLATE: &str = "lanyard.dev/template";
/// How much of the digest of a template tells it from others.
const DIGEST: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a pod could not be made it is tried again, first and at most.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
