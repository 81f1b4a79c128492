//! The state of the fake API and its responses without fault injection.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};

use crate::fixture::IDENTITIES;
use crate::management_api::InjectedResponse;
use crate::request_path::{RequestPath, RequestVerb};

/// The objects of the fake API, its history, watches and received requests.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    /// The objects by collection, namespace and name.
    pub(crate) objects: BTreeMap<ObjectLocation, Value>,
    pub(crate) history: Vec<WatchedObjectChange>,
    /// The oldest version from which a watch can start.
    pub(crate) oldest: u64,
    pub(crate) watches: Vec<OpenWatch>,
    pub(crate) requests: Vec<ReceivedRequest>,
    pub(crate) response_rule: Option<ResponseRule>,
    /// The delay of each write.
    pub(crate) write_delay: Option<Duration>,
}

pub(crate) type ObjectLocation = (String, String, String);
pub(crate) type ResponseRule = Box<dyn Fn(&ReceivedRequest) -> Option<InjectedResponse> + Send>;
pub(crate) type BodyFrame = hyper::body::Frame<Bytes>;
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, std::io::Error>;

#[derive(Clone)]
pub(crate) struct WatchedObjectChange {
    pub(crate) version: u64,
    pub(crate) event_type: &'static str,
    pub(crate) location: ObjectLocation,
    pub(crate) object: Value,
}

pub(crate) struct OpenWatch {
    pub(crate) collection: String,
    pub(crate) labels: Option<String>,
    pub(crate) name_filter: Option<String>,
    pub(crate) events: mpsc::UnboundedSender<Result<BodyFrame, std::io::Error>>,
    /// Whether it sends no events and does not end.
    pub(crate) is_silent: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) verb: RequestVerb,
    pub(crate) path: RequestPath,
    /// The `resourceVersion` in the body, if any.
    pub(crate) expected_version: Option<String>,
}

impl State {
    pub(crate) fn respond(
        &mut self,
        request: &ReceivedRequest,
        method: &Method,
        body: Value,
        now: jiff::Timestamp,
    ) -> Response<ResponseBody> {
        let path = &request.path;
        let place = location(&path.collection, &path.namespace, &path.name);
        match request.verb {
            RequestVerb::List => json_response(200, &self.list(path)),
            RequestVerb::Watch => self.watch(path),
            RequestVerb::Get => match self.objects.get(&place) {
                Some(object) => json_response(200, object),
                None => not_found_response(path),
            },
            RequestVerb::Review => json_response(201, &access_review(true)),
            RequestVerb::Create
                if self.objects.contains_key(&object_location(&path.collection, &body)) =>
            {
                json_response(409, &failure_status(409, &json!({"reason": "AlreadyExists"})))
            }
            RequestVerb::Create => {
                let place = object_location(&path.collection, &body);
                json_response(201, &self.write(place, body, Some((&path.field_manager, None)), now))
            }
            RequestVerb::Patch => {
                let before = self.objects.get(&place);
                let named = &body["metadata"];
                let is_other = before.is_none() && !named["uid"].is_null();
                if is_other || before.is_some_and(|before| !matches_preconditions(before, named)) {
                    return json_response(
                        409,
                        &failure_status(409, &json!({"reason": "Conflict"})),
                    );
                }
                if before.is_none() && path.subresource.is_some() {
                    return not_found_response(path);
                }
                let code = if before.is_some() { 200 } else { 201 };
                let mut object = before.cloned().unwrap_or_else(|| json!({}));
                if path.collection == IDENTITIES && path.subresource.is_some() {
                    // The status has a single writer, so fields that it no longer applies are removed.
                    object["status"] = json!({});
                }
                apply_merge(&mut object, body);
                let writer = Some((&*path.field_manager, path.subresource.as_deref()));
                json_response(code, &self.write(place, object, writer, now))
            }
            RequestVerb::Delete => match self.objects.get(&place) {
                Some(object) if !matches_preconditions(object, &body["preconditions"]) => {
                    json_response(409, &failure_status(409, &json!({"reason": "Conflict"})))
                }
                Some(object) => {
                    let object = object.clone();
                    self.objects.remove(&place);
                    self.version += 1;
                    self.record_change(WatchedObjectChange {
                        version: self.version,
                        event_type: "DELETED",
                        location: place,
                        object,
                    });
                    json_response(
                        200,
                        &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                    )
                }
                None => not_found_response(path),
            },
            RequestVerb::Other => {
                json_response(405, &failure_status(405, &json!({"message": method.as_str()})))
            }
        }
    }

    /// The objects of a collection, in a namespace or in all.
    pub(crate) fn objects_in<'a>(
        &'a self,
        collection: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectLocation, &'a Value)> {
        let is_there = move |place: &ObjectLocation| {
            place.0 == collection && (namespace.is_empty() || place.1 == namespace)
        };
        let first = location(collection, namespace, "");
        self.objects.range(first..).take_while(move |(place, _)| is_there(place))
    }

    pub(crate) fn list(&self, path: &RequestPath) -> Value {
        let items: Vec<_> = self
            .objects_in(&path.collection, &path.namespace)
            .filter(|(place, _)| path.name_filter.as_ref().is_none_or(|only| *only == place.2))
            .filter(|(_, object)| matches_selector(object, path.labels.as_deref()))
            .map(|(_, object)| object.clone())
            .collect();
        let version = self.version.to_string();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version},
            "items": items})
    }

    pub(crate) fn watch(&mut self, path: &RequestPath) -> Response<ResponseBody> {
        let since = path.version.unwrap_or_default();
        if since < self.oldest {
            // Like kube-apiserver: the error is sent as an event.
            let object = failure_status(410, &json!({"reason": "Expired"}));
            return json_response(200, &json!({"type": "ERROR", "object": object}));
        }
        let (events, receiver) = mpsc::unbounded();
        let (collection, labels) = (path.collection.clone(), path.labels.clone());
        let only = path.name_filter.clone();
        let watch = OpenWatch { collection, labels, name_filter: only, events, is_silent: false };
        self.history
            .iter()
            .filter(|it| it.version > since)
            .for_each(|change| watch.send_change(change));
        self.watches.push(watch);
        Response::new(StreamBody::new(receiver).boxed_unsync())
    }

    /// Writes an object; a write without a change does nothing.
    pub(crate) fn write(
        &mut self,
        place: ObjectLocation,
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
        self.record_change(WatchedObjectChange {
            version,
            event_type: kind,
            location: place,
            object: object.clone(),
        });
        object
    }

    pub(crate) fn record_change(&mut self, change: WatchedObjectChange) {
        self.watches.retain(|watch| !watch.events.is_closed());
        self.watches.iter().for_each(|watch| watch.send_change(&change));
        self.history.push(change);
    }
}

impl OpenWatch {
    pub(crate) fn send_change(&self, change: &WatchedObjectChange) {
        if change.location.0 == self.collection
            && self.name_filter.as_ref().is_none_or(|only| *only == change.location.2)
            && matches_selector(&change.object, self.labels.as_deref())
        {
            self.send(&json!({"type": change.event_type, "object": change.object}));
        }
    }

    pub(crate) fn send(&self, event: &Value) {
        if !self.is_silent {
            let line = Bytes::from(format!("{event}\n"));
            drop(self.events.unbounded_send(Ok(BodyFrame::data(line))));
        }
    }
}

pub(crate) fn location(collection: &str, namespace: &str, name: &str) -> ObjectLocation {
    (collection.to_owned(), namespace.to_owned(), name.to_owned())
}

fn object_location(collection: &str, object: &Value) -> ObjectLocation {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    location(collection, text("namespace"), text("name"))
}

/// Whether an object has the labels of a selector: `key=value` or `key`.
fn matches_selector(object: &Value, selector: Option<&str>) -> bool {
    let Some(selector) = selector else { return true };
    let labels = &object["metadata"]["labels"];
    match selector.split_once('=') {
        Some((key, value)) => labels[key] == value,
        None => !labels[selector].is_null(),
    }
}

/// Whether an object has the uid and the version of the preconditions, as far as they are set.
fn matches_preconditions(object: &Value, named: &Value) -> bool {
    let is_same = |key: &str| named[key].is_null() || named[key] == object["metadata"][key];
    is_same("uid") && is_same("resourceVersion")
}

/// Applies a patch: merges maps, merges conditions by type, and replaces everything else.
fn apply_merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                match object.get_mut(&key) {
                    _ if value.is_null() => drop(object.remove(&key)),
                    Some(there) if key == "conditions" => merge_conditions(there, value),
                    Some(there) => apply_merge(there, value),
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

pub(crate) fn failure_status(code: u16, more: &Value) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": "", "message": "scripted"});
    apply_merge(&mut status, more.clone());
    status
}

/// The authorizer's answer to a review.
pub(crate) fn access_review(is_allowed: bool) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {},
        "status": {"allowed": is_allowed}})
}

fn not_found_response(path: &RequestPath) -> Response<ResponseBody> {
    json_response(
        404,
        &failure_status(404, &json!({"reason": "NotFound", "details": {"name": path.name}})),
    )
}

pub(crate) fn json_response(code: u16, value: &Value) -> Response<ResponseBody> {
    Response::builder().status(code).body(full_body(Bytes::from(value.to_string()))).unwrap()
}

pub(crate) fn full_body(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
