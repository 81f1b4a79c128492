use std::convert::Infallible;
use std::sync::Arc;

use kube::client::Body;
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_desired::OwnedKind;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

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
    KubernetesApi::of_client(Client::new(service, "default"), Arc::new(clock))
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

#[tokio::test]
async fn an_outage_that_is_over_does_not_lengthen_the_next_one() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let server = Arc::new(Mutex::new((0, watch::channel(()).0)));
    let asked = Arc::clone(&server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_list = !request.uri().to_string().contains("watch=");
        let (watches, mut end) = {
            let mut server = asked.lock();
            server.0 += u32::from(!is_list);
            (server.0, server.1.subscribe())
        };
        async move {
            // The watch goes on from where it was, and tells nothing until it breaks again.
            if !is_list && watches == OUTAGE + 1 {
                end.changed().await.unwrap();
            }
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
                "metadata": {"resourceVersion": "9"}, "items": []});
            let (status, answer) = if is_list { (200, list) } else { (500, Value::Null) };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        }
    });
    let client = Client::new(service, "default");
    let api = KubernetesApi::of_client(client, Arc::new(clock.clone()));
    let kind = WatchedKind::Owned(OwnedKind::ConfigMap);
    let following = tokio::spawn(async move {
        let subject = kind.subject(Role::All);
        subject.follow(&api, &OperatorMetrics::default(), "kind", drop).await;
    });
    let rest = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    rest().await;
    let mut pauses = Vec::new();
    while server.lock().0 <= OUTAGE {
        assert!(pauses.len() < 50, "{pauses:?} {}", server.lock().0);
        let pause = clock.next_due().unwrap();
        pauses.push(pause);
        clock.advance(pause);
        rest().await;
    }
    assert!(pauses.last().unwrap() >= &Duration::from_secs(5), "{pauses:?}");
    // It is as good as over; then it breaks once more.
    clock.advance(GOOD_ENOUGH);
    rest().await;
    server.lock().1.send_replace(());
    rest().await;
    let pause = clock.next_due().unwrap();
    assert!(pause <= FIRST_PAUSE, "{pause:?}");
    following.abort();
}

/// How often the watch breaks.
const OUTAGE: u32 = 7;

#[test]
fn a_watch_is_not_begun_again_before_the_api_said_so() {
    let refused = |status, retry_after| ApiError::Refused {
        action: "watch x".to_owned(),
        status,
        reason: String::new(),
        message: String::new(),
        retry_after,
    };
    let mut outage = Outage::default();
    let error = refused(429, Some(Duration::from_secs(40)));
    outage.note(&error);
    assert_eq!((outage.pause(&error, 0.5), outage.refusals), (Duration::from_secs(40), 0));
    outage.note(&refused(403, None));
    outage.note(&refused(403, None));
    assert_eq!(outage.refusals, 2);
    outage.note(&refused(404, None));
    assert_eq!(outage.refusals, 1, "a server that begins refuses otherwise than it does later");
    outage.note(&refused(500, None));
    assert_eq!((outage.refusals, outage.failures), (0, 5), "an API that is away refuses nothing");
}
