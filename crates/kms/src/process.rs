//! The process of the plugin: its sockets, and the order in which they close.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::ErrorHint;
use lanyard_telemetry::{BoundListener, ListenAddress, ListenError, MetricsPage, metrics_routes};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::health::KmsHealthEndpoints;
use crate::metrics::KmsMetrics;
use crate::server::{KmsServeError, KmsServer};

/// The process ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsProcessError {
    /// The socket of the API server could not be served.
    #[error(transparent)]
    Socket(#[from] KmsServeError),
    /// An HTTP listener failed.
    #[error("{endpoints}")]
    Http {
        /// The endpoints of the listener.
        endpoints: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A task ended although nothing ends it.
    #[error("a task of the process ended unexpectedly")]
    Ended,
    /// A task panicked.
    #[error("a task of the process panicked")]
    Panicked(#[from] JoinError),
}

impl ErrorHint for KmsProcessError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Socket(error) => error.hint(),
            _ => None,
        }
    }
}

/// The HTTP listeners for monitoring systems and probes.
#[derive(Debug)]
pub struct KmsHttpListeners {
    metrics: Option<BoundListener>,
    health: Option<BoundListener>,
}

impl KmsHttpListeners {
    /// Binds the addresses of the metrics and of the health endpoints.
    ///
    /// # Errors
    ///
    /// [`ListenError`] if an address cannot be bound.
    pub async fn bind(metrics: ListenAddress, health: ListenAddress) -> Result<Self, ListenError> {
        let metrics = BoundListener::bind(metrics).await?;
        Ok(Self { metrics, health: BoundListener::bind(health).await? })
    }

    /// Serves the socket and the HTTP endpoints until shutdown is requested. Ends if one of them fails, because a
    /// partially working process would look alive. The socket determines the end: slow HTTP connections delay it by
    /// at most 1 s.
    ///
    /// # Errors
    ///
    /// [`KmsProcessError`] of the first task that failed.
    pub async fn serve(
        self,
        server: KmsServer,
        (health, health_path): (KmsHealthEndpoints, &str),
        metrics: &KmsMetrics,
        stop_requested: impl Future<Output = ()>,
    ) -> Result<(), KmsProcessError> {
        let (end, _) = watch::channel(false);
        let ended = || {
            let mut end = end.subscribe();
            async move { drop(end.wait_for(|ended| *ended).await) }
        };
        let clock = Arc::clone(&server.clock);
        let timeout = HTTP_SHUTDOWN_TIMEOUT.min(server.drain);
        let (mut socket, mut served) = (KmsTasks::new(), KmsTasks::new());
        let listeners = [
            ("the metrics endpoint", self.metrics, metrics_routes(metrics_page(metrics))),
            ("the health endpoints", self.health, health.routes(health_path)),
        ];
        for (endpoints, listening, routes) in listeners {
            let Some(listening) = listening else { continue };
            tracing::info!(address = %listening.address(), "serving {endpoints}");
            let serving = listening.serve(routes, Arc::clone(&clock), ended());
            let broken = move |source| KmsProcessError::Http { endpoints, source };
            served.spawn(async move { serving.await.map_err(broken) });
        }
        let serving = server.run(ended());
        socket.spawn(async move { Ok(serving.await?) });
        let unexpected_end = |task| task_result(task).and(Err(KmsProcessError::Ended));
        let first = tokio::select! {
            () = stop_requested => Ok(()),
            Some(task) = socket.join_next() => unexpected_end(task),
            Some(task) = served.join_next() => unexpected_end(task),
        };
        end.send_replace(true);
        let outcome = first.and(join_all_tasks(&mut socket).await);
        let http_result = tokio::select! {
            biased;
            ended = join_all_tasks(&mut served) => ended,
            () = clock.sleep(timeout) => {
                tracing::info!(waited = ?timeout, "closing the remaining HTTP connections");
                Ok(())
            }
        };
        outcome.and(http_result)
    }
}

/// How long HTTP connections may continue after the socket has closed.
const HTTP_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks of the process.
type KmsTasks = JoinSet<Result<(), KmsProcessError>>;

/// Waits for all tasks and returns the first error.
async fn join_all_tasks(tasks: &mut KmsTasks) -> Result<(), KmsProcessError> {
    let mut outcome = Ok(());
    while let Some(task) = tasks.join_next().await {
        outcome = outcome.and(task_result(task));
    }
    outcome
}

fn task_result(
    task: Result<Result<(), KmsProcessError>, JoinError>,
) -> Result<(), KmsProcessError> {
    task.unwrap_or_else(|error| Err(error.into()))
}

fn metrics_page(metrics: &KmsMetrics) -> MetricsPage {
    MetricsPage::of_process(env!("CARGO_PKG_VERSION"), |registry| metrics.register(registry))
}

#[cfg(test)]
mod tests;
