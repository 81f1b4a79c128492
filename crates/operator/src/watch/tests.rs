use std::convert::Infallible;
use std::sync::Arc;

use kube::client::Body;
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_desired::OwnedKind;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::kinds::WatchedKind;
use crate::lease::Tenures;
use crate::settings::Role;
use crate::store::{Compared, Stores, Telling, Wished};

/// An API server that answers each request so; one without an answer waits for ever.
fn api(answer: impl Fn(&str) -> Option<Value> + Clone + Send + Sync + 'static) -> KubernetesApi {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answer(&request.uri().to_string());
        async move {
            let Some(answer) = answer else { std::future::pending().await };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(http::Response::new(body))
        }
    });
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    KubernetesApi::of_client(kube::Client::new(service, "default"), Arc::new(clock))
}

/// What a watch tells until everything was told.
async fn told(api: &KubernetesApi, subject: &Subject) -> Vec<Seen> {
    let complete = Notify::new();
    let mut told = Vec::new();
    let take = |seen| {
        if matches!(seen, Seen::Complete) {
            complete.notify_one();
        }
        told.push(seen);
    };
    let metrics = OperatorMetrics::default();
    tokio::select! {
        () = subject.follow(api, &metrics, "kind", take) => {}
        () = complete.notified() => {}
    }
    told
}

#[tokio::test]
async fn the_items_of_a_list_say_what_they_are_and_are_compared_without_being_read_again() {
    // As for every built-in kind: only the list says what its items are.
    let map = json!({"metadata": {"name": "m", "namespace": "clusters-harbour", "uid": "u",
        "resourceVersion": "7"}, "data": {"k": "v"}});
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "9"}, "items": [map]});
    let api = api(move |uri| (!uri.contains("watch=")).then(|| list.clone()));
    let kind = WatchedKind::Owned(OwnedKind::ConfigMap);
    let clock: SharedClock = Arc::new(ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH));
    let stores = Stores::new(&[], Compared::Led(Tenures::for_ever(clock)));
    let mut telling = Telling::default();
    for seen in told(&api, &kind.subject(Role::All)).await {
        stores.see(kind, seen, &mut telling, Duration::ZERO);
    }
    let unsettled = stores.unsettled("clusters-harbour", &Wished::new());
    assert_eq!(unsettled.unknown, []);
    let observed = unsettled.observed.into_values().next().unwrap();
    assert_eq!(
        (observed.key.kind, observed.resource_version.as_str()),
        (OwnedKind::ConfigMap, "7")
    );
}
