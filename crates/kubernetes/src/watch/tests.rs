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

/// A fake API server with these answers; a request without an answer waits forever.
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

/// The updates of a watch up to the end of its first list.
async fn collect_until_listed(api: &KubernetesApi, watch: &ResourceWatch) -> Vec<WatchUpdate> {
    let complete = Notify::new();
    let mut updates = Vec::new();
    let take = |observed| {
        if matches!(observed, WatchUpdate::ListCompleted) {
            complete.notify_one();
        }
        updates.push(observed);
    };
    tokio::select! {
        () = watch.follow(api, take) => {}
        () = complete.notified() => {}
    }
    updates
}

#[tokio::test]
async fn namespaced_watch_requests_only_its_namespace() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let api = fake_api(move |uri| {
        let is_watch = uri.contains("watch=");
        recorded.lock().push(uri.to_owned());
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": "9"}, "items": []});
        (!is_watch).then_some(list)
    });
    let watch = ResourceWatch { namespace: Some("clusters".to_owned()), ..config_map_watch() };
    tokio::select! {
        () = watch.follow(&api, drop) => {}
        () = async { while requests.lock().len() < 2 { tokio::task::yield_now().await } } => {}
    }
    let requests = requests.lock();
    let path = "/api/v1/namespaces/clusters/configmaps?";
    assert!(requests.iter().all(|uri| uri.contains(path)), "{requests:?}");
    assert_eq!(watch.describe_action("list"), "list configmaps in namespace clusters");
}

#[tokio::test]
async fn listed_items_carry_type_meta() {
    // As for every built-in kind, the items have no type.
    let map = json!({"metadata": {"name": "m", "namespace": "clusters-harbour", "uid": "u",
        "resourceVersion": "7"}, "data": {"k": "v"}});
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "9"}, "items": [map]});
    let api = fake_api(move |uri| (!uri.contains("watch=")).then(|| list.clone()));
    let updates = collect_until_listed(&api, &config_map_watch()).await;
    let [WatchUpdate::ListStarted, WatchUpdate::Applied(object), WatchUpdate::ListCompleted] =
        &updates[..]
    else {
        panic!("{updates:?}")
    };
    let types = object.types.as_ref().unwrap();
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "ConfigMap"));
}

#[tokio::test]
async fn backoff_resets_after_an_outage() {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let server = Arc::new(Mutex::new((0, watch::channel(()).0)));
    let shared_server = Arc::clone(&server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_list = !request.uri().to_string().contains("watch=");
        let (watches, mut end) = {
            let mut server = shared_server.lock();
            server.0 += u32::from(!is_list);
            (server.0, server.1.subscribe())
        };
        async move {
            // The watch resumes from its version and sends nothing until it fails again.
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
    let run_until_idle = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    run_until_idle().await;
    let mut pauses = Vec::new();
    while server.lock().0 <= OUTAGE_FAILURES {
        assert!(pauses.len() < 50, "{pauses:?} {}", server.lock().0);
        let pause = clock.time_until_next_deadline().unwrap();
        pauses.push(pause);
        clock.advance(pause);
        run_until_idle().await;
    }
    assert!(pauses.last().unwrap() >= &Duration::from_secs(5), "{pauses:?}");
    // The outage is over; later the watch fails once more.
    clock.advance(Duration::from_mins(1));
    run_until_idle().await;
    server.lock().1.send_replace(());
    run_until_idle().await;
    let pause = clock.time_until_next_deadline().unwrap();
    assert!(pause <= Duration::from_millis(200), "{pause:?}");
    following.abort();
}

/// The number of failed watches in the outage.
const OUTAGE_FAILURES: u32 = 7;

/// The number of lists and of watches within `passes`, with a server that answers every watch with this
/// text and then ends it.
async fn count_requests(answer: &'static str, passes: Duration) -> (u32, u32) {
    let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
    let counts = Arc::new(Mutex::new((0, 0)));
    let shared_counts = Arc::clone(&counts);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_list = !request.uri().to_string().contains("watch=");
        let mut counts = shared_counts.lock();
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
    // Every five to ten seconds, and some more at the start.
    assert!((10..=32).contains(&watches), "{watches}");
}

#[tokio::test]
async fn unreadable_watch_line_causes_a_list() {
    for line in ["{\"type\":\"ADDED\",\"object\":7}\n", "nothing of the kind\n"] {
        let (lists, _) = count_requests(line, Duration::from_secs(1)).await;
        assert!((2..=5).contains(&lists), "{lists} for {line}");
    }
    // An incomplete line of a cut watch is sent again by the next watch.
    let (lists, watches) =
        count_requests("{\"type\":\"ADDED\",\"obj", Duration::from_secs(1)).await;
    assert_eq!(lists, 1);
    assert!(watches > 1, "{watches}");
}
