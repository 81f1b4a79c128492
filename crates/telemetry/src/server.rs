//! The pages over HTTP.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use lanyard_clock::SharedClock;
use tokio::net::TcpListener;

use crate::address::ListenAddress;
use crate::connections::FewConnections;
use crate::liveness::Liveness;
use crate::page::MetricsPage;
use crate::readiness::Readiness;
use crate::remarks::Remarks;

/// `/metrics`.
pub fn metrics_routes(page: MetricsPage) -> Router {
    async fn metrics(State(page): State<MetricsPage>) -> impl IntoResponse {
        ([(header::CONTENT_TYPE, MetricsPage::CONTENT_TYPE)], page.render())
    }
    Router::new().route("/metrics", get(metrics)).with_state(page)
}

/// Liveness at `path` (`/healthz`), readiness at `/readyz`: 200, or 503 with the reasons, a line
/// for each. Remarks follow in either case and change nothing about it.
pub fn health_routes(
    path: &str,
    liveness: Liveness,
    readiness: Readiness,
    remarks: Remarks,
) -> Router {
    async fn health(State(liveness): State<Liveness>) -> impl IntoResponse {
        match liveness.check().await {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("not alive: {problem}\n")),
        }
    }
    async fn ready(State((readiness, remarks)): State<(Readiness, Remarks)>) -> impl IntoResponse {
        let problems = readiness.problems();
        let remarks = remarks.lines().into_iter().map(|it| format!("remark: {it}\n"));
        if problems.is_empty() {
            let lines: String = std::iter::once("ready\n".to_owned()).chain(remarks).collect();
            return (StatusCode::OK, lines);
        }
        let problems = problems.iter().map(|it| format!("not ready: {it}\n"));
        (StatusCode::SERVICE_UNAVAILABLE, problems.chain(remarks).collect())
    }
    let health = Router::new().route(path, get(health)).with_state(liveness);
    let ready = Router::new().route("/readyz", get(ready)).with_state((readiness, remarks));
    health.merge(ready)
}

/// A bound address.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Binds the address; nothing where it is [`ListenAddress::Off`].
    ///
    /// # Errors
    ///
    /// Where it cannot be bound: mostly because another program has it.
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

    /// The address, with the port that was taken where 0 was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end`, and then until the requests in flight are answered. There are 32
    /// connections at most, and each ends after a minute: half a request holds nothing for long.
    ///
    /// # Errors
    ///
    /// Where the system refuses to go on accepting.
    pub async fn serve(
        self,
        routes: Router,
        clock: SharedClock,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let connections = FewConnections::to(self.listener, clock);
        axum::serve(connections, routes).with_graceful_shutdown(end).await
    }
}

/// An address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}")]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// What came back.
    #[source]
    pub source: io::Error,
}

impl ListenError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        "see which program has the port, or choose another address"
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

    struct Server {
        address: SocketAddr,
        end: oneshot::Sender<()>,
        task: tokio::task::JoinHandle<io::Result<()>>,
    }

    impl Server {
        async fn start(routes: Router) -> Self {
            Self::start_at(routes, clock(&manual())).await
        }

        async fn start_at(routes: Router, clock: SharedClock) -> Self {
            let address = "127.0.0.1:0".parse().unwrap();
            let listening = Listening::bind(address).await.unwrap().unwrap();
            let address = listening.address();
            let (end, ended) = oneshot::channel();
            let task = tokio::spawn(listening.serve(routes, clock, async { drop(ended.await) }));
            Self { address, end, task }
        }

        async fn get(&self, path: &str) -> String {
            fetch(self.address, path).await
        }

        async fn end(self) {
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

    fn manual() -> ManualClock {
        ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH)
    }

    fn clock(manual: &ManualClock) -> SharedClock {
        Arc::new(manual.clone())
    }

    fn liveness(answer: Result<(), &'static str>) -> Liveness {
        let answer = answer.map_err(str::to_owned);
        let check = move || std::future::ready(answer.clone());
        Liveness::new(check, Duration::from_secs(5), clock(&manual()))
    }

    #[tokio::test]
    async fn pages_say_what_is_wrong_by_name() {
        let readiness = Readiness::default();
        let gate = readiness.gate("classes", "the API server did not answer");
        let amiss = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&amiss);
        let look = move || told.load(Relaxed).then(|| "the file is bad:\nline 1".to_owned());
        let remarks = Remarks::default().with("policy", look);
        let routes = health_routes("/healthz", liveness(Ok(())), readiness, remarks);
        let server = Server::start(routes).await;
        let healthy = server.get("/healthz").await;
        assert!(healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("\r\n\r\nok\n"));
        let waiting = server.get("/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
        assert!(waiting.ends_with("not ready: classes: the API server did not answer\n"));
        gate.open();
        assert!(server.get("/readyz").await.ends_with("\r\n\r\nready\n"));
        amiss.store(true, Relaxed);
        let ready = server.get("/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        assert!(ready.ends_with("ready\nremark: policy: the file is bad: line 1\n"), "{ready}");
        gate.close("gone");
        let waiting = server.get("/readyz").await;
        assert!(waiting.starts_with("HTTP/1.1 503"), "{waiting}");
        assert!(waiting.contains("not ready: classes: gone\nremark: policy"), "{waiting}");
        assert!(server.get("/debug/pprof").await.starts_with("HTTP/1.1 404"));
        server.end().await;
    }

    #[tokio::test]
    async fn a_process_that_does_not_answer_is_not_alive() {
        let (readiness, remarks) = (Readiness::default(), Remarks::default());
        let routes = health_routes("/live", liveness(Err("no socket")), readiness, remarks);
        let server = Server::start(routes).await;
        let answer = server.get("/live").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("not alive: no socket\n"));
        server.end().await;
    }

    #[tokio::test]
    async fn a_check_that_hangs_ends_at_its_limit() {
        let manual = manual();
        let limit = Duration::from_secs(5);
        let hanging = Liveness::new(std::future::pending, limit, clock(&manual));
        let checking = tokio::spawn(async move { hanging.check().await });
        while manual.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        manual.advance(limit);
        assert_eq!(checking.await.unwrap(), Err("no answer within 5s".to_owned()));
    }

    #[tokio::test]
    async fn who_sends_half_a_request_holds_nothing_for_long_and_keeps_nobody_from_ending() {
        use crate::connections::{LONGEST, MOST};
        let manual = manual();
        let routes = metrics_routes(MetricsPage::build(|_| ()));
        let server = Server::start_at(routes, clock(&manual)).await;
        let mut halves = Vec::new();
        for _ in 0..MOST {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(b"GET /metr").await.unwrap();
            halves.push(stream);
        }
        while manual.sleepers() < MOST {
            tokio::task::yield_now().await;
        }
        let address = server.address;
        let mut waiting = Box::pin(fetch(address, "/metrics"));
        for _ in 0..100 {
            assert!(poll_once(&mut waiting).await.is_none(), "there is no place");
        }
        manual.advance(LONGEST);
        assert!(waiting.await.starts_with("HTTP/1.1 200"));

        let mut half = TcpStream::connect(server.address).await.unwrap();
        half.write_all(b"GET /metr").await.unwrap();
        while manual.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        let Server { end, task, .. } = server;
        end.send(()).unwrap();
        manual.advance(LONGEST);
        task.await.unwrap().unwrap();
    }

    /// What a future comes to, if it does at once.
    async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = tokio::task::yield_now() => None,
        }
    }

    #[tokio::test]
    async fn metrics_are_served_in_the_open_format() {
        let server = Server::start(metrics_routes(MetricsPage::build(|_| ()))).await;
        let answer = server.get("/metrics").await;
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
        assert!(answer.ends_with("\r\n\r\n# EOF\n"));
        server.end().await;
    }

    #[tokio::test]
    async fn nothing_listens_where_it_is_off_and_a_taken_port_is_named() {
        assert!(Listening::bind(ListenAddress::Off).await.unwrap().is_none());
        let first = Listening::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
        let taken = ListenAddress::At(first.address());
        let error = Listening::bind(taken).await.unwrap_err();
        assert_eq!(error.to_string(), format!("could not listen on {}", first.address()));
    }
}
