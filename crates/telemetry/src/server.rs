//! The HTTP endpoints for metrics and health.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use lanyard_clock::{ErrorHint, SharedClock};
use tokio::net::TcpListener;

use crate::connection_limit::ConnectionLimitListener;
use crate::listen_address::ListenAddress;
use crate::liveness::LivenessProbe;
use crate::metrics_page::MetricsPage;
use crate::readiness::Readiness;
use crate::readiness_warnings::ReadinessWarnings;

/// The route `/metrics`.
pub fn metrics_routes(page: MetricsPage) -> Router {
    async fn metrics(State(page): State<MetricsPage>) -> impl IntoResponse {
        ([(header::CONTENT_TYPE, MetricsPage::CONTENT_TYPE)], page.render())
    }
    Router::new().route("/metrics", get(metrics)).with_state(page)
}

/// The routes for liveness at `path` (`/healthz`) and readiness at `/readyz`. Both respond with
/// 200, or with 503 and the reason; `/readyz` lists one reason per line, followed by the warnings,
/// which do not change its status.
pub fn health_routes(
    path: &str,
    liveness: LivenessProbe,
    readiness: Readiness,
    warnings: ReadinessWarnings,
) -> Router {
    async fn health(State(liveness): State<LivenessProbe>) -> impl IntoResponse {
        match liveness.check().await {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("not alive: {problem}\n")),
        }
    }
    async fn ready(
        State((readiness, warnings)): State<(Readiness, ReadinessWarnings)>,
    ) -> impl IntoResponse {
        let problems = readiness.problems();
        let warnings = warnings.lines().into_iter().map(|it| format!("warning: {it}\n"));
        if problems.is_empty() {
            let lines: String = std::iter::once("ready\n".to_owned()).chain(warnings).collect();
            return (StatusCode::OK, lines);
        }
        let problems = problems.iter().map(|it| format!("not ready: {it}\n"));
        (StatusCode::SERVICE_UNAVAILABLE, problems.chain(warnings).collect())
    }
    let health = Router::new().route(path, get(health)).with_state(liveness);
    let ready = Router::new().route("/readyz", get(ready)).with_state((readiness, warnings));
    health.merge(ready)
}

/// A bound listen address.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundListener {
    /// Binds the address; returns `None` for [`ListenAddress::Off`].
    ///
    /// # Errors
    ///
    /// [`ListenError`] if the address cannot be bound, usually because another program uses it.
    pub async fn bind(address: ListenAddress) -> Result<Option<Self>, ListenError> {
        let mut last = None;
        for candidate in address.candidates() {
            match TcpListener::bind(candidate).await {
                Ok(listener) => {
                    let bound = listener.local_addr();
                    let address = bound.map_err(|source| ListenError { address, source })?;
                    return Ok(Some(Self { listener, address }));
                }
                Err(source) => last = Some(ListenError { address, source }),
            }
        }
        last.map_or(Ok(None), Err)
    }

    /// The bound address; if port 0 was requested, with the port that the system chose.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end` completes, and then until the requests in flight are answered. Accepts at
    /// most 32 connections and closes each after one minute, so that an incomplete request cannot
    /// hold one for long.
    ///
    /// # Errors
    ///
    /// The error of the system if the listener fails.
    pub async fn serve(
        self,
        routes: Router,
        clock: SharedClock,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let connections = ConnectionLimitListener::new(self.listener, clock);
        axum::serve(connections, routes).with_graceful_shutdown(end).await
    }
}

/// Serves `/metrics`, `/healthz` and `/readyz` on one listener; waits forever without one. The process is alive as long
/// as it responds. Returns the error of the listener.
pub async fn serve_process_endpoints(
    listening: Option<BoundListener>,
    page: MetricsPage,
    readiness: Readiness,
    clock: SharedClock,
) -> Option<io::Error> {
    const LIVENESS_TIMEOUT: Duration = Duration::from_secs(5);
    let Some(listening) = listening else { return std::future::pending().await };
    let alive = || std::future::ready(Ok(()));
    let liveness = LivenessProbe::new(alive, LIVENESS_TIMEOUT, SharedClock::clone(&clock));
    let health = health_routes("/healthz", liveness, readiness, ReadinessWarnings::default());
    tracing::info!(address = %listening.address(), "serving metrics and health");
    let routes = health.merge(metrics_routes(page));
    listening.serve(routes, clock, std::future::pending()).await.err()
}

/// A listen address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}")]
pub struct ListenError {
    pub address: ListenAddress,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl ErrorHint for ListenError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed("find the program that uses the port, or choose another address"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    use lanyard_clock::ManualClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;

    struct TelemetryTestServer {
        address: SocketAddr,
        end: oneshot::Sender<()>,
        task: tokio::task::JoinHandle<io::Result<()>>,
    }

    impl TelemetryTestServer {
        async fn start(routes: Router) -> Self {
            Self::start_at(routes, shared_clock(&manual_clock())).await
        }

        async fn start_at(routes: Router, clock: SharedClock) -> Self {
            let address = "127.0.0.1:0".parse().unwrap();
            let listening = BoundListener::bind(address).await.unwrap().unwrap();
            let address = listening.address();
            let (end, ended) = oneshot::channel();
            let task = tokio::spawn(listening.serve(routes, clock, async { drop(ended.await) }));
            Self { address, end, task }
        }

        async fn get(&self, path: &str) -> String {
            fetch(self.address, path).await
        }

        async fn stop(self) {
            self.end.send(()).unwrap();
            self.task.await.unwrap().unwrap();
        }
    }

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    fn manual_clock() -> ManualClock {
        ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH)
    }

    fn shared_clock(manual: &ManualClock) -> SharedClock {
        Arc::new(manual.clone())
    }

    fn liveness(answer: Result<(), &'static str>) -> LivenessProbe {
        let answer = answer.map_err(str::to_owned);
        let check = move || std::future::ready(answer.clone());
        LivenessProbe::new(check, Duration::from_secs(5), shared_clock(&manual_clock()))
    }

    #[tokio::test]
    async fn health_pages_list_closed_gates_and_warnings() {
        let readiness = Readiness::default();
        let gate = readiness.add_gate("classes", "the API server did not answer");
        let is_bad = Arc::new(AtomicBool::new(false));
        let observed = Arc::clone(&is_bad);
        let source = move || observed.load(Relaxed).then(|| "the file is bad:\nline 1".to_owned());
        let warnings = ReadinessWarnings::default().with_source("policy", source);
        let routes = health_routes("/healthz", liveness(Ok(())), readiness, warnings);
        let server = TelemetryTestServer::start(routes).await;
        let healthy = server.get("/healthz").await;
        assert!(healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("\r\n\r\nok\n"));
        let waiting = server.get("/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
        assert!(waiting.ends_with("not ready: classes: the API server did not answer\n"));
        gate.open();
        assert!(server.get("/readyz").await.ends_with("\r\n\r\nready\n"));
        is_bad.store(true, Relaxed);
        let ready = server.get("/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        assert!(ready.ends_with("ready\nwarning: policy: the file is bad: line 1\n"), "{ready}");
        gate.close("gone");
        let waiting = server.get("/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
        assert!(waiting.contains("not ready: classes: gone\nwarning: policy"), "{waiting}");
        assert!(server.get("/debug/pprof").await.starts_with("HTTP/1.1 404"));
        server.stop().await;
    }

    #[tokio::test]
    async fn a_process_that_does_not_answer_is_not_alive() {
        let (readiness, warnings) = (Readiness::default(), ReadinessWarnings::default());
        let routes = health_routes("/live", liveness(Err("no socket")), readiness, warnings);
        let server = TelemetryTestServer::start(routes).await;
        let answer = server.get("/live").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("not alive: no socket\n"));
        server.stop().await;
    }

    #[tokio::test]
    async fn hanging_liveness_check_fails_at_its_timeout() {
        let manual = manual_clock();
        let limit = Duration::from_secs(5);
        let hanging = LivenessProbe::new(std::future::pending, limit, shared_clock(&manual));
        let checking = tokio::spawn(async move { hanging.check().await });
        while manual.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        manual.advance(limit);
        assert_eq!(checking.await.unwrap(), Err("no answer within 5s".to_owned()));
    }

    #[tokio::test]
    async fn incomplete_requests_end_at_the_limit_and_do_not_block_shutdown() {
        use crate::connection_limit::{MAX_CONNECTION_AGE, MAX_CONNECTIONS};
        let manual = manual_clock();
        let routes = metrics_routes(MetricsPage::build(|_| ()));
        let server = TelemetryTestServer::start_at(routes, shared_clock(&manual)).await;
        let mut halves = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(b"GET /metr").await.unwrap();
            halves.push(stream);
        }
        while manual.sleeper_count() < MAX_CONNECTIONS {
            tokio::task::yield_now().await;
        }
        let address = server.address;
        let mut waiting = Box::pin(fetch(address, "/metrics"));
        for _ in 0..100 {
            assert!(poll_once(&mut waiting).await.is_none(), "the connection limit is reached");
        }
        manual.advance(MAX_CONNECTION_AGE);
        assert!(waiting.await.starts_with("HTTP/1.1 200"));

        let mut half = TcpStream::connect(server.address).await.unwrap();
        half.write_all(b"GET /metr").await.unwrap();
        while manual.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        let TelemetryTestServer { end, task, .. } = server;
        end.send(()).unwrap();
        manual.advance(MAX_CONNECTION_AGE);
        task.await.unwrap().unwrap();
    }

    /// The output of a future, or `None` if it does not complete immediately.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = tokio::task::yield_now() => None,
        }
    }

    #[tokio::test]
    async fn metrics_are_served_in_the_open_format() {
        let server = TelemetryTestServer::start(metrics_routes(MetricsPage::build(|_| ()))).await;
        let answer = server.get("/metrics").await;
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
        assert!(answer.ends_with("\r\n\r\n# EOF\n"));
        server.stop().await;
    }

    #[tokio::test]
    async fn address_off_binds_nothing_and_a_port_in_use_is_an_error() {
        assert!(BoundListener::bind(ListenAddress::Off).await.unwrap().is_none());
        let first = BoundListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let taken = ListenAddress::Single(first.address());
        let error = BoundListener::bind(taken).await.unwrap_err();
        assert_eq!(error.to_string(), format!("could not listen on {}", first.address()));
    }
}
