//! Metrics of served gRPC calls.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use lanyard_clock::SharedClock;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::metrics::NodeMetrics;

/// A tower layer that counts the calls of a server by method and code.
#[derive(Debug, Clone)]
pub(crate) struct GrpcMetricsLayer {
    metrics: NodeMetrics,
    clock: SharedClock,
}

impl GrpcMetricsLayer {
    pub(crate) const fn new(metrics: NodeMetrics, clock: SharedClock) -> Self {
        Self { metrics, clock }
    }
}

impl<S> Layer<S> for GrpcMetricsLayer {
    type Service = GrpcMetricsService<S>;

    fn layer(&self, inner: S) -> GrpcMetricsService<S> {
        GrpcMetricsService { inner, layer: self.clone() }
    }
}

/// The service that [`GrpcMetricsLayer`] wraps around another.
#[derive(Debug, Clone)]
pub(crate) struct GrpcMetricsService<S> {
    inner: S,
    layer: GrpcMetricsLayer,
}

impl<S, B, R> Service<Request<B>> for GrpcMetricsService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = bounded_method(request.uri().path());
        let GrpcMetricsLayer { metrics, clock } = self.layer.clone();
        let start = clock.monotonic();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // An error has its code in the headers; a success has it in the trailers.
            let code = Status::from_header_map(answer.headers()).map_or(Code::Ok, |it| it.code());
            metrics.record_grpc_call(method, code, clock.monotonic().saturating_sub(start));
            Ok(answer)
        })
    }
}

/// Returns the label value of a method. Unknown paths become `other`, so that callers cannot create label
/// values.
fn bounded_method(path: &str) -> &'static str {
    METHODS.iter().find(|known| **known == path).copied().unwrap_or("other")
}

const METHODS: [&str; 10] = [
    "/csi.v1.Identity/GetPluginCapabilities",
    "/csi.v1.Identity/GetPluginInfo",
    "/csi.v1.Identity/Probe",
    "/csi.v1.Node/NodeGetCapabilities",
    "/csi.v1.Node/NodeGetInfo",
    "/csi.v1.Node/NodePublishVolume",
    "/csi.v1.Node/NodeUnpublishVolume",
    "/grpc.health.v1.Health/Check",
    "/v1alpha1.CSIDriverProvider/Mount",
    "/v1alpha1.CSIDriverProvider/Version",
];
