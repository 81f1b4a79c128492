//! What the operator writes about one cluster, written down to be written by others.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task;

use http::{HeaderValue, Method, Request, header};
use kube::Config;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use lanyard_clock::SystemClock;
use lanyard_cluster::ControlPlane;
use lanyard_kubernetes::KubernetesApi;
use libtest_mimic::Failed;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::{Layer, Service};

use super::fleet::{self, NAMESPACE};

/// Where the peer writes what the operator writes beside the HostedClusters. Of the same length.
pub(super) const PEER_NAMESPACE: &str = "rawfleet";

/// A write.
#[derive(Debug, Clone)]
pub(super) struct Write {
    method: Method,
    path: String,
    content_type: HeaderValue,
    body: String,
}

/// The writes about one cluster, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Script(Vec<Write>);

impl Script {
    /// How many writes there are for each cluster.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// How many objects there are then; events do not count.
    pub(super) fn objects(&self) -> usize {
        let made = self.0.iter().map(|write| write.path.split('?').next().unwrap_or_default());
        let made = made.filter(|path| {
            !path.contains("/hostedclusters/")
                && !path.ends_with("/status")
                && !path.ends_with("/events")
                // The namespace is made first, and applied under its name.
                && !path.ends_with("/namespaces")
        });
        made.collect::<BTreeSet<_>>().len()
    }

    /// The same for other names: in other namespaces, and not marked as the operator's.
    ///
    /// No HostedCluster is written, since an operator would take it for one of its own: what goes
    /// to a HostedCluster goes to the HostedControlPlane, which has the same fields.
    pub(super) fn for_peer(&self, number: usize) -> Result<Vec<Request<Body>>, Failed> {
        let (own, peers) = (fleet::name(0), format!("rw{number:05}"));
        let mut requests = Vec::with_capacity(self.0.len());
        let mut late = Vec::new();
        for write in &self.0 {
            let is_wish = write.path.contains("/hostedclusters/");
            let write = if is_wish { about_control_plane(write)? } else { write.clone() };
            let path = write.path.replace(&format!("/namespaces/{NAMESPACE}/"), PEERS_PLACE);
            let body = write
                .body
                .replace(&format!("\"{NAMESPACE}\""), &format!("\"{PEER_NAMESPACE}\""))
                .replace(OUR_MARK, PEERS_MARK)
                .replace(&own, &peers);
            let request = Request::builder()
                .method(&write.method)
                .uri(path.replace(&own, &peers))
                .header(header::CONTENT_TYPE, &write.content_type)
                .header(header::ACCEPT, "application/json")
                .body(Body::from(body.into_bytes()))?;
            if is_wish { late.push(request) } else { requests.push(request) }
        }
        requests.extend(late);
        Ok(requests)
    }
}

/// A write about a HostedCluster, as one about its HostedControlPlane.
fn about_control_plane(write: &Write) -> Result<Write, Failed> {
    let mut body: Value = serde_json::from_str(&write.body)?;
    body["kind"] = json!("HostedControlPlane");
    body["metadata"]["namespace"] = json!(fleet::room(0));
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    let path = write
        .path
        .replace("/hostedclusters/", "/hostedcontrolplanes/")
        .replace(&format!("/namespaces/{NAMESPACE}/"), &format!("/namespaces/{}/", fleet::room(0)))
        // What a manager does not apply again it gives up.
        .replace("fieldManager=lanyard-hosted-cluster", "fieldManager=another-hosted-cluster");
    Ok(Write { path, body: body.to_string(), ..write.clone() })
}

/// Writes down what goes through a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<Write>>>);

impl Recorder {
    /// The API behind this.
    pub(super) async fn api(&self, plane: &ControlPlane) -> Result<KubernetesApi, Failed> {
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(ControlPlane::ADMINISTRATOR))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        (config.proxy_url, config.default_retry, config.read_timeout) = (None, false, None);
        let client = ClientBuilder::try_from(config)?.with_layer(self).build();
        Ok(KubernetesApi::of_client(client, SystemClock::shared()))
    }

    /// What was written so far.
    pub(super) fn script(&self) -> Script {
        Script(self.0.lock().clone())
    }
}

impl<S> Layer<S> for Recorder {
    type Service = Recording<S>;

    fn layer(&self, service: S) -> Recording<S> {
        Recording { service, recorder: self.clone() }
    }
}

/// A service whose writes are written down.
#[derive(Debug, Clone)]
pub(super) struct Recording<S> {
    service: S,
    recorder: Recorder,
}

impl<S> Service<Request<Body>> for Recording<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> task::Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let recorder = self.recorder.clone();
        let write = Write::of(&request);
        let body = request.body().try_clone();
        let answer = self.service.call(request);
        Box::pin(async move {
            if let (Some(mut write), Some(body)) = (write, body) {
                // It is in memory.
                let bytes = body.collect_bytes().await.unwrap_or_default();
                write.body = String::from_utf8_lossy(&bytes).into_owned();
                recorder.0.lock().push(write);
            }
            answer.await
        })
    }
}

impl Write {
    /// A request without its content, if it writes something beside a lease.
    fn of(request: &Request<Body>) -> Option<Self> {
        let is_write = request.method() != Method::GET && !request.uri().path().contains("/leases");
        is_write.then(|| Self {
            method: request.method().clone(),
            path: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
            content_type: request
                .headers()
                .get(header::CONTENT_TYPE)
                .cloned()
                .unwrap_or(HeaderValue::from_static("application/json")),
            body: String::new(),
        })
    }
}

const PEERS_PLACE: &str = "/namespaces/rawfleet/";
/// What the operator watches is marked so.
const OUR_MARK: &str = "\"app.kubernetes.io/managed-by\":\"lanyard\"";
const PEERS_MARK: &str = "\"app.kubernetes.io/managed-by\":\"rawload\"";
