//! Notices as events of pods: in the background, few, and never in anybody's way.

mod ledger;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use lanyard_keyvault::Pod;
use lanyard_kubernetes::{ApiError, Patience};
use lanyard_vocabulary::OutcomeCode;
use serde_json::json;
use tokio::sync::mpsc;

use self::ledger::{Decision, EventLedger, Repeated};
use super::FIELD_MANAGER;
use super::api::NodeApi;
use super::digest::digest_of;
use super::names::event_name;
use crate::reporter::{Notice, NoticeKind};

/// Takes notices and makes them events, one after the other, in a task of its own.
///
/// A notice never waits: while the queue is full it is dropped, counted and logged. The same thing
/// said again about the same pod becomes a higher count of the event that is there, after some
/// time and with the words of the last one, and each pod has a budget.
#[derive(Clone)]
pub struct EventQueue {
    queue: mpsc::Sender<Notice>,
    dropped: Arc<AtomicU64>,
}

impl EventQueue {
    /// Begins to make events in the name of a node. The task ends with the last clone of the
    /// queue.
    pub fn start(api: NodeApi, node: &str) -> Self {
        let (queue, notices) = mpsc::channel(QUEUE_LENGTH);
        let dropped = Arc::new(AtomicU64::new(0));
        let recorder = Recorder {
            api,
            node: node.to_owned(),
            ledger: EventLedger::default(),
            dropped: Arc::clone(&dropped),
        };
        tokio::spawn(recorder.run(notices));
        Self { queue, dropped }
    }

    /// Tells the people who look at the pod.
    pub fn tell(&self, notice: Notice) {
        if let Err(error) = self.queue.try_send(notice) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let notice = error.into_inner();
            tracing::warn!(pod = %notice.pod, kind = ?notice.kind, "an event was dropped: {}", notice.message);
        }
    }

    /// How many notices became no event: the queue or the pod's budget was full, or the API did
    /// not take them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EventQueue")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

struct Recorder {
    api: NodeApi,
    node: String,
    ledger: EventLedger,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    async fn run(mut self, mut notices: mpsc::Receiver<Notice>) {
        loop {
            tokio::select! {
                notice = notices.recv() => match notice {
                    Some(notice) => self.take(&notice).await,
                    None => return,
                },
                () = self.until_due() => {
                    let now = self.api.clock().monotonic();
                    if let Some((notice, repeated)) = self.ledger.take_due(now) {
                        let recorded = self.repeat(&notice, &repeated).await;
                        self.note(&notice, recorded);
                    }
                }
            }
        }
    }

    async fn until_due(&self) {
        let clock = self.api.clock();
        match self.ledger.next_due() {
            Some(due) => clock.sleep(due.saturating_sub(clock.monotonic())).await,
            None => std::future::pending().await,
        }
    }

    async fn take(&mut self, notice: &Notice) {
        let (clock, pod) = (self.api.clock(), &notice.pod);
        tracing::info!(%pod, kind = ?notice.kind, "{}", notice.message);
        let recorded = match self.ledger.decide(notice, clock.monotonic(), clock.now()) {
            Decision::Create(first) => self.create(notice, &first).await,
            Decision::Repeat(repeated) => self.repeat(notice, &repeated).await,
            Decision::Wait => Ok(()),
            Decision::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        self.note(notice, recorded);
    }

    fn note(&self, notice: &Notice, recorded: Result<(), ApiError>) {
        if let Err(error) = recorded {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(pod = %notice.pod, hint = error.hint(), "{error}");
        }
    }

    fn events(&self, notice: &Notice) -> Api<Event> {
        Api::namespaced(self.api.client().clone(), &notice.pod.namespace)
    }

    async fn create(&self, notice: &Notice, first: &Repeated) -> Result<(), ApiError> {
        let event = event_of(notice, first, &self.node);
        let events = self.events(notice);
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let create = || events.create(&parameters, &event);
        let action = format!("create an event about {}", notice.pod);
        match self.api.call(Patience::USUAL, action, create).await {
            // An earlier try arrived after all.
            Err(ApiError::Refused { status: 409, .. }) => Ok(()),
            other => other.map(|_event| ()),
        }
    }

    async fn repeat(&self, notice: &Notice, repeated: &Repeated) -> Result<(), ApiError> {
        let events = self.events(notice);
        let name = name_of(notice, repeated);
        let patch = Patch::Merge(json!({
            "count": repeated.count,
            "lastTimestamp": Time(repeated.last),
            "message": message_of(notice),
        }));
        let parameters = PatchParams::default();
        let repeat = || events.patch(&name, &parameters, &patch);
        let action = format!("count an event about {} once more", notice.pod);
        match self.api.call(Patience::USUAL, action, repeat).await {
            // Events live for an hour.
            Err(error) if error.is_absence() => self.create(notice, repeated).await,
            other => other.map(|_event| ()),
        }
    }
}

fn event_of(notice: &Notice, repeated: &Repeated, node: &str) -> Event {
    let NoticeText { component, reason, is_warning } = text_of(notice.kind);
    let pod = &notice.pod;
    Event {
        metadata: ObjectMeta {
            name: Some(name_of(notice, repeated)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: reference(pod),
        type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message_of(notice)),
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
struct NoticeText {
    component: &'static str,
    reason: &'static str,
    is_warning: bool,
}

fn text_of(kind: NoticeKind) -> NoticeText {
    let component = |code| match code {
        OutcomeCode::SecretNotSynced => "csi-secrets-store-controller",
        _ => ROTATION,
    };
    match kind {
        NoticeKind::MountRotationComplete => {
            NoticeText { component: ROTATION, reason: "MountRotationComplete", is_warning: false }
        }
        NoticeKind::Failed(code) => {
            NoticeText { component: component(code), reason: code.name(), is_warning: true }
        }
        NoticeKind::Recovered(code) => {
            NoticeText { component: component(code), reason: "Recovered", is_warning: false }
        }
    }
}

fn name_of(notice: &Notice, repeated: &Repeated) -> String {
    let first = repeated.first.as_nanosecond().to_string();
    let kind = format!("{:?}", notice.kind);
    event_name(&notice.pod.name, &digest_of(&[&notice.pod.uid, &kind, &first]))
}

fn message_of(notice: &Notice) -> String {
    let message = &notice.message;
    if message.len() <= MAX_MESSAGE {
        return message.clone();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE - CUT_MARK.len());
    format!("{}{CUT_MARK}", &message[..end])
}

fn reference(pod: &Pod) -> ObjectReference {
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
const QUEUE_LENGTH: usize = 256;
/// What the API takes.
const MAX_MESSAGE: usize = 1024;
const MAX_INSTANCE: usize = 128;
const CUT_MARK: &str = " …";

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn notice(kind: NoticeKind, message: &str) -> Notice {
        let pod = Pod {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            service_account: String::new(),
        };
        Notice { pod, kind, message: message.to_owned() }
    }

    fn once() -> Repeated {
        Repeated { count: 1, first: Timestamp::UNIX_EPOCH, last: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn events_say_the_words_of_upstream_where_it_has_them() {
        let words = |kind| {
            let text = text_of(kind);
            (text.component, text.reason, text.is_warning)
        };
        assert_eq!(
            words(NoticeKind::MountRotationComplete),
            ("csi-secrets-store-rotation", "MountRotationComplete", false)
        );
        assert_eq!(
            words(NoticeKind::Failed(OutcomeCode::SecretNotSynced)),
            ("csi-secrets-store-controller", "FailedToCreateSecret", true)
        );
        assert_eq!(
            words(NoticeKind::Failed(OutcomeCode::VaultThrottled)),
            ("csi-secrets-store-rotation", "VaultThrottled", true)
        );
        assert!(!text_of(NoticeKind::Recovered(OutcomeCode::VaultThrottled)).is_warning);
    }

    #[test]
    fn an_event_is_about_the_pod_and_comes_from_the_node() {
        let kind = NoticeKind::Failed(OutcomeCode::VaultThrottled);
        let event = event_of(&notice(kind, "told"), &once(), "node-1");
        assert_eq!(event.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.message.as_deref(), Some("told"));
        assert_eq!(event.source.unwrap().host.as_deref(), Some("node-1"));
        assert!(event.metadata.name.unwrap().starts_with("p-"));
    }

    #[test]
    fn a_message_is_cut_between_letters_to_what_the_api_takes() {
        let kind = NoticeKind::MountRotationComplete;
        let short = message_of(&notice(kind, &"x".repeat(1024)));
        assert_eq!(short.len(), 1024);
        let long = message_of(&notice(kind, &"é".repeat(1024)));
        assert!(long.len() <= 1024 && long.ends_with(" …"), "{}", long.len());
    }
}
