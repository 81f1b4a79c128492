//! What the API has, and what it answers where nothing misbehaves.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use crate::path::{Path, Verb};
use crate::server::Instead;
use crate::stage::IDENTITIES;

/// What there is, and who watches it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    /// The objects by collection, namespace and name.
    pub(crate) objects: BTreeMap<Place, Value>,
    pub(crate) history: Vec<Change>,
    /// No watch can begin before this version.
    pub(crate) oldest: u64,
    pub(crate) watches: Vec<Watch>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) rule: Option<Rule>,
    /// How long each write takes; no time where nothing is said.
    pub(crate) write_takes: Option<Duration>,
}

pub(crate) type Place = (String, String, String);
pub(crate) type Rule = Box<dyn Fn(&Asked) -> Option<Instead> + Send>;
pub(crate) type Frame = hyper::body::Frame<Bytes>;
pub(crate) type Told = UnsyncBoxBody<Bytes, std::io::Error>;

/// What happened to an object.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: &'static str,
    pub(crate) place: Place,
    pub(crate) object: Value,
}

pub(crate) struct Watch {
    pub(crate) collection: String,
    pub(crate) labels: Option<String>,
    pub(crate) only: Option<String>,
    pub(crate) events: mpsc::UnboundedSender<Result<Frame, std::io::Error>>,
    /// It tells nothing any more, and does not end either.
    pub(crate) is_dead: bool,
}

/// Something that was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) verb: Verb,
    pub(crate) path: Path,
    /// The version of the object that it is meant for, where it says that.
    pub(crate) meant: Option<String>,
}

impl State {
    pub(crate) fn answer(
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
    pub(crate) fn of<'a>(
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

    pub(crate) fn list(&self, path: &Path) -> Value {
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

    pub(crate) fn watch(&mut self, path: &Path) -> Response<Told> {
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
    pub(crate) fn write(
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

    pub(crate) fn tell(&mut self, change: Change) {
        self.watches.retain(|watch| !watch.events.is_closed());
        self.watches.iter().for_each(|watch| watch.tell(&change));
        self.history.push(change);
    }
}

impl Watch {
    pub(crate) fn tell(&self, change: &Change) {
        if change.place.0 == self.collection
            && self.only.as_ref().is_none_or(|only| *only == change.place.2)
            && has(&change.object, self.labels.as_deref())
        {
            self.send(&json!({"type": change.kind, "object": change.object}));
        }
    }

    pub(crate) fn send(&self, event: &Value) {
        if !self.is_dead {
            let line = Bytes::from(format!("{event}\n"));
            drop(self.events.unbounded_send(Ok(Frame::data(line))));
        }
    }
}

pub(crate) fn place(collection: &str, namespace: &str, name: &str) -> Place {
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

pub(crate) fn status(code: u16, more: &Value) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": "", "message": "scripted"});
    merge(&mut status, more.clone());
    status
}

fn missing(path: &Path) -> Response<Told> {
    reply(404, &status(404, &json!({"reason": "NotFound", "details": {"name": path.name}})))
}

pub(crate) fn reply(code: u16, value: &Value) -> Response<Told> {
    Response::builder().status(code).body(whole(Bytes::from(value.to_string()))).unwrap()
}

pub(crate) fn whole(body: Bytes) -> Told {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
