//! A socket that is kept in place.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::{Stream, StreamExt};
use lanyard_clock::SharedClock;
use lanyard_grpc::{Incoming, PrivateSocket, SocketFile};
use lanyard_telemetry::Gate;
use lanyard_vocabulary::causes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::Server;

use super::ending::Ending;
use super::error::ServeError;
use crate::csi::CountCalls;
use crate::metrics::NodeMetrics;

/// Serves on a socket, and makes it anew when somebody removes it or its directory: a kubelet that
/// is set up again does.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) path: PathBuf,
    /// Closed while nobody can come in.
    pub(super) gate: Gate,
    /// Whether the gate is open as soon as the socket listens.
    pub(super) opens_gate: bool,
    pub(super) ending: Ending,
    pub(super) metrics: NodeMetrics,
    pub(super) clock: SharedClock,
}

type Serving = JoinHandle<Result<(), tonic::transport::Error>>;

impl Door {
    /// Serves until the end begins, and then until the calls in flight are answered.
    pub(super) async fn keep(self, routes: Routes) -> Result<(), ServeError> {
        while let Some((incoming, file)) = self.open().await? {
            let (close, mut serving) = self.serve(incoming, routes.clone());
            if self.opens_gate {
                self.gate.open();
            }
            let ended = tokio::select! {
                deadline = self.ending.begun() => Some(deadline),
                () = self.lost(&file) => None,
                ended = &mut serving => return Err(self.broken(ended?)),
            };
            let reason =
                if ended.is_some() { "the process ends" } else { "the socket was removed" };
            self.gate.close(reason);
            // Nobody new comes in; who is in is served.
            drop(file);
            drop(close);
            if let Some(deadline) = ended {
                return self.drain(serving, deadline).await;
            }
            tracing::warn!(socket = %self.path.display(), "the socket was removed and is made again");
        }
        Ok(())
    }

    /// The socket, as soon as it can be had; nothing if the end comes first.
    async fn open(&self) -> Result<Option<(Incoming, SocketFile)>, ServeError> {
        let mut told = None;
        loop {
            match PrivateSocket::bind(&self.path) {
                Ok(socket) => {
                    tracing::info!(socket = %self.path.display(), "listening");
                    return Ok(Some(socket.split()));
                }
                Err(error) if error.is_transient() => {
                    let reason = causes(&error);
                    if told.as_ref() != Some(&reason) {
                        tracing::warn!(hint = error.hint(), "{reason}; trying again");
                        self.gate.close(reason.clone());
                        told = Some(reason);
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                _ = self.ending.begun() => return Ok(None),
                () = self.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn serve(&self, incoming: Incoming, routes: Routes) -> (oneshot::Sender<()>, Serving) {
        let (close, closed) = oneshot::channel::<()>();
        let incoming = patient(incoming, SharedClock::clone(&self.clock));
        let count = CountCalls::new(self.metrics.clone(), SharedClock::clone(&self.clock));
        let server = Server::builder().max_concurrent_streams(MOST_STREAMS).layer(count);
        let serving = async move {
            let closed = async { drop(closed.await) };
            server.serve_with_incoming_shutdown(routes, incoming, closed).await
        };
        (close, tokio::spawn(serving))
    }

    async fn lost(&self, file: &SocketFile) {
        while file.is_in_place() {
            self.clock.sleep(LOOK_EVERY).await;
        }
    }

    async fn drain(&self, mut serving: Serving, deadline: Duration) -> Result<(), ServeError> {
        let left = deadline.saturating_sub(self.clock.monotonic());
        tokio::select! {
            biased;
            ended = &mut serving => {
                ended?.map_err(|source| self.broken(Err(source)))
            }
            () = self.clock.sleep(left) => {
                let (socket, waited) = (self.path.display(), left);
                tracing::warn!(%socket, ?waited, "calls in flight are left unanswered");
                serving.abort();
                Ok(())
            }
        }
    }

    fn broken(&self, ended: Result<(), tonic::transport::Error>) -> ServeError {
        ServeError::Ended { path: self.path.clone(), source: ended.err() }
    }
}

/// Rests after a connection that could not be taken, if the next one cannot be either: without
/// descriptors or memory the call fails again at once, and the server asks again at once.
fn patient<T>(
    incoming: impl Stream<Item = io::Result<T>>,
    clock: SharedClock,
) -> impl Stream<Item = io::Result<T>> {
    incoming.then(move |accepted| {
        let clock = SharedClock::clone(&clock);
        async move {
            let problem = accepted.as_ref().err();
            let problem = problem.filter(|it| it.kind() != io::ErrorKind::ConnectionAborted);
            if let Some(reason) = problem.map(ToString::to_string) {
                tracing::warn!(reason, "no connection can be taken now");
                clock.sleep(REST).await;
            }
            accepted
        }
    })
}

/// How long nobody is let in after that.
const REST: Duration = Duration::from_secs(1);

/// How soon a lost socket is noticed, and a taken one tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Calls at once on one connection. The kubelet makes one connection for each call; an upstream
/// driver has one for all.
const MOST_STREAMS: u32 = 512;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lanyard_clock::{Clock, ManualClock};
    use lanyard_telemetry::Readiness;

    use super::super::ending::End;
    use super::*;

    #[tokio::test]
    async fn without_descriptors_the_server_rests_instead_of_asking_without_end() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let none_left = || Err(io::Error::from(rustix::io::Errno::MFILE));
        let aborted = || Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        let incoming = futures::stream::iter([aborted(), none_left(), Ok(1)]);
        let mut incoming = Box::pin(patient(incoming, Arc::new(clock.clone())));
        assert!(futures::poll!(incoming.next()).is_ready(), "that concerned one client");
        for _ in 0..3 {
            assert!(futures::poll!(incoming.next()).is_pending());
        }
        clock.advance(REST);
        assert!(incoming.next().await.unwrap().is_err());
        assert_eq!(incoming.next().await.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn calls_in_flight_are_answered_until_the_deadline_however_late_their_socket_closes() {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let shared: SharedClock = Arc::new(clock.clone());
        let end = End::default();
        let door = Door {
            path: PathBuf::from("csi.sock"),
            gate: Readiness::default().gate("csi socket", "does not listen yet"),
            opens_gate: true,
            ending: end.ending(),
            metrics: NodeMetrics::new(SharedClock::clone(&shared)),
            clock: shared,
        };
        let deadline = clock.monotonic() + Duration::from_secs(20);
        end.begin(deadline);
        // Another socket took most of the time.
        clock.advance(Duration::from_secs(15));
        let told = door.ending.begun().await;
        assert_eq!(told, deadline);
        let mut draining = Box::pin(door.drain(tokio::spawn(std::future::pending()), told));
        assert!(futures::poll!(&mut draining).is_pending());
        clock.advance(Duration::from_secs(5));
        draining.await.unwrap();
    }
}
