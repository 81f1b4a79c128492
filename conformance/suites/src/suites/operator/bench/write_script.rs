//! The operator's writes for one cluster, recorded for replay by the write loop.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task;

use http::{HeaderValue, Method, Request, header};
use k8s_openapi::Resource as _;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
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

/// The namespace in which the write loop writes instead of that of the HostedClusters, with a name of the
/// same length.
pub(super) const WRITE_LOOP_NAMESPACE: &str = "rawfleet";

/// A write that the operator sent to the API server.
#[derive(Debug, Clone)]
pub(super) struct RecordedWrite {
    method: Method,
    path: String,
    content_type: HeaderValue,
    body: String,
}

/// The writes for one cluster, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteScript(Vec<RecordedWrite>);

impl WriteScript {
    /// The number of writes for each cluster.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of objects that the writes create, without events.
    pub(super) fn object_count(&self) -> usize {
        let created = self.0.iter().map(|write| write.path.split('?').next().unwrap_or_default());
        let created = created.filter(|path| {
            !path.contains("/hostedclusters/")
                && !path.ends_with("/status")
                && !path.ends_with("/events")
                // The namespace is created by POST and then applied under its name.
                && !path.ends_with("/namespaces")
        });
        created.collect::<BTreeSet<_>>().len()
    }

    /// The requests for another cluster: other names and namespaces, without the operator's label.
    ///
    /// Writes to the HostedCluster go to the HostedControlPlane, which has these fields too, because the
    /// operator would reconcile a HostedCluster.
    pub(super) fn requests_for_cluster(&self, number: usize) -> Result<Vec<Request<Body>>, Failed> {
        let (own, peers) = (fleet::cluster_name(0), format!("rw{number:05}"));
        let mut requests = Vec::with_capacity(self.0.len());
        let mut late = Vec::new();
        for write in &self.0 {
            let is_hosted_cluster = write.path.contains("/hostedclusters/");
            let write =
                if is_hosted_cluster { redirect_to_control_plane(write)? } else { write.clone() };
            let path = write.path.replace(&format!("/namespaces/{NAMESPACE}/"), WRITE_LOOP_PATH);
            let body = write
                .body
                .replace(&format!("\"{NAMESPACE}\""), &format!("\"{WRITE_LOOP_NAMESPACE}\""))
                .replace(OPERATOR_LABEL, WRITE_LOOP_LABEL)
                .replace(&own, &peers);
            let request = Request::builder()
                .method(&write.method)
                .uri(path.replace(&own, &peers))
                .header(header::CONTENT_TYPE, &write.content_type)
                .header(header::ACCEPT, "application/json")
                .body(Body::from(body.into_bytes()))?;
            if is_hosted_cluster { late.push(request) } else { requests.push(request) }
        }
        requests.extend(late);
        Ok(requests)
    }
}

/// The same write to the HostedControlPlane of the cluster. The write loop uses it in place of a write to the
/// HostedCluster, which the operator would reconcile.
fn redirect_to_control_plane(write: &RecordedWrite) -> Result<RecordedWrite, Failed> {
    let mut body: Value = serde_json::from_str(&write.body)?;
    body["kind"] = json!("HostedControlPlane");
    body["metadata"]["namespace"] = json!(fleet::control_plane_namespace(0));
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    let path = write
        .path
        .replace("/hostedclusters/", "/hostedcontrolplanes/")
        .replace(
            &format!("/namespaces/{NAMESPACE}/"),
            &format!("/namespaces/{}/", fleet::control_plane_namespace(0)),
        )
        // A field manager gives up fields that it does not apply again, so this one is another manager.
        .replace("fieldManager=lanyard-hosted-cluster", "fieldManager=another-hosted-cluster");
    Ok(RecordedWrite { path, body: body.to_string(), ..write.clone() })
}

/// Records the writes of a client.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteRecorder(Arc<Mutex<Vec<RecordedWrite>>>);

impl WriteRecorder {
    /// A client of the administrator whose writes are recorded.
    pub(super) async fn recording_api(
        &self,
        plane: &ControlPlane,
    ) -> Result<KubernetesApi, Failed> {
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig_path(ControlPlane::ADMINISTRATOR))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        (config.proxy_url, config.default_retry, config.read_timeout) = (None, false, None);
        let client = ClientBuilder::try_from(config)?.with_layer(self).build();
        Ok(KubernetesApi::from_client(client, SystemClock::shared()))
    }

    /// The writes that were recorded so far.
    pub(super) fn recorded_script(&self) -> WriteScript {
        WriteScript(self.0.lock().clone())
    }
}

impl<S> Layer<S> for WriteRecorder {
    type Service = RecordingService<S>;

    fn layer(&self, service: S) -> RecordingService<S> {
        RecordingService { service, recorder: self.clone() }
    }
}

/// A service that records writes.
#[derive(Debug, Clone)]
pub(super) struct RecordingService<S> {
    service: S,
    recorder: WriteRecorder,
}

impl<S> Service<Request<Body>> for RecordingService<S>
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
        let write = RecordedWrite::from_request(&request);
        let body = request.body().try_clone();
        let answer = self.service.call(request);
        Box::pin(async move {
            if let (Some(mut write), Some(body)) = (write, body) {
                // The body is in memory.
                let bytes = body.collect_bytes().await.unwrap_or_default();
                write.body = String::from_utf8_lossy(&bytes).into_owned();
                recorder.0.lock().push(write);
            }
            answer.await
        })
    }
}

impl RecordedWrite {
    /// The request without its body, if it writes an object other than a lease.
    fn from_request(request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let is_write = request.method() != Method::GET
            && !path.contains("/leases")
            && !path.ends_with(SelfSubjectAccessReview::URL_PATH_SEGMENT);
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

const WRITE_LOOP_PATH: &str = "/namespaces/rawfleet/";
/// The label of objects that the operator watches.
const OPERATOR_LABEL: &str = "\"app.kubernetes.io/managed-by\":\"lanyard\"";
const WRITE_LOOP_LABEL: &str = "\"app.kubernetes.io/managed-by\":\"rawload\"";
