use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::*;

fn config_map_watch() -> ResourceWatch {
    let resource = ApiResource::erase::<ConfigMap>(&());
    ResourceWatch { resource, namespace: None, labels: None, fields: None }
}

/// An API server that answers each request so; one without an answer waits for ever.
fn fake_api(
    answer: impl Fn(&str) -> Option<Value> + Clone + Send + Sync + 'static,
) -> KubernetesApi {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answer(&request.uri().to_string());
        async move {
            let Some(answer) = answer else { std::future::pending().await };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(http::Response::new(body))
        }
    });
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    KubernetesApi::from_client(Client::new(service, "default"), Arc::new(clock))
}

/// What a watch tells until everything was told.
async fn collect_until_listed(api: &KubernetesApi, watch: &ResourceWatch) -> Vec<WatchUpdate> {
    let complete = Notify::new();
    let mut told = Vec::new();
    let take = |seen| {
        if matches!(seen, WatchUpdate::ListCompleted) {
            complete.notify_one();
        }
        told.push(seen);
    };
    tokio::select! {
        () = watch.follow(api, take) => {}
        () = complete.notified() => {}
    }
    told
}

#[tokio::test]
async fn namespaced_watch_requests_only_its_namespace() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let api = fake_api(move |uri| {
        let is_watch = uri.contains("watch=");
        kept.lock().push(uri.to_owned());
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": "9"}, "items": []});
        (!is_watch).then_some(list)
    });
    let watch = ResourceWatch { namespace: Some("clusters".to_owned()), ..config_map_watch() };
    tokio::select! {
        () = watch.follow(&api, drop) => {}
        () = async { while asked.lock().len() < 2 { tokio::task::yield_now().await } } => {}
    }
    let asked = asked.lock();
    let path = "/api/v1/namespaces/clusters/configmaps?";
    assert!(asked.iter().all(|uri| uri.contains(path)), "{asked:?}");
    assert_eq!(watch.describe_action("list"), "list configmaps in namespace clusters");
}

#[tokio::test]
async fn listed_items_carry_type_meta() {
    // As for every built-in kind: only the list says what its items are.
    let map = json!({"metadata": {"name": "m", "namespace": "clusters-harbour", "uid": "u",
        "resourceVersion": "7"}, "data": {"k": "v"}});
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "9"}, "items": [map]});
    let api = fake_api(move |uri| (!uri.contains("watch=")).then(|| list.clone()));
    let told = collect_until_listed(&api, &config_map_watch()).await;
    let [WatchUpdate::ListStarted, WatchUpdate::Applied(object), WatchUpdate::ListCompleted] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    let types = object.types.as_ref().unwrap();
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "ConfigMap"));
}

#[tokio::test]
async fn backoff_resets_after_an_outage() {
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
            if !is_list && watches == OUTAGE_FAILURES + 1 {
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
    let api = KubernetesApi::from_client(client, Arc::new(clock.clone()));
    let following = tokio::spawn(async move { config_map_watch().follow(&api, drop).await });
    let rest = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    rest().await;
    let mut pauses = Vec::new();
    while server.lock().0 <= OUTAGE_FAILURES {
        assert!(pauses.len() < 50, "{pauses:?} {}", server.lock().0);
        let pause = clock.time_until_next_deadline().unwrap();
        pauses.push(pause);
        clock.advance(pause);
        rest().await;
    }
    assert!(pauses.last().unwrap() >= &Duration::from_secs(5), "{pauses:?}");
    // It is as good as over; then it breaks once more.
    clock.advance(Duration::from_mins(1));
    rest().await;
    server.lock().1.send_replace(());
    rest().await;
    let pause = clock.time_until_next_deadline().unwrap();
    assert!(pause <= Duration::from_millis(200), "{pause:?}");
    following.abort();
}

/// How often the watch breaks.
const OUTAGE_FAILURES: u32 = 7;

/// What a watch asks for while `passes` goes by, of a server that answers every watch with this and
/// ends it then: how many lists and how many watches.
async fn count_requests(answer: &'static str, passes: Duration) -> (u32, u32) {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let counts = Arc::new(Mutex::new((0, 0)));
    let counting = Arc::clone(&counts);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_list = !request.uri().to_string().contains("watch=");
        let mut counts = counting.lock();
        (counts.0, counts.1) = (counts.0 + u32::from(is_list), counts.1 + u32::from(!is_list));
        let list = r#"{"apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": "9"}, "items": []}"#;
        let body = if is_list { list } else { answer };
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Body::from(
            body.as_bytes().to_vec(),
        ))))
    });
    let api = KubernetesApi::from_client(Client::new(service, "default"), Arc::new(clock.clone()));
    let following = tokio::spawn(async move { config_map_watch().follow(&api, drop).await });
    let end = clock.monotonic() + passes;
    while clock.monotonic() < end {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_millis(100));
    }
    following.abort();
    let counts = counts.lock();
    *counts
}

#[tokio::test]
async fn immediately_ended_watches_back_off_without_listing() {
    let (lists, watches) = count_requests("", Duration::from_mins(2)).await;
    assert_eq!(lists, 1);
    // Every five to ten seconds, and some more at the beginning.
    assert!((10..=32).contains(&watches), "{watches}");
}

#[tokio::test]
async fn unreadable_watch_line_causes_a_list() {
    for line in ["{\"type\":\"ADDED\",\"object\":7}\n", "nothing of the kind\n"] {
        let (lists, _) = count_requests(line, Duration::from_secs(1)).await;
        assert!((2..=5).contains(&lists), "{lists} for {line}");
    }
    // Half a line of a watch that was cut is told again by the next one.
    let (lists, watches) =
        count_requests("{\"type\":\"ADDED\",\"obj", Duration::from_secs(1)).await;
    assert_eq!(lists, 1);
    assert!(watches > 1, "{watches}");
}
