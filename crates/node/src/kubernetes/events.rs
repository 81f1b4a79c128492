//! Notices as events of pods: in the background, few, and never in anybody's way.

mod deduplicator;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
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

/// Takes notices and makes them events, one after the other, in a task of its own.
///
/// A notice never waits: while the queue is full it is dropped, counted and logged. The same thing
/// said again about the same pod becomes a higher count of the event that is there, after some
/// time and with the words of the last one, and each pod has a budget.
#[derive(Clone)]
pub struct PodEventQueue {
    queue: mpsc::Sender<PodEvent>,
    dropped_events: Arc<AtomicU64>,
}

impl PodEventQueue {
    /// Begins to make events in the name of a node. The task ends with the last clone of the
    /// queue.
    pub fn start(api: NodeKubernetesApi, node: &str) -> Self {
        let (queue, notices) = mpsc::channel(QUEUE_CAPACITY);
        let dropped_events = Arc::new(AtomicU64::new(0));
        let recorder = PodEventRecorder {
            api,
            node: node.to_owned(),
            deduplicator: PodEventDeduplicator::default(),
            dropped_events: Arc::clone(&dropped_events),
        };
        tokio::spawn(recorder.run(notices));
        Self { queue, dropped_events }
    }

    /// Tells the people who look at the pod.
    pub fn enqueue(&self, notice: PodEvent) {
        if let Err(error) = self.queue.try_send(notice) {
            self.dropped_events.fetch_add(1, Ordering::Relaxed);
            let notice = error.into_inner();
            tracing::warn!(pod = %notice.pod, kind = ?notice.kind, "an event was dropped: {}", notice.message);
        }
    }

    /// How many notices became no event: the queue or the pod's budget was full, or the API did
    /// not take them.
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
    async fn run(mut self, mut notices: mpsc::Receiver<PodEvent>) {
        loop {
            tokio::select! {
                notice = notices.recv() => match notice {
                    Some(notice) => self.handle_event(&notice).await,
                    None => return,
                },
                () = self.sleep_until_due() => {
                    let now = self.api.clock().monotonic();
                    if let Some((notice, repeated)) = self.deduplicator.take_due_event(now) {
                        let recorded = self.update_event_count(&notice, &repeated).await;
                        self.count_failure(&notice, recorded);
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

    async fn handle_event(&mut self, notice: &PodEvent) {
        let (clock, pod) = (self.api.clock(), &notice.pod);
        tracing::info!(%pod, kind = ?notice.kind, "{}", notice.message);
        let recorded = match self.deduplicator.decide(notice, clock.monotonic(), clock.now()) {
            PodEventDecision::Create(first) => self.create_event(notice, &first).await,
            PodEventDecision::UpdateCount(repeated) => {
                self.update_event_count(notice, &repeated).await
            }
            PodEventDecision::Defer => Ok(()),
            PodEventDecision::Drop => {
                self.dropped_events.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        self.count_failure(notice, recorded);
    }

    fn count_failure(&self, notice: &PodEvent, recorded: Result<(), ApiError>) {
        if let Err(error) = recorded {
            self.dropped_events.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(pod = %notice.pod, hint = error.hint(), "{error}");
        }
    }

    fn events_api(&self, notice: &PodEvent) -> Api<Event> {
        Api::namespaced(self.api.client().clone(), &notice.pod.namespace)
    }

    async fn create_event(
        &self,
        notice: &PodEvent,
        first: &EventOccurrences,
    ) -> Result<(), ApiError> {
        let event = build_event(notice, first, &self.node);
        let events = self.events_api(notice);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let create = || events.create(&parameters, &event);
        let action = format!("create an event about {}", notice.pod);
        match self.api.call(ApiRetryPolicy::STANDARD, action, create).await {
            // An earlier try arrived after all.
            Err(ApiError::Refused { status: 409, .. }) => Ok(()),
            other => other.map(|_event| ()),
        }
    }

    async fn update_event_count(
        &self,
        notice: &PodEvent,
        repeated: &EventOccurrences,
    ) -> Result<(), ApiError> {
        let events = self.events_api(notice);
        let name = event_object_name(notice, repeated);
        let patch = Patch::Merge(json!({
            "count": repeated.count,
            "lastTimestamp": Time(repeated.last),
            "message": truncated_message(notice),
        }));
        let parameters = PatchParams::default();
        let repeat = || events.patch(&name, &parameters, &patch);
        let action = format!("count an event about {} once more", notice.pod);
        match self.api.call(ApiRetryPolicy::STANDARD, action, repeat).await {
            // Events live for an hour.
            Err(error) if error.is_not_found() => self.create_event(notice, repeated).await,
            other => other.map(|_event| ()),
        }
    }
}

fn build_event(notice: &PodEvent, repeated: &EventOccurrences, node: &str) -> Event {
    let PodEventFields { component, reason, is_warning } = event_fields(notice.kind);
    let pod = &notice.pod;
    Event {
        metadata: ObjectMeta {
            name: Some(event_object_name(notice, repeated)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: pod_reference(pod),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(truncated_message(notice)),
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

/// The words of a notice, as the Secrets Store CSI driver (v1.5) says them where it has the same.
struct PodEventFields {
    component: &'static str,
    reason: &'static str,
    is_warning: bool,
}

fn event_fields(kind: PodEventKind) -> PodEventFields {
    let component = |code| match code {
        OutcomeCode::SecretNotSynced => "csi-secrets-store-controller",
        _ => ROTATION,
    };
    match kind {
        PodEventKind::MountRotationComplete => PodEventFields {
            component: ROTATION,
            reason: "MountRotationComplete",
            is_warning: false,
        },
        PodEventKind::Failed(code) => {
            PodEventFields { component: component(code), reason: code.name(), is_warning: true }
        }
        PodEventKind::Recovered(code) => {
            PodEventFields { component: component(code), reason: "Recovered", is_warning: false }
        }
    }
}

fn event_object_name(notice: &PodEvent, repeated: &EventOccurrences) -> String {
    let first = repeated.first.as_nanosecond().to_string();
    let kind = format!("{:?}", notice.kind);
    event_name(&notice.pod.name, &sha256_of_texts(&[&notice.pod.uid, &kind, &first]))
}

fn truncated_message(notice: &PodEvent) -> String {
    let message = &notice.message;
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
/// What the API takes.
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
        let words = |kind| {
            let text = event_fields(kind);
            (text.component, text.reason, text.is_warning)
        };
        assert_eq!(
            words(PodEventKind::MountRotationComplete),
            ("csi-secrets-store-rotation", "MountRotationComplete", false)
        );
        assert_eq!(
            words(PodEventKind::Failed(OutcomeCode::SecretNotSynced)),
            ("csi-secrets-store-controller", "FailedToCreateSecret", true)
        );
        assert_eq!(
            words(PodEventKind::Failed(OutcomeCode::VaultThrottled)),
            ("csi-secrets-store-rotation", "VaultThrottled", true)
        );
        assert!(!event_fields(PodEventKind::Recovered(OutcomeCode::VaultThrottled)).is_warning);
    }

    #[test]
    fn an_event_is_about_the_pod_and_comes_from_the_node() {
        let kind = PodEventKind::Failed(OutcomeCode::VaultThrottled);
        let event = build_event(&pod_event(kind, "told"), &single_occurrence(), "node-1");
        assert_eq!(event.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.message.as_deref(), Some("told"));
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
