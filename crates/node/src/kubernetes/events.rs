//! Emits pod events as Kubernetes events in the background.

mod deduplicator;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lanyard_clock::ErrorHint as _;
use lanyard_keyvault::VolumePod;
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use lanyard_vocabulary::OutcomeCode;
use serde_json::json;
use tokio::sync::mpsc;

use self::deduplicator::{EventOccurrences, PodEventDecision, PodEventDeduplicator};
use super::FIELD_MANAGER;
use super::api::NodeKubernetesApi;
use super::digest::sha256_of_texts;
use super::names::event_name;
use crate::reporter::{PodEvent, PodEventKind};

/// Queues pod events and sends them one after the other, in a task of its own.
///
/// Queuing an event never blocks: while the queue is full, events are dropped, counted and logged. A repeated
/// event about the same pod increases the count of the existing event, after an interval and with the latest
/// message, and each pod has a budget of new events.
#[derive(Clone)]
pub struct PodEventQueue {
    queue: mpsc::Sender<PodEvent>,
    dropped_events: Arc<AtomicU64>,
}

impl PodEventQueue {
    /// Starts the task that sends events as the component of a node. The task ends when the last clone of the
    /// queue is dropped.
    pub fn start(api: NodeKubernetesApi, node: &str) -> Self {
        let (queue, pod_events) = mpsc::channel(QUEUE_CAPACITY);
        let dropped_events = Arc::new(AtomicU64::new(0));
        let recorder = PodEventRecorder {
            api,
            node: node.to_owned(),
            deduplicator: PodEventDeduplicator::default(),
            dropped_events: Arc::clone(&dropped_events),
        };
        tokio::spawn(recorder.run(pod_events));
        Self { queue, dropped_events }
    }

    /// Queues an event. Never blocks.
    pub fn enqueue(&self, pod_event: PodEvent) {
        if let Err(error) = self.queue.try_send(pod_event) {
            self.dropped_events.fetch_add(1, Ordering::Relaxed);
            let pod_event = error.into_inner();
            tracing::warn!(pod = %pod_event.pod, kind = ?pod_event.kind, "dropped an event: {}", pod_event.message);
        }
    }

    /// Returns the number of dropped events: the queue was full, the budget of the pod was used up, or the
    /// API rejected them.
    pub fn dropped_events(&self) -> u64 {
        self.dropped_events.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for PodEventQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EventQueue")
            .field("dropped", &self.dropped_events())
            .finish_non_exhaustive()
    }
}

struct PodEventRecorder {
    api: NodeKubernetesApi,
    node: String,
    deduplicator: PodEventDeduplicator,
    dropped_events: Arc<AtomicU64>,
}

impl PodEventRecorder {
    async fn run(mut self, mut pod_events: mpsc::Receiver<PodEvent>) {
        loop {
            tokio::select! {
                pod_event = pod_events.recv() => match pod_event {
                    Some(pod_event) => self.handle_event(&pod_event).await,
                    None => return,
                },
                () = self.sleep_until_due() => {
                    let now = self.api.clock().monotonic();
                    if let Some((pod_event, repeated)) = self.deduplicator.take_due_event(now) {
                        let recorded = self.update_event_count(&pod_event, &repeated).await;
                        self.count_failure(&pod_event, recorded);
                    }
                }
            }
        }
    }

    async fn sleep_until_due(&self) {
        let clock = self.api.clock();
        match self.deduplicator.next_due() {
            Some(due) => clock.sleep(due.saturating_sub(clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    async fn handle_event(&mut self, pod_event: &PodEvent) {
        let (clock, pod) = (self.api.clock(), &pod_event.pod);
        tracing::info!(%pod, kind = ?pod_event.kind, "{}", pod_event.message);
        let recorded = match self.deduplicator.decide(pod_event, clock.monotonic(), clock.now()) {
            PodEventDecision::Create(first) => self.create_event(pod_event, &first).await,
            PodEventDecision::UpdateCount(repeated) => {
                self.update_event_count(pod_event, &repeated).await
            }
            PodEventDecision::Defer => Ok(()),
            PodEventDecision::Drop => {
                self.dropped_events.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        self.count_failure(pod_event, recorded);
    }

    fn count_failure(&self, pod_event: &PodEvent, recorded: Result<(), ApiError>) {
        if let Err(error) = recorded {
            self.dropped_events.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(pod = %pod_event.pod, hint = error.hint().as_deref(), "{error}");
        }
    }

    fn events_api(&self, pod_event: &PodEvent) -> Api<Event> {
        Api::namespaced(self.api.client().clone(), &pod_event.pod.namespace)
    }

    async fn create_event(
        &self,
        pod_event: &PodEvent,
        first: &EventOccurrences,
    ) -> Result<(), ApiError> {
        let event = build_event(pod_event, first, &self.node);
        let events = self.events_api(pod_event);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let create = || events.create(&parameters, &event);
        let action = format!("create an event about {}", pod_event.pod);
        match self.api.call(ApiRetryPolicy::STANDARD, action, create).await {
            // An earlier attempt succeeded after all.
            Err(ApiError::Refused { status: 409, .. }) => Ok(()),
            other => other.map(|_event| ()),
        }
    }

    async fn update_event_count(
        &self,
        pod_event: &PodEvent,
        repeated: &EventOccurrences,
    ) -> Result<(), ApiError> {
        let events = self.events_api(pod_event);
        let name = event_object_name(pod_event, repeated);
        let patch = Patch::Merge(json!({
            "count": repeated.count,
            "lastTimestamp": Time(repeated.last),
            "message": truncated_message(pod_event),
        }));
        let parameters = PatchParams::default();
        let repeat = || events.patch(&name, &parameters, &patch);
        let action = format!("count an event about {} once more", pod_event.pod);
        match self.api.call(ApiRetryPolicy::STANDARD, action, repeat).await {
            // The API server keeps events for one hour.
            Err(error) if error.is_not_found() => self.create_event(pod_event, repeated).await,
            other => other.map(|_event| ()),
        }
    }
}

fn build_event(pod_event: &PodEvent, repeated: &EventOccurrences, node: &str) -> Event {
    let PodEventFields { component, reason } = event_fields(pod_event.kind);
    let pod = &pod_event.pod;
    Event {
        metadata: ObjectMeta {
            name: Some(event_object_name(pod_event, repeated)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: pod_reference(pod),
        type_: Some(if pod_event.kind.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(truncated_message(pod_event)),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: Some(node.to_owned()),
        }),
        count: Some(repeated.count),
        first_timestamp: Some(Time(repeated.first)),
        last_timestamp: Some(Time(repeated.last)),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(node.chars().take(MAX_INSTANCE).collect()),
        ..Event::default()
    }
}

/// The texts of an event, equal to those of the Secrets Store CSI driver (v1.5) where it has the same event.
struct PodEventFields {
    component: &'static str,
    reason: &'static str,
}

fn event_fields(kind: PodEventKind) -> PodEventFields {
    let component = |code| match code {
        OutcomeCode::SecretNotSynced => "csi-secrets-store-controller",
        _ => ROTATION,
    };
    match kind {
        PodEventKind::MountRotationComplete => {
            PodEventFields { component: ROTATION, reason: "MountRotationComplete" }
        }
        PodEventKind::ContentWarning => {
            PodEventFields { component: ROTATION, reason: "ContentWarning" }
        }
        PodEventKind::Failed(code) => {
            PodEventFields { component: component(code), reason: code.name() }
        }
        PodEventKind::Recovered(code) => {
            PodEventFields { component: component(code), reason: "Recovered" }
        }
    }
}

fn event_object_name(pod_event: &PodEvent, repeated: &EventOccurrences) -> String {
    let first = repeated.first.as_nanosecond().to_string();
    let kind = format!("{:?}", pod_event.kind);
    event_name(&pod_event.pod.name, &sha256_of_texts(&[&pod_event.pod.uid, &kind, &first]))
}

fn truncated_message(pod_event: &PodEvent) -> String {
    let message = &pod_event.message;
    if message.len() <= MAX_MESSAGE {
        return message.clone();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - CUT_MARK.len());
    format!("{}{CUT_MARK}", &message[..end])
}

fn pod_reference(pod: &VolumePod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

const ROTATION: &str = "csi-secrets-store-rotation";
const QUEUE_CAPACITY: usize = 256;
/// The limits of the API.
const MAX_MESSAGE: usize = 1024;
const MAX_INSTANCE: usize = 128;
const CUT_MARK: &str = " …";

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn pod_event(kind: PodEventKind, message: &str) -> PodEvent {
        let pod = VolumePod {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            service_account: String::new(),
        };
        PodEvent { pod, kind, message: message.to_owned() }
    }

    fn single_occurrence() -> EventOccurrences {
        EventOccurrences { count: 1, first: Timestamp::UNIX_EPOCH, last: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn events_use_upstream_component_and_reason() {
        let words = |kind: PodEventKind| {
            let text = event_fields(kind);
            (text.component, text.reason, kind.is_warning())
        };
        assert_eq!(
            words(PodEventKind::MountRotationComplete),
            ("csi-secrets-store-rotation", "MountRotationComplete", false)
        );
        assert_eq!(
            words(PodEventKind::ContentWarning),
            ("csi-secrets-store-rotation", "ContentWarning", true)
        );
        assert_eq!(
            words(PodEventKind::Failed(OutcomeCode::SecretNotSynced)),
            ("csi-secrets-store-controller", "FailedToCreateSecret", true)
        );
        assert_eq!(
            words(PodEventKind::Failed(OutcomeCode::VaultThrottled)),
            ("csi-secrets-store-rotation", "VaultThrottled", true)
        );
        assert!(!PodEventKind::Recovered(OutcomeCode::VaultThrottled).is_warning());
    }

    #[test]
    fn an_event_is_about_the_pod_and_comes_from_the_node() {
        let kind = PodEventKind::Failed(OutcomeCode::VaultThrottled);
        let event = build_event(&pod_event(kind, "message"), &single_occurrence(), "node-1");
        assert_eq!(event.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.message.as_deref(), Some("message"));
        assert_eq!(event.source.unwrap().host.as_deref(), Some("node-1"));
        assert!(event.metadata.name.unwrap().starts_with("p-"));
    }

    #[test]
    fn a_message_is_cut_between_letters_to_what_the_api_takes() {
        let kind = PodEventKind::MountRotationComplete;
        let short = truncated_message(&pod_event(kind, &"x".repeat(1024)));
        assert_eq!(short.len(), 1024);
        let long = truncated_message(&pod_event(kind, &"é".repeat(1024)));
        assert!(long.len() <= 1024 && long.ends_with(" …"), "{}", long.len());
    }
}
