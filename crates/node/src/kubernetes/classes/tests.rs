use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use jiff::Timestamp;
use kube::client::Body;
use lanyard_clock::ManualClock;
use lanyard_kubernetes::KubernetesApi;
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;

/// An API server that answers reads of classes once there are permits, and no other requests.
struct FakeClassApiServer {
    /// The number of received reads without an answer.
    reads_in_flight: AtomicUsize,
    max_reads_in_flight: AtomicUsize,
    permits: Semaphore,
}

impl FakeClassApiServer {
    async fn respond(&self, uri: http::Uri) -> http::Response<Body> {
        if uri.path().ends_with("/secretproviderclasses") {
            std::future::pending::<()>().await;
        }
        let reading = self.reads_in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_reads_in_flight.fetch_max(reading, Ordering::SeqCst);
        let _permit = self.permits.acquire().await;
        self.reads_in_flight.fetch_sub(1, Ordering::SeqCst);
        let name = uri.path().rsplit('/').next().unwrap();
        let class = json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": {"name": name, "namespace": "n", "resourceVersion": "1", "uid": name},
            "spec": {"provider": "azure"},
        });
        http::Response::new(Body::from(serde_json::to_vec(&class).unwrap()))
    }
}

fn class_cache(server: &Arc<FakeClassApiServer>) -> KubeClassCache {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        let uri = request.uri().clone();
        async move { Ok::<_, Infallible>(server.respond(uri).await) }
    });
    let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
    let client = kube::Client::new(service, "default");
    let api = NodeKubernetesApi::new(KubernetesApi::from_client(client, Arc::new(clock)));
    KubeClassCache::new(api, KubeClassCacheSettings::default())
}

#[tokio::test]
async fn concurrent_class_reads_are_limited() {
    let (reading, most_reading) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = Arc::new(FakeClassApiServer {
        reads_in_flight: reading,
        max_reads_in_flight: most_reading,
        permits: Semaphore::new(0),
    });
    let classes = class_cache(&server);
    let names: Vec<String> = (0..CONCURRENT_READS * 4).map(|number| format!("c{number}")).collect();
    let read_all = join_all(names.iter().map(|name| classes.class("n", name)));
    let answer_all = async {
        while server.reads_in_flight.load(Ordering::SeqCst) < CONCURRENT_READS {
            tokio::task::yield_now().await;
        }
        // Any further read would arrive in the meantime.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        server.permits.add_permits(names.len());
    };
    let (found, ()) = tokio::join!(read_all, answer_all);
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(server.max_reads_in_flight.load(Ordering::SeqCst), CONCURRENT_READS);
}
