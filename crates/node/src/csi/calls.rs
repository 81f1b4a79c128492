//! Counting served calls.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use lanyard_clock::SharedClock;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::metrics::NodeMetrics;

/// Counts the calls of a server by method and code.
#[derive(Debug, Clone)]
pub(crate) struct CountCalls {
    metrics: NodeMetrics,
    clock: SharedClock,
}

impl CountCalls {
    pub(crate) const fn new(metrics: NodeMetrics, clock: SharedClock) -> Self {
        Self { metrics, clock }
    }
}

impl<S> Layer<S> for CountCalls {
    type Service = CountedCalls<S>;

    fn layer(&self, inner: S) -> CountedCalls<S> {
        CountedCalls { inner, count: self.clone() }
    }
}

/// The service under a [`CountCalls`].
#[derive(Debug, Clone)]
pub(crate) struct CountedCalls<S> {
    inner: S,
    count: CountCalls,
}

impl<S, B, R> Service<Request<B>> for CountedCalls<S>
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
        let method = known_method(request.uri().path());
        let CountCalls { metrics, clock } = self.count.clone();
        let start = clock.monotonic();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // A refusal has its code in front; an answer has OK behind it.
            let code = Status::from_header_map(answer.headers()).map_or(Code::Ok, |it| it.code());
            metrics.call_answered(method, code, clock.monotonic().saturating_sub(start));
            Ok(answer)
        })
    }
}

/// A label has few values: what a caller makes up is `other`.
fn known_method(path: &str) -> &'static str {
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
