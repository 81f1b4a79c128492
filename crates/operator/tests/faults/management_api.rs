//! An in-memory fake of the Kubernetes API for the operator's requests, with fault injection.
//!
//! It does not show how an API server answers; `cargo xtask conformance operator` runs a real one. It
//! injects faults that a real one does not produce on demand, and lets hours pass in virtual time.

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
    BodyFrame, ReceivedRequest, ResponseBody, State, WatchedObjectChange, access_review,
    failure_status, full_body, json_response, location,
};
use crate::request_path::{RequestPath, RequestVerb};

/// The fake API. Clones share its state.
#[derive(Clone)]
pub(crate) struct FakeManagementApi {
    state: Arc<Mutex<State>>,
    clock: ManualClock,
}

#[derive(Debug, Clone)]
pub(crate) enum InjectedResponse {
    /// A `Status` with this HTTP code and these fields.
    Status(u16, Value),
    /// An access review that denies.
    AccessDenied,
    /// A watch that ends immediately.
    WatchEnd,
    /// A watch that sends an error event and ends.
    WatchError(u16, &'static str),
}

impl InjectedResponse {
    /// An error status without details.
    pub(crate) fn error_status(code: u16, reason: &str) -> Self {
        Self::Status(code, json!({"reason": reason}))
    }

    /// The conflict of an apply, because another manager owns a field.
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

    /// Injects the responses that `rule` returns.
    pub(crate) fn inject(
        &self,
        rule: impl Fn(&ReceivedRequest) -> Option<InjectedResponse> + Send + 'static,
    ) {
        self.state.lock().response_rule = Some(Box::new(rule));
    }

    /// Ends the injection.
    pub(crate) fn clear_injection(&self) {
        self.state.lock().response_rule = None;
    }

    /// Delays each write by this time.
    pub(crate) fn delay_writes(&self, each: Duration) {
        self.state.lock().write_delay = Some(each);
    }

    /// The current resource version.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The objects of a collection after each change that followed a version.
    pub(crate) fn object_changes(&self, collection: &str, after: u64) -> Vec<Value> {
        let state = self.state.lock();
        let of =
            state.history.iter().filter(|it| it.version > after && it.location.0 == collection);
        of.map(|change| change.object.clone()).collect()
    }

    /// The number of matching requests.
    pub(crate) fn count_requests(&self, is_so: impl Fn(&ReceivedRequest) -> bool) -> usize {
        self.state.lock().requests.iter().filter(|request| is_so(request)).count()
    }

    /// Descriptions of the matching requests.
    pub(crate) fn describe_requests(
        &self,
        is_so: impl Fn(&ReceivedRequest) -> bool,
    ) -> Vec<String> {
        let state = self.state.lock();
        let matching = state.requests.iter().filter(|request| is_so(request));
        matching
            .map(|ReceivedRequest { verb, path, .. }| {
                let RequestPath { collection, namespace, name, field_manager: manager, .. } = path;
                let sub =
                    path.subresource.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
                format!("{verb:?} {collection}{sub} {namespace}/{name} as {manager:?}")
            })
            .collect()
    }

    /// Forgets the received requests.
    pub(crate) fn clear_requests(&self) {
        self.state.lock().requests.clear();
    }

    /// An object, by collection, namespace and name.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.state.lock();
        state.objects.get(&location(collection, namespace, name)).cloned()
    }

    /// The objects of a collection in a namespace.
    pub(crate) fn objects(&self, collection: &str, namespace: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.objects_in(collection, namespace).map(|(_, object)| object.clone()).collect()
    }

    /// The number of objects of a collection in a namespace.
    pub(crate) fn object_count(&self, collection: &str, namespace: &str) -> usize {
        self.state.lock().objects_in(collection, namespace).count()
    }

    /// Creates or replaces an object as another client.
    pub(crate) fn put_externally(&self, collection: &str, object: Value) {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let place = (collection.to_owned(), text("namespace"), text("name"));
        self.state.lock().write(place, object, None, self.clock.now());
    }

    /// Changes an object as another client.
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

    /// Deletes an object as another client.
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

    /// Compacts the history: earlier versions expire.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock();
        state.version += 1;
        state.oldest = state.version;
        state.history.clear();
    }

    /// Ends all watches without an event.
    pub(crate) fn close_watches(&self) {
        self.state.lock().watches.clear();
    }

    /// Breaks all watches in the middle of a line.
    pub(crate) fn break_watches(&self) {
        let mut state = self.state.lock();
        for watch in state.watches.drain(..) {
            let half = Bytes::from_static(b"{\"type\":\"MODIF");
            drop(watch.events.unbounded_send(Ok(BodyFrame::data(half))));
            let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            drop(watch.events.unbounded_send(Err(broken)));
        }
    }

    /// Silences all open watches: they send no events and do not end.
    pub(crate) fn silence_watches(&self) {
        self.state.lock().watches.iter_mut().for_each(|watch| watch.is_silent = true);
    }

    /// Sends an error event to all watches and ends them.
    pub(crate) fn fail_watches(&self, code: u16, reason: &str) {
        let mut state = self.state.lock();
        let event = watch_error_event(code, reason);
        for watch in state.watches.drain(..) {
            watch.send(&event);
        }
    }

    /// Sends a bookmark with the current version to all watches.
    pub(crate) fn send_bookmarks(&self) {
        let state = self.state.lock();
        let metadata = json!({"resourceVersion": state.version.to_string()});
        let event = json!({"type": "BOOKMARK",
            "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}});
        state.watches.iter().for_each(|watch| watch.send(&event));
    }

    /// The number of open watches.
    pub(crate) fn open_watch_count(&self) -> usize {
        let mut state = self.state.lock();
        state.watches.retain(|watch| !watch.events.is_closed());
        state.watches.iter().filter(|watch| !watch.is_silent).count()
    }

    /// The version and the number of requests; both grow while the operator is active.
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
        let request = ReceivedRequest { verb, path, expected_version: meant };
        let pause = self.state.lock().write_delay.filter(|_| verb.is_write());
        if let Some(pause) = pause {
            self.clock.sleep(pause).await;
        }
        let mut state = self.state.lock();
        let instead = state.response_rule.as_ref().and_then(|rule| rule(&request));
        state.requests.push(request.clone());
        match instead {
            Some(InjectedResponse::Status(code, more)) => {
                json_response(code, &failure_status(code, &more))
            }
            Some(InjectedResponse::AccessDenied) => json_response(201, &access_review(false)),
            Some(InjectedResponse::WatchEnd) => Response::new(full_body(Bytes::new())),
            Some(InjectedResponse::WatchError(code, reason)) => {
                json_response(200, &watch_error_event(code, reason))
            }
            None => state.respond(&request, &parts.method, body, self.clock.now()),
        }
    }
}

/// The error event of a watch.
fn watch_error_event(code: u16, reason: &str) -> Value {
    json!({"type": "ERROR", "object": failure_status(code, &json!({"reason": reason}))})
}
