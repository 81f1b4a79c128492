use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::*;

fn maps() -> Watch {
    let resource = ApiResource::erase::<ConfigMap>(&());
    Watch { resource, namespace: None, labels: None, fields: None }
}

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
async fn told(api: &KubernetesApi, watch: &Watch) -> Vec<Seen> {
    let complete = Notify::new();
    let mut told = Vec::new();
    let take = |seen| {
        if matches!(seen, Seen::Complete) {
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
async fn who_follows_one_namespace_asks_for_no_other() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let api = api(move |uri| {
        let is_watch = uri.contains("watch=");
        kept.lock().push(uri.to_owned());
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": "9"}, "items": []});
        (!is_watch).then_some(list)
    });
    let watch = Watch { namespace: Some("clusters".to_owned()), ..maps() };
    tokio::select! {
        () = watch.follow(&api, drop) => {}
        () = async { while asked.lock().len() < 2 { tokio::task::yield_now().await } } => {}
    }
    let asked = asked.lock();
    let path = "/api/v1/namespaces/clusters/configmaps?";
    assert!(asked.iter().all(|uri| uri.contains(path)), "{asked:?}");
    assert_eq!(watch.action("list"), "list configmaps in namespace clusters");
}

#[tokio::test]
async fn the_items_of_a_list_say_what_they_are() {
    // As for every built-in kind: only the list says what its items are.
    let map = json!({"metadata": {"name": "m", "namespace": "clusters-harbour", "uid": "u",
        "resourceVersion": "7"}, "data": {"k": "v"}});
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "9"}, "items": [map]});
    let api = api(move |uri| (!uri.contains("watch=")).then(|| list.clone()));
    let told = told(&api, &maps()).await;
    let [Seen::Anew, Seen::There(object), Seen::Complete] = &told[..] else { panic!("{told:?}") };
    let types = object.types.as_ref().unwrap();
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("v1", "ConfigMap"));
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
    let following = tokio::spawn(async move { maps().follow(&api, drop).await });
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
    clock.advance(Duration::from_mins(1));
    rest().await;
    server.lock().1.send_replace(());
    rest().await;
    let pause = clock.next_due().unwrap();
    assert!(pause <= Duration::from_millis(200), "{pause:?}");
    following.abort();
}

/// How often the watch breaks.
const OUTAGE: u32 = 7;

/// What a watch asks for while `passes` goes by, of a server that answers every watch with this and
/// ends it then: how many lists and how many watches.
async fn asked(answer: &'static str, passes: Duration) -> (u32, u32) {
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
    let api = KubernetesApi::of_client(Client::new(service, "default"), Arc::new(clock.clone()));
    let following = tokio::spawn(async move { maps().follow(&api, drop).await });
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
async fn a_server_that_ends_every_watch_at_once_is_asked_ever_more_seldom_and_never_for_a_list() {
    let (lists, watches) = asked("", Duration::from_mins(2)).await;
    assert_eq!(lists, 1);
    // Every five to ten seconds, and some more at the beginning.
    assert!((10..=32).contains(&watches), "{watches}");
}

#[tokio::test]
async fn what_a_line_told_that_cannot_be_read_is_listed() {
    for line in ["{\"type\":\"ADDED\",\"object\":7}\n", "nothing of the kind\n"] {
        let (lists, _) = asked(line, Duration::from_secs(1)).await;
        assert!((2..=5).contains(&lists), "{lists} for {line}");
    }
    // Half a line of a watch that was cut is told again by the next one.
    let (lists, watches) = asked("{\"type\":\"ADDED\",\"obj", Duration::from_secs(1)).await;
    assert_eq!(lists, 1);
    assert!(watches > 1, "{watches}");
}
