//! A server that keeps its socket in place.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::{Stream, StreamExt};
use lanyard_clock::{ErrorHint as _, SharedClock};
use lanyard_grpc::{IncomingConnections, PrivateSocket, SocketFile};
use lanyard_telemetry::ReadinessGate;
use lanyard_vocabulary::format_error_chain;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;

use super::error::NodeServeError;
use super::shutdown::ShutdownSignal;
use crate::csi::GrpcMetricsLayer;
use crate::metrics::NodeMetrics;

/// Serves one socket, and recreates it when the socket or its directory is removed, as a kubelet does when it
/// is set up again.
#[derive(Debug)]
pub(super) struct SocketServer {
    pub(super) path: PathBuf,
    /// Closed while clients cannot connect.
    pub(super) gate: ReadinessGate,
    /// Whether the gate opens as soon as the socket listens.
    pub(super) opens_gate: bool,
    pub(super) shutdown: ShutdownSignal,
    pub(super) metrics: NodeMetrics,
    pub(super) clock: SharedClock,
}

type ServerTask = JoinHandle<Result<(), tonic::transport::Error>>;

impl SocketServer {
    /// Serves until the shutdown starts, then drains the calls in flight.
    pub(super) async fn serve_until_shutdown(self, routes: Routes) -> Result<(), NodeServeError> {
        while let Some((incoming, file)) = self.bind_with_retry().await? {
            let (close, mut serving) = self.spawn_server(incoming, routes.clone());
            if self.opens_gate {
                self.gate.open();
            }
            let ended = tokio::select! {
                deadline = self.shutdown.wait() => Some(deadline),
                () = self.wait_until_removed(&file) => None,
                ended = &mut serving => return Err(self.ended_error(ended?)),
            };
            let reason =
                if ended.is_some() { "the process ends" } else { "the socket was removed" };
            self.gate.close(reason);
            // Stop accepting connections; open connections are still served.
            drop(file);
            drop(close);
            if let Some(deadline) = ended {
                return self.drain(serving, deadline).await;
            }
            tracing::warn!(socket = %self.path.display(), "the socket was removed; creating it again");
        }
        Ok(())
    }

    /// Binds the socket, retrying until it succeeds. Returns `None` if the shutdown starts first.
    async fn bind_with_retry(
        &self,
    ) -> Result<Option<(IncomingConnections, SocketFile)>, NodeServeError> {
        let mut reported = None;
        loop {
            match PrivateSocket::bind(&self.path) {
                Ok(socket) => {
                    tracing::info!(socket = %self.path.display(), "listening");
                    return Ok(Some(socket.split()));
                }
                Err(error) if error.is_transient() => {
                    let reason = format_error_chain(&error);
                    if reported.as_ref() != Some(&reason) {
                        tracing::warn!(hint = error.hint().as_deref(), "{reason}; trying again");
                        self.gate.close(reason.clone());
                        reported = Some(reason);
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                _ = self.shutdown.wait() => return Ok(None),
                () = self.clock.sleep(POLL_INTERVAL) => {}
            }
        }
    }

    fn spawn_server(
        &self,
        incoming: IncomingConnections,
        routes: Routes,
    ) -> (oneshot::Sender<()>, ServerTask) {
        let (close, closed) = oneshot::channel::<()>();
        let incoming = pause_on_accept_error(incoming, SharedClock::clone(&self.clock));
        let count = GrpcMetricsLayer::new(self.metrics.clone(), SharedClock::clone(&self.clock));
        let server = Server::builder().max_concurrent_streams(MAX_CONCURRENT_STREAMS).layer(count);
        let serving = async move {
            let closed = async { drop(closed.await) };
            server.serve_with_incoming_shutdown(routes, incoming, closed).await
        };
        (close, tokio::spawn(serving))
    }

    async fn wait_until_removed(&self, file: &SocketFile) {
        while file.is_in_place() {
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn drain(
        &self,
        mut serving: ServerTask,
        deadline: Duration,
    ) -> Result<(), NodeServeError> {
        let left = deadline.saturating_sub(self.clock.monotonic());
        tokio::select! {
            biased;
            ended = &mut serving => {
                ended?.map_err(|source| self.ended_error(Err(source)))
            }
            () = self.clock.sleep(left) => {
                let (socket, waited) = (self.path.display(), left);
                tracing::warn!(%socket, ?waited, "the drain deadline passed: closing the socket with calls in flight");
                serving.abort();
                Ok(())
            }
        }
    }

    fn ended_error(&self, ended: Result<(), tonic::transport::Error>) -> NodeServeError {
        NodeServeError::ServerEnded { path: self.path.clone(), source: ended.err() }
    }
}

/// Pauses after an accept error if the next accept fails as well: without file descriptors or memory the call
/// fails again immediately, and the server would retry in a busy loop.
fn pause_on_accept_error<T>(
    incoming: impl Stream<Item = io::Result<T>>,
    clock: SharedClock,
) -> impl Stream<Item = io::Result<T>> {
    incoming.then(move |accepted| {
        let clock = SharedClock::clone(&clock);
        async move {
            let problem = accepted.as_ref().err();
            let problem = problem.filter(|it| it.kind() != io::ErrorKind::ConnectionAborted);
            if let Some(reason) = problem.map(ToString::to_string) {
                tracing::warn!(reason, "could not accept a connection");
                clock.sleep(ACCEPT_ERROR_PAUSE).await;
            }
            accepted
        }
    })
}

/// The pause after repeated accept errors.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_secs(1);

/// How often the server checks for a removed socket, and retries to bind an occupied one.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of concurrent calls per connection. The kubelet opens one connection per call; an
/// upstream driver uses one connection for all calls.
const MAX_CONCURRENT_STREAMS: u32 = 512;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lanyard_clock::{Clock, ManualClock};
    use lanyard_telemetry::Readiness;

    use super::super::shutdown::ShutdownTrigger;
    use super::*;

    #[tokio::test]
    async fn server_pauses_after_accept_errors() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let none_left = || Err(io::Error::from(rustix::io::Errno::MFILE));
        let aborted = || Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        let incoming = futures::stream::iter([aborted(), none_left(), Ok(1)]);
        let mut incoming = Box::pin(pause_on_accept_error(incoming, Arc::new(clock.clone())));
        assert!(
            futures::poll!(incoming.next()).is_ready(),
            "a single accept error causes no pause"
        );
        for _ in 0..3 {
            assert!(futures::poll!(incoming.next()).is_pending());
        }
        clock.advance(ACCEPT_ERROR_PAUSE);
        assert!(incoming.next().await.unwrap().is_err());
        assert_eq!(incoming.next().await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn in_flight_calls_are_drained_until_the_shared_deadline() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let shared: SharedClock = Arc::new(clock.clone());
        let end = ShutdownTrigger::default();
        let server = SocketServer {
            path: PathBuf::from("csi.sock"),
            gate: Readiness::default().add_gate("csi socket", "not listening yet"),
            opens_gate: true,
            shutdown: end.subscribe(),
            metrics: NodeMetrics::new(SharedClock::clone(&shared)),
            clock: shared,
        };
        let deadline = clock.monotonic() + Duration::from_secs(20);
        end.trigger(deadline);
        // Draining another socket used up most of the time.
        clock.advance(Duration::from_secs(15));
        let reported = server.shutdown.wait().await;
        assert_eq!(reported, deadline);
        let mut draining = Box::pin(server.drain(tokio::spawn(std::future::pending()), reported));
        assert!(futures::poll!(&mut draining).is_pending());
        clock.advance(Duration::from_secs(5));
        draining.await.unwrap();
    }
}
