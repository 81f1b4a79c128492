//! The baseline of the benchmark: a loop that writes the operator's bytes and reads nothing.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::client::Body;
use lanyard_clock::{Clock, SystemClock};
use lanyard_kubernetes::{ApiAccess, KubernetesApi, UserAgent};
use libtest_mimic::Failed;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::write_script::WriteScript;

/// Connections and concurrency of a write loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteStrategy {
    /// The number of HTTP/2 connections.
    pub(super) connections: usize,
    /// The number of writes in flight.
    pub(super) concurrency: usize,
}

/// The result of a write loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteThroughput {
    pub(super) strategy: WriteStrategy,
    pub(super) writes: usize,
    pub(super) duration: Duration,
}

impl WriteStrategy {
    /// The strategies to try. The fastest one becomes the baseline.
    pub(super) const ALL: [Self; 8] = [
        Self { connections: 1, concurrency: 4 },
        Self { connections: 1, concurrency: 8 },
        Self { connections: 1, concurrency: 16 },
        Self { connections: 1, concurrency: 32 },
        Self { connections: 2, concurrency: 8 },
        Self { connections: 2, concurrency: 16 },
        Self { connections: 4, concurrency: 16 },
        Self { connections: 4, concurrency: 32 },
    ];

    /// Writes the script for `clusters` clusters, counted from `first`. Each parallel job writes one cluster
    /// after the other. The requests are built before the measured time begins.
    pub(super) async fn write_clusters(
        self,
        kubeconfig: &Path,
        script: &WriteScript,
        first: usize,
        clusters: usize,
    ) -> Result<WriteThroughput, Failed> {
        let clusters: VecDeque<_> = (first..first + clusters)
            .map(|number| script.requests_for_cluster(number).map(VecDeque::from))
            .collect::<Result<_, _>>()?;
        let writes = clusters.iter().map(VecDeque::len).sum();
        let waiting = Arc::new(Mutex::new(clusters));
        let mut apis = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            let access = ApiAccess::Kubeconfig(kubeconfig.to_owned());
            let agent = UserAgent::from_static("plain-loop");
            apis.push(KubernetesApi::connect(&access, agent, SystemClock::shared()).await?);
        }
        let clock = SystemClock::new();
        let begin = clock.monotonic();
        let mut jobs = JoinSet::new();
        for api in apis.iter().cycle().take(self.concurrency) {
            let (api, waiting) = (api.clone(), Arc::clone(&waiting));
            jobs.spawn(async move {
                loop {
                    let Some(cluster) = waiting.lock().pop_front() else { return Ok(()) };
                    for request in cluster {
                        send_request(&api, request).await?;
                    }
                }
            });
        }
        while let Some(job) = jobs.join_next().await {
            let outcome: Result<(), Failed> = job?;
            outcome?;
        }
        Ok(WriteThroughput {
            strategy: self,
            writes,
            duration: clock.monotonic().saturating_sub(begin),
        })
    }
}

impl WriteThroughput {
    /// The write rate.
    pub(super) fn writes_per_second(&self) -> f64 {
        super::count_to_f64(self.writes) / self.duration.as_secs_f64()
    }
}

/// Sends a request and reads its response without parsing it.
async fn send_request(api: &KubernetesApi, request: Request<Body>) -> Result<(), Failed> {
    let what = format!("{} {}", request.method(), request.uri());
    let answer = api.client().send(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect_bytes().await?;
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("{what}: {status}: {}", String::from_utf8_lossy(&body)).into())
    }
}
