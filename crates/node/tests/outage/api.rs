//! The part of the Kubernetes API that reports and events need, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Objects by their API path, and the paths of the writes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeStatusApi(Arc<Mutex<FakeApiObjects>>);

#[derive(Debug, Default)]
struct FakeApiObjects {
    objects: BTreeMap<String, Value>,
    /// The paths of all writes.
    writes: Vec<String>,
}

/// An event, as `kubectl describe pod` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedEvent {
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl FakeStatusApi {
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let media_type = parts.headers.get(http::header::CONTENT_TYPE);
                let media_type = media_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
                let (status, answer) =
                    api.0.lock().respond(&parts.method, parts.uri.path(), media_type, body);
                let answer = Body::from(serde_json::to_vec(&answer).unwrap_or_default());
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(status).body(answer).unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the facts in the annotation of a pod status.
    pub(crate) fn volume_facts(&self, pod: &str, class: &str) -> Value {
        let path = format!("{STATUSES}/{pod}-{NAMESPACE}-{class}");
        let objects = self.0.lock();
        let status = objects.objects.get(&path).unwrap_or_else(|| panic!("no {path}"));
        assert_eq!(status["status"]["mounted"], json!(true));
        let text = status["metadata"]["annotations"]["lanyard.dev/volume-facts"].as_str();
        serde_json::from_str(text.unwrap()).unwrap()
    }

    /// Returns every event about a pod, in the order of arrival.
    pub(crate) fn events(&self, pod: &str) -> Vec<RecordedEvent> {
        let objects = self.0.lock();
        let events = objects.objects.iter().filter(|(path, _)| path.starts_with(EVENTS));
        let events = events.map(|(_, event)| event);
        let mut events: Vec<_> =
            events.filter(|event| event["involvedObject"]["name"] == pod).collect();
        events.sort_by_key(|event| event["firstTimestamp"].as_str());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let recorded = |event: &&Value| RecordedEvent {
            kind: text(&event["type"]),
            reason: text(&event["reason"]),
            message: text(&event["message"]),
        };
        events.iter().map(recorded).collect()
    }

    /// Returns the number of pod status writes since the last call.
    pub(crate) fn take_status_writes(&self) -> usize {
        let writes = std::mem::take(&mut self.0.lock().writes);
        writes.iter().filter(|path| path.starts_with(STATUSES)).count()
    }
}

impl FakeApiObjects {
    fn respond(
        &mut self,
        method: &Method,
        path: &str,
        media_type: &str,
        body: Value,
    ) -> (u16, Value) {
        if *method != Method::GET {
            self.writes.push(path.to_owned());
        }
        match (method.as_str(), media_type) {
            ("GET", _) => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => not_found(path),
            },
            ("POST", _) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                self.objects.insert(format!("{path}/{name}"), body.clone());
                (201, body)
            }
            // There is no other field manager, so an apply replaces the whole object.
            ("PATCH", "application/apply-patch+yaml") => {
                self.objects.insert(path.to_owned(), body.clone());
                (200, body)
            }
            ("PATCH", "application/merge-patch+json") => {
                let Some(object) = self.objects.get_mut(path) else { return not_found(path) };
                for (key, value) in body.as_object().into_iter().flatten() {
                    object[key] = value.clone();
                }
                (200, object.clone())
            }
            _ => panic!("{method} {path} as {media_type} is not supported by the fake API"),
        }
    }
}

fn not_found(path: &str) -> (u16, Value) {
    let name = path.rsplit('/').next();
    let status = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "reason": "NotFound",
        "message": "not found",
        "details": {"name": name},
        "code": 404,
    });
    (404, status)
}

/// The namespace of every pod.
pub(crate) const NAMESPACE: &str = "ns";
const STATUSES: &str =
    "/apis/secrets-store.csi.x-k8s.io/v1/namespaces/ns/secretproviderclasspodstatuses";
const EVENTS: &str = "/api/v1/namespaces/ns/events";
