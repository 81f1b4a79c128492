use std::convert::Infallible;
use std::sync::Arc;

use kube::client::Body;
use lanyard_clock::{ManualClock, SharedClock};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::lease::LeaseTerms;
use crate::store::{ComparisonScope, DesiredDigests};

const CONTROL_PLANE_NAMESPACE: &str = "clusters-harbour";
const LABEL: &str = "app.kubernetes.io%2Fmanaged-by%3Dlanyard";
const FIELD: &str = "metadata.name%3Dclusters-harbour";

/// An API server with two `ConfigMaps` and a Namespace, whose HostedControlPlanes cannot be listed.
fn fake_api(requests: &Arc<Mutex<Vec<String>>>) -> KubernetesApi {
    let requests = Arc::clone(requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        requests.lock().push(request.uri().to_string());
        let (status, answer) = fake_response(&request.uri().to_string());
        let body = Body::from(serde_json::to_vec(&answer).unwrap());
        let answer = http::Response::builder().status(status).body(body).unwrap();
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    KubernetesApi::from_client(kube::Client::new(service, "default"), manual_clock())
}

fn fake_response(uri: &str) -> (u16, Value) {
    let map = |name: &str| {
        json!({"metadata": {"name": name, "namespace": CONTROL_PLANE_NAMESPACE, "uid": name,
            "resourceVersion": "7"}, "data": {"k": "v"}})
    };
    if uri.contains("/configmaps?") && uri.contains(LABEL) && !uri.contains("fieldSelector") {
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {},
            "items": [map("a"), map("b"), map("not-requested")]});
        (200, list)
    } else if uri.starts_with("/api/v1/namespaces?") && uri.contains(FIELD) && uri.contains(LABEL) {
        let namespace = json!({"metadata": {"name": CONTROL_PLANE_NAMESPACE, "uid": "n", "resourceVersion": "3"}});
        let list = json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {},
            "items": [namespace]});
        (200, list)
    } else {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 422, "reason": "Invalid", "message": "conversion webhook failed",
            "details": {"name": "harbour"}});
        (422, status)
    }
}

fn manual_clock() -> SharedClock {
    Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH))
}

fn object_key(kind: OwnedKind, name: &str) -> ObjectKey {
    let namespace = kind.info().namespaced.then(|| CONTROL_PLANE_NAMESPACE.to_owned());
    ObjectKey { kind, namespace, name: name.to_owned() }
}

#[tokio::test]
async fn objects_of_one_kind_use_one_list_and_failures_are_isolated() {
    let requests = Arc::default();
    let stores =
        WatchStores::new(&[], ComparisonScope::LedClusters(LeaseTerms::permanent(manual_clock())));
    let keys = [
        object_key(OwnedKind::ConfigMap, "a"),
        object_key(OwnedKind::ConfigMap, "b"),
        object_key(OwnedKind::ConfigMap, "gone"),
        object_key(OwnedKind::HostedControlPlane, "harbour"),
        object_key(OwnedKind::Namespace, CONTROL_PLANE_NAMESPACE),
    ];
    let found = fetch_objects(&fake_api(&requests), &stores, keys.to_vec()).await;
    let existing: Vec<_> = found.objects.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(existing, [CONTROL_PLANE_NAMESPACE, "a", "b"]);
    assert_eq!(
        found.unread,
        BTreeSet::from([object_key(OwnedKind::HostedControlPlane, "harbour")])
    );
    assert!(found.errors[0].to_string().contains("webhook"), "{:?}", found.errors);
    assert_eq!(requests.lock().len(), 3, "{:?}", requests.lock());
    // Objects that were not requested are left to the watch.
    let known = stores.objects_to_compare(CONTROL_PLANE_NAMESPACE, &DesiredDigests::new());
    assert_eq!(known.observed.keys().map(|key| &*key.name).collect::<Vec<_>>(), existing);
}
