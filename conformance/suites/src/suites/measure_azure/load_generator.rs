//! The load generator: each connection sends its next request as soon as the last response is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use tokio::task::JoinSet;

use super::https_connection::{FullResponse, HttpVersion, HttpsTarget, PreparedRequest};
use crate::process_usage::processor_time;
use crate::waiting::sleep;

/// The `number`-th request of the connection `connection`.
pub(super) type RequestSource = Arc<dyn Fn(RequestNumber) -> PreparedRequest + Send + Sync>;

/// The position of a request in a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestNumber {
    /// The index of the connection, from 0.
    pub(super) connection: usize,
    /// The index of the request on its connection, from 0.
    pub(super) request: usize,
}

/// The requests of a list in turn. Each connection starts at another one.
pub(super) fn requests_in_turn(requests: Vec<PreparedRequest>) -> RequestSource {
    Arc::new(move |number: RequestNumber| {
        let at = number.connection * CONNECTION_OFFSET + number.request;
        requests[at % requests.len()].clone()
    })
}

/// The distance between the first requests of two connections in [`requests_in_turn`].
const CONNECTION_OFFSET: usize = 31;

/// The extent of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadShape {
    pub(super) version: HttpVersion,
    pub(super) connections: usize,
    /// How long requests are sent before they count.
    pub(super) warm_up: Duration,
    /// How long requests count.
    pub(super) window: Duration,
}

/// The measurements of a load.
#[derive(Debug)]
pub(super) struct LoadResult {
    /// Completed requests per second.
    pub(super) rate: f64,
    /// The 99th percentile of the time until the response was complete, in milliseconds.
    pub(super) slow_percentile: f64,
    /// The server's processor time for each request, in microseconds.
    pub(super) server_time: f64,
    /// The load generator's part of the machine's processor time, in percent.
    pub(super) generator_share: f64,
}

/// Opens the connections, sends requests for the duration of the load, and measures the process `server`.
/// Fails on the first response with an error status.
pub(super) async fn measure_load(
    target: &HttpsTarget,
    shape: LoadShape,
    source: &RequestSource,
    server: u32,
) -> Result<LoadResult, Failed> {
    let clock = SystemClock::new();
    let mut opened = Vec::with_capacity(shape.connections);
    for _ in 0..shape.connections {
        opened.push(target.connect(shape.version).await?);
    }
    let begin = clock.monotonic() + shape.warm_up;
    let end = begin + shape.window;
    let mut workers = JoinSet::new();
    for (connection, mut opened) in opened.into_iter().enumerate() {
        let source = Arc::clone(source);
        workers.spawn(async move {
            let mut latencies: Vec<Duration> = Vec::new();
            let mut sent = clock.monotonic();
            for request in 0.. {
                let prepared = source(RequestNumber { connection, request });
                require_success(&prepared, &opened.send(&prepared).await?)?;
                let done = clock.monotonic();
                if done > end {
                    break;
                }
                if sent >= begin {
                    latencies.push(done.saturating_sub(sent));
                }
                sent = done;
            }
            Ok::<_, Failed>(latencies)
        });
    }
    let generator = std::process::id();
    sleep(begin.saturating_sub(clock.monotonic())).await;
    let before = (processor_time(server)?, processor_time(generator)?);
    sleep(end.saturating_sub(clock.monotonic())).await;
    let after = (processor_time(server)?, processor_time(generator)?);
    let mut latencies = Vec::new();
    while let Some(worker) = workers.join_next().await {
        latencies.extend(worker??);
    }
    let used = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    LoadResult::new(latencies, shape.window, used)
}

impl LoadResult {
    /// `used` is the processor time of the server and of the load generator.
    fn new(
        mut latencies: Vec<Duration>,
        window: Duration,
        used: (Duration, Duration),
    ) -> Result<Self, Failed> {
        latencies.sort_unstable();
        let slow = latencies.get(latencies.len() * 99 / 100).ok_or("no request was completed")?;
        let count = super::count_to_f64(latencies.len());
        let cores = super::count_to_f64(std::thread::available_parallelism()?.get());
        Ok(Self {
            rate: count / window.as_secs_f64(),
            slow_percentile: slow.as_secs_f64() * 1e3,
            server_time: used.0.as_secs_f64() * 1e6 / count,
            generator_share: used.1.as_secs_f64() * 100.0 / (window.as_secs_f64() * cores),
        })
    }
}

/// Sends requests 0 to `count` - 1 of a source, as its connection 0, on several connections.
pub(super) async fn send_all(
    target: &HttpsTarget,
    count: usize,
    source: &RequestSource,
) -> Result<(), Failed> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..FILL_CONNECTIONS.min(count) {
        let mut connection = target.connect(HttpVersion::Http2).await?;
        let (source, next) = (Arc::clone(source), Arc::clone(&next));
        workers.spawn(async move {
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= count {
                    return Ok::<_, Failed>(());
                }
                let prepared = source(RequestNumber { connection: 0, request });
                require_success(&prepared, &connection.send(&prepared).await?)?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}

/// The number of connections of [`send_all`].
const FILL_CONNECTIONS: usize = 8;

/// Fails on a response with an error status. The message contains the response and no part of the request but
/// method and path, because the headers contain tokens.
pub(super) fn require_success(
    request: &PreparedRequest,
    response: &FullResponse,
) -> Result<(), Failed> {
    if response.status.is_success() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&response.body);
    let (method, path, status) = (&request.method, request.path.path(), response.status);
    Err(format!("{method} {path}: {status}: {body}").into())
}
