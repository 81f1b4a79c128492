//! A Kubernetes API in memory, as far as the operator asks for one, which can be made to misbehave.
//!
//! It is no judge of how an API server answers: `cargo xtask conformance operator` has a real one.
//! It is for what a real one does not do at one's bidding, and for hours that pass in a moment.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api_state::{
    BodyFrame, ReceivedRequest, ResponseBody, State, WatchedObjectChange, failure_status,
    full_body, json_response, location,
};
use crate::request_path::{RequestPath, RequestVerb};

/// The API. Clones share it.
#[derive(Clone)]
pub(crate) struct FakeManagementApi {
    state: Arc<Mutex<State>>,
    clock: ManualClock,
}

/// What is answered instead.
#[derive(Debug, Clone)]
pub(crate) enum InjectedResponse {
    /// A status.
    Status(u16, Value),
    /// A watch that ends at once.
    WatchEnd,
    /// A watch that is told an error at once, and ends.
    WatchError(u16, &'static str),
}

impl InjectedResponse {
    /// A refusal without details.
    pub(crate) fn error_status(code: u16, reason: &str) -> Self {
        Self::Status(code, json!({"reason": reason}))
    }

    /// The refusal of an apply, because another manager holds a field.
    pub(crate) fn field_conflict(manager: &str, field: &str) -> Self {
        let message = format!("conflict with \"{manager}\" using v1");
        let cause = json!({"reason": "FieldManagerConflict", "message": message, "field": field});
        let details = json!({"name": "x", "causes": [cause]});
        Self::Status(409, json!({"reason": "Conflict", "details": details}))
    }
}

impl FakeManagementApi {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self { state: Arc::default(), clock }
    }

    pub(crate) fn api(&self) -> KubernetesApi {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let clock: SharedClock = Arc::new(self.clock.clone());
        KubernetesApi::from_client(Client::new(service, "default"), clock)
    }

    /// From now on some of what is asked is answered otherwise.
    pub(crate) fn inject(
        &self,
        rule: impl Fn(&ReceivedRequest) -> Option<InjectedResponse> + Send + 'static,
    ) {
        self.state.lock().response_rule = Some(Box::new(rule));
    }

    /// All is answered as it should be.
    pub(crate) fn clear_injection(&self) {
        self.state.lock().response_rule = None;
    }

    /// From now on each write takes so long.
    pub(crate) fn delay_writes(&self, each: Duration) {
        self.state.lock().write_delay = Some(each);
    }

    /// The version of now.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// What the objects of a collection came to with each change after a version.
    pub(crate) fn object_changes(&self, collection: &str, after: u64) -> Vec<Value> {
        let state = self.state.lock();
        let of =
            state.history.iter().filter(|it| it.version > after && it.location.0 == collection);
        of.map(|change| change.object.clone()).collect()
    }

    /// How often something like this was asked.
    pub(crate) fn count_requests(&self, is_so: impl Fn(&ReceivedRequest) -> bool) -> usize {
        self.state.lock().requests.iter().filter(|asked| is_so(asked)).count()
    }

    /// What was asked, if it is like this, in words.
    pub(crate) fn describe_requests(
        &self,
        is_so: impl Fn(&ReceivedRequest) -> bool,
    ) -> Vec<String> {
        let state = self.state.lock();
        let told = state.requests.iter().filter(|asked| is_so(asked));
        told.map(|ReceivedRequest { verb, path, .. }| {
            let RequestPath { collection, namespace, name, field_manager: manager, .. } = path;
            let sub = path.subresource.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
            format!("{verb:?} {collection}{sub} {namespace}/{name} as {manager:?}")
        })
        .collect()
    }

    /// Forgets what was asked.
    pub(crate) fn clear_requests(&self) {
        self.state.lock().requests.clear();
    }

    /// An object, by the end of its path.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.state.lock();
        state.objects.get(&location(collection, namespace, name)).cloned()
    }

    /// The objects of a collection in a namespace.
    pub(crate) fn objects(&self, collection: &str, namespace: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.objects_in(collection, namespace).map(|(_, object)| object.clone()).collect()
    }

    /// How many objects of a collection there are in a namespace.
    pub(crate) fn object_count(&self, collection: &str, namespace: &str) -> usize {
        self.state.lock().objects_in(collection, namespace).count()
    }

    /// Somebody else makes an object, or makes it otherwise.
    pub(crate) fn put_externally(&self, collection: &str, object: Value) {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let place = (collection.to_owned(), text("namespace"), text("name"));
        self.state.lock().write(place, object, None, self.clock.now());
    }

    /// Somebody else changes an object.
    pub(crate) fn change_externally(
        &self,
        (collection, namespace, name): (&str, &str, &str),
        change: impl FnOnce(&mut Value),
    ) {
        let mut state = self.state.lock();
        let place = location(collection, namespace, name);
        let mut object = state.objects[&place].clone();
        change(&mut object);
        state.write(place, object, Some(("meddler", None)), self.clock.now());
    }

    /// Somebody else takes an object away.
    pub(crate) fn delete_externally(&self, collection: &str, namespace: &str, name: &str) {
        let mut state = self.state.lock();
        let place = location(collection, namespace, name);
        if let Some(object) = state.objects.remove(&place) {
            state.version += 1;
            let version = state.version;
            state.record_change(WatchedObjectChange {
                version,
                event_type: "DELETED",
                location: place,
                object,
            });
        }
    }

    /// The versions before now are known no more.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.oldest = state.version;
        state.history.clear();
    }

    /// All watches end without a word.
    pub(crate) fn close_watches(&self) {
        self.state.lock().watches.clear();
    }

    /// All watches break in the middle of a line.
    pub(crate) fn break_watches(&self) {
        let mut state = self.state.lock();
        for watch in state.watches.drain(..) {
            let half = Bytes::from_static(b"{\"type\":\"MODIF");
            drop(watch.events.unbounded_send(Ok(BodyFrame::data(half))));
            let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            drop(watch.events.unbounded_send(Err(broken)));
        }
    }

    /// All watches that are open now tell nothing any more, and do not end.
    pub(crate) fn silence_watches(&self) {
        self.state.lock().watches.iter_mut().for_each(|watch| watch.is_silent = true);
    }

    /// All watches are told an error, and end.
    pub(crate) fn fail_watches(&self, code: u16, reason: &str) {
        let mut state = self.state.lock();
        let event = watch_error_event(code, reason);
        for watch in state.watches.drain(..) {
            watch.send(&event);
        }
    }

    /// All watches are told the version of now.
    pub(crate) fn send_bookmarks(&self) {
        let state = self.state.lock();
        let metadata = json!({"resourceVersion": state.version.to_string()});
        let event = json!({"type": "BOOKMARK",
            "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}});
        state.watches.iter().for_each(|watch| watch.send(&event));
    }

    /// How many watches are open.
    pub(crate) fn open_watch_count(&self) -> usize {
        let mut state = self.state.lock();
        state.watches.retain(|watch| !watch.events.is_closed());
        state.watches.iter().filter(|watch| !watch.is_silent).count()
    }

    /// How much was asked: it grows while somebody asks.
    pub(crate) fn activity(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.version, state.requests.len())
    }

    async fn respond(&self, request: Request<Body>) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let mut path = RequestPath::parse(&parts.uri);
        let verb = RequestVerb::of(&parts.method, &path);
        if verb == RequestVerb::Create {
            body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut path.name);
        }
        let meant = body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let asked = ReceivedRequest { verb, path, expected_version: meant };
        let pause = self.state.lock().write_delay.filter(|_| verb.is_write());
        if let Some(pause) = pause {
            self.clock.sleep(pause).await;
        }
        let mut state = self.state.lock();
        let instead = state.response_rule.as_ref().and_then(|rule| rule(&asked));
        state.requests.push(asked.clone());
        match instead {
            Some(InjectedResponse::Status(code, more)) => {
                json_response(code, &failure_status(code, &more))
            }
            Some(InjectedResponse::WatchEnd) => Response::new(full_body(Bytes::new())),
            Some(InjectedResponse::WatchError(code, reason)) => {
                json_response(200, &watch_error_event(code, reason))
            }
            None => state.respond(&asked, &parts.method, body, self.clock.now()),
        }
    }
}

/// The event of a watch that tells an error.
fn watch_error_event(code: u16, reason: &str) -> Value {
    json!({"type": "ERROR", "object": failure_status(code, &json!({"reason": reason}))})
}
