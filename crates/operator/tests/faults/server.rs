//! A Kubernetes API in memory, as far as the operator asks for one, which can be made to misbehave.
//!
//! It is no judge of how an API server answers: `cargo xtask conformance operator` has a real one.
//! It is for what a real one does not do at one's bidding, and for hours that pass in a moment.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::path::{Path, Verb};
use crate::stage::IDENTITIES;

/// The API. Clones share it.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    clock: ManualClock,
}

#[derive(Default)]
struct State {
    version: u64,
    /// The objects by collection, namespace and name.
    objects: BTreeMap<Place, Value>,
    history: Vec<Change>,
    /// No watch can begin before this version.
    oldest: u64,
    watches: Vec<Watch>,
    asked: Vec<Asked>,
    rule: Option<Rule>,
}

type Place = (String, String, String);
type Rule = Box<dyn Fn(&Asked) -> Option<Instead> + Send>;
type Frame = hyper::body::Frame<Bytes>;
type Told = UnsyncBoxBody<Bytes, std::io::Error>;

/// What happened to an object.
#[derive(Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    place: Place,
    object: Value,
}

struct Watch {
    collection: String,
    labels: Option<String>,
    only: Option<String>,
    events: mpsc::UnboundedSender<Result<Frame, std::io::Error>>,
    /// It tells nothing any more, and does not end either.
    is_dead: bool,
}

/// Something that was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) verb: Verb,
    pub(crate) path: Path,
}

/// What is answered instead.
#[derive(Debug, Clone)]
pub(crate) enum Instead {
    /// A status.
    Status(u16, Value),
    /// A watch that ends at once.
    Ended,
}

impl Instead {
    /// A refusal without details.
    pub(crate) fn refused(code: u16, reason: &str) -> Self {
        Self::Status(code, json!({"reason": reason}))
    }

    /// The refusal of an apply, because another manager holds a field.
    pub(crate) fn held_by(manager: &str, field: &str) -> Self {
        let message = format!("conflict with \"{manager}\" using v1");
        let cause = json!({"reason": "FieldManagerConflict", "message": message, "field": field});
        let details = json!({"name": "x", "causes": [cause]});
        Self::Status(409, json!({"reason": "Conflict", "details": details}))
    }
}

impl Server {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self { state: Arc::default(), clock }
    }

    pub(crate) fn api(&self) -> KubernetesApi {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let clock: SharedClock = Arc::new(self.clock.clone());
        KubernetesApi::of_client(Client::new(service, "default"), clock)
    }

    /// From now on some of what is asked is answered otherwise.
    pub(crate) fn rule(&self, rule: impl Fn(&Asked) -> Option<Instead> + Send + 'static) {
        self.state.lock().rule = Some(Box::new(rule));
    }

    /// All is answered as it should be.
    pub(crate) fn behave(&self) {
        self.state.lock().rule = None;
    }

    /// How often something like this was asked.
    pub(crate) fn count(&self, is_so: impl Fn(&Asked) -> bool) -> usize {
        self.state.lock().asked.iter().filter(|asked| is_so(asked)).count()
    }

    /// What was asked, if it is like this, in words.
    pub(crate) fn told(&self, is_so: impl Fn(&Asked) -> bool) -> Vec<String> {
        let state = self.state.lock();
        let told = state.asked.iter().filter(|asked| is_so(asked));
        told.map(|Asked { verb, path }| {
            let Path { collection, namespace, name, .. } = path;
            format!("{verb:?} {collection} {namespace}/{name}")
        })
        .collect()
    }

    /// Forgets what was asked.
    pub(crate) fn forget(&self) {
        self.state.lock().asked.clear();
    }

    /// An object, by the end of its path.
    pub(crate) fn object(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.state.lock();
        state.objects.get(&place(collection, namespace, name)).cloned()
    }

    /// The objects of a collection in a namespace.
    pub(crate) fn objects(&self, collection: &str, namespace: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.of(collection, namespace).map(|(_, object)| object.clone()).collect()
    }

    /// How many objects of a collection there are in a namespace.
    pub(crate) fn count_of(&self, collection: &str, namespace: &str) -> usize {
        self.state.lock().of(collection, namespace).count()
    }

    /// Somebody else makes an object, or makes it otherwise.
    pub(crate) fn put(&self, collection: &str, object: Value) {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let place = (collection.to_owned(), text("namespace"), text("name"));
        self.state.lock().write(place, object, None, self.clock.now());
    }

    /// Somebody else changes an object.
    pub(crate) fn change(
        &self,
        (collection, namespace, name): (&str, &str, &str),
        change: impl FnOnce(&mut Value),
    ) {
        let mut state = self.state.lock();
        let place = place(collection, namespace, name);
        let mut object = state.objects[&place].clone();
        change(&mut object);
        state.write(place, object, Some(("meddler", None)), self.clock.now());
    }

    /// Somebody else takes an object away.
    pub(crate) fn take(&self, collection: &str, namespace: &str, name: &str) {
        let mut state = self.state.lock();
        let place = place(collection, namespace, name);
        if let Some(object) = state.objects.remove(&place) {
            state.version += 1;
            let version = state.version;
            state.tell(Change { version, kind: "DELETED", place, object });
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
    pub(crate) fn cut(&self) {
        self.state.lock().watches.clear();
    }

    /// All watches break in the middle of a line.
    pub(crate) fn break_off(&self) {
        let mut state = self.state.lock();
        for watch in state.watches.drain(..) {
            let half = Bytes::from_static(b"{\"type\":\"MODIF");
            drop(watch.events.unbounded_send(Ok(Frame::data(half))));
            let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            drop(watch.events.unbounded_send(Err(broken)));
        }
    }

    /// All watches that are open now tell nothing any more, and do not end.
    pub(crate) fn fall_silent(&self) {
        self.state.lock().watches.iter_mut().for_each(|watch| watch.is_dead = true);
    }

    /// All watches are told an error, and end.
    pub(crate) fn fail_watches(&self, code: u16, reason: &str) {
        let mut state = self.state.lock();
        let event = json!({"type": "ERROR", "object": status(code, &json!({"reason": reason}))});
        for watch in state.watches.drain(..) {
            watch.send(&event);
        }
    }

    /// All watches are told the version of now.
    pub(crate) fn bookmark(&self) {
        let state = self.state.lock();
        let metadata = json!({"resourceVersion": state.version.to_string()});
        let event = json!({"type": "BOOKMARK",
            "object": {"apiVersion": "v1", "kind": "Any", "metadata": metadata}});
        state.watches.iter().for_each(|watch| watch.send(&event));
    }

    /// How many watches are open.
    pub(crate) fn watches(&self) -> usize {
        let mut state = self.state.lock();
        state.watches.retain(|watch| !watch.events.is_closed());
        state.watches.iter().filter(|watch| !watch.is_dead).count()
    }

    /// How much was asked: it grows while somebody asks.
    pub(crate) fn bustle(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.version, state.asked.len())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Told> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let mut path = Path::parse(&parts.uri);
        let verb = Verb::of(&parts.method, &path);
        if verb == Verb::Create {
            body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut path.name);
        }
        let asked = Asked { verb, path };
        let mut state = self.state.lock();
        let instead = state.rule.as_ref().and_then(|rule| rule(&asked));
        state.asked.push(asked.clone());
        match instead {
            Some(Instead::Status(code, more)) => reply(code, &status(code, &more)),
            Some(Instead::Ended) => Response::new(whole(Bytes::new())),
            None => state.answer(&asked, &parts.method, body, self.clock.now()),
        }
    }
}

impl State {
    fn answer(
        &mut self,
        asked: &Asked,
        method: &Method,
        body: Value,
        now: jiff::Timestamp,
    ) -> Response<Told> {
        let path = &asked.path;
        let place = place(&path.collection, &path.namespace, &path.name);
        match asked.verb {
            Verb::List => reply(200, &self.list(path)),
            Verb::Watch => self.watch(path),
            Verb::Get => match self.objects.get(&place) {
                Some(object) => reply(200, object),
                None => missing(path),
            },
            Verb::Create if self.objects.contains_key(&place_of(&path.collection, &body)) => {
                reply(409, &status(409, &json!({"reason": "AlreadyExists"})))
            }
            Verb::Create => {
                let place = place_of(&path.collection, &body);
                reply(201, &self.write(place, body, Some((&path.manager, None)), now))
            }
            Verb::Patch => {
                let before = self.objects.get(&place);
                let named = &body["metadata"];
                let is_other = before.is_none() && !named["uid"].is_null();
                if is_other || before.is_some_and(|before| !is_meant(before, named)) {
                    return reply(409, &status(409, &json!({"reason": "Conflict"})));
                }
                if before.is_none() && path.sub.is_some() {
                    return missing(path);
                }
                let code = if before.is_some() { 200 } else { 201 };
                let mut object = before.cloned().unwrap_or_else(|| json!({}));
                if path.collection == IDENTITIES && path.sub.is_some() {
                    // It has one writer: what is applied no more is there no more.
                    object["status"] = json!({});
                }
                merge(&mut object, body);
                let writer = Some((&*path.manager, path.sub.as_deref()));
                reply(code, &self.write(place, object, writer, now))
            }
            Verb::Delete => match self.objects.get(&place) {
                Some(object) if !is_meant(object, &body["preconditions"]) => {
                    reply(409, &status(409, &json!({"reason": "Conflict"})))
                }
                Some(object) => {
                    let object = object.clone();
                    self.objects.remove(&place);
                    self.version += 1;
                    self.tell(Change { version: self.version, kind: "DELETED", place, object });
                    reply(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
                }
                None => missing(path),
            },
            Verb::Other => reply(405, &status(405, &json!({"message": method.as_str()}))),
        }
    }

    /// The objects of a collection, in a namespace or in all.
    fn of<'a>(
        &'a self,
        collection: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Place, &'a Value)> {
        let is_there = move |place: &Place| {
            place.0 == collection && (namespace.is_empty() || place.1 == namespace)
        };
        let first = place(collection, namespace, "");
        self.objects.range(first..).take_while(move |(place, _)| is_there(place))
    }

    fn list(&self, path: &Path) -> Value {
        let items: Vec<_> = self
            .of(&path.collection, &path.namespace)
            .filter(|(place, _)| path.only.as_ref().is_none_or(|only| *only == place.2))
            .filter(|(_, object)| has(object, path.labels.as_deref()))
            .map(|(_, object)| object.clone())
            .collect();
        let version = self.version.to_string();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version},
            "items": items})
    }

    fn watch(&mut self, path: &Path) -> Response<Told> {
        let since = path.version.unwrap_or_default();
        if since < self.oldest {
            // As kube-apiserver does: the refusal is an event.
            let object = status(410, &json!({"reason": "Expired"}));
            return reply(200, &json!({"type": "ERROR", "object": object}));
        }
        let (events, told) = mpsc::unbounded();
        let (collection, labels) = (path.collection.clone(), path.labels.clone());
        let only = path.only.clone();
        let watch = Watch { collection, labels, only, events, is_dead: false };
        self.history.iter().filter(|it| it.version > since).for_each(|change| watch.tell(change));
        self.watches.push(watch);
        Response::new(StreamBody::new(told).boxed_unsync())
    }

    /// Writes an object; one that says nothing new stays as it is.
    fn write(
        &mut self,
        place: Place,
        mut object: Value,
        writer: Option<(&str, Option<&str>)>,
        now: jiff::Timestamp,
    ) -> Value {
        let before = self.objects.get(&place).cloned();
        if before.as_ref() == Some(&object) {
            return object;
        }
        self.version += 1;
        let version = self.version;
        let spec_changed = before.as_ref().is_none_or(|before| before["spec"] != object["spec"]);
        let metadata = &mut object["metadata"];
        let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if before.is_none() {
            metadata["uid"] = json!(format!("uid-{version}"));
            metadata["creationTimestamp"] = json!(time);
        }
        if let Some((manager, sub)) = writer {
            let mut managed = metadata["managedFields"].as_array().cloned().unwrap_or_default();
            managed.retain(|it| it["manager"] != manager || it["subresource"].as_str() != sub);
            managed.push(json!({"manager": manager, "operation": "Apply", "time": time}));
            if let (Some(last), Some(sub)) = (managed.last_mut(), sub) {
                last["subresource"] = json!(sub);
            }
            metadata["managedFields"] = Value::Array(managed);
        }
        if spec_changed {
            metadata["generation"] = json!(metadata["generation"].as_u64().unwrap_or_default() + 1);
        }
        metadata["resourceVersion"] = json!(version.to_string());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.objects.insert(place.clone(), object.clone());
        self.tell(Change { version, kind, place, object: object.clone() });
        object
    }

    fn tell(&mut self, change: Change) {
        self.watches.retain(|watch| !watch.events.is_closed());
        self.watches.iter().for_each(|watch| watch.tell(&change));
        self.history.push(change);
    }
}

impl Watch {
    fn tell(&self, change: &Change) {
        if change.place.0 == self.collection
            && self.only.as_ref().is_none_or(|only| *only == change.place.2)
            && has(&change.object, self.labels.as_deref())
        {
            self.send(&json!({"type": change.kind, "object": change.object}));
        }
    }

    fn send(&self, event: &Value) {
        if !self.is_dead {
            let line = Bytes::from(format!("{event}\n"));
            drop(self.events.unbounded_send(Ok(Frame::data(line))));
        }
    }
}

fn place(collection: &str, namespace: &str, name: &str) -> Place {
    (collection.to_owned(), namespace.to_owned(), name.to_owned())
}

fn place_of(collection: &str, object: &Value) -> Place {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    place(collection, text("namespace"), text("name"))
}

/// Whether an object has the labels of a selector: `key=value` or `key`.
fn has(object: &Value, selector: Option<&str>) -> bool {
    let Some(selector) = selector else { return true };
    let labels = &object["metadata"]["labels"];
    match selector.split_once('=') {
        Some((key, value)) => labels[key] == value,
        None => !labels[selector].is_null(),
    }
}

/// Whether an object is the one that a uid and a version name, as far as they do.
fn is_meant(object: &Value, named: &Value) -> bool {
    let is_same = |key: &str| named[key].is_null() || named[key] == object["metadata"][key];
    is_same("uid") && is_same("resourceVersion")
}

/// What an apply does here: maps are merged, conditions are merged by type, all else is replaced.
fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                match object.get_mut(&key) {
                    _ if value.is_null() => drop(object.remove(&key)),
                    Some(there) if key == "conditions" => merge_conditions(there, value),
                    Some(there) => merge(there, value),
                    None => drop(object.insert(key, value)),
                }
            }
        }
        (object, patch) => *object = patch,
    }
}

fn merge_conditions(there: &mut Value, ours: Value) {
    let (Some(there), Value::Array(ours)) = (there.as_array_mut(), ours) else { return };
    for condition in ours {
        match there.iter_mut().find(|it| it["type"] == condition["type"]) {
            Some(before) => *before = condition,
            None => there.push(condition),
        }
    }
}

fn status(code: u16, more: &Value) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": "", "message": "scripted"});
    merge(&mut status, more.clone());
    status
}

fn missing(path: &Path) -> Response<Told> {
    reply(404, &status(404, &json!({"reason": "NotFound", "details": {"name": path.name}})))
}

fn reply(code: u16, value: &Value) -> Response<Told> {
    Response::builder().status(code).body(whole(Bytes::from(value.to_string()))).unwrap()
}

fn whole(body: Bytes) -> Told {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
