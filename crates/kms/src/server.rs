//! The socket for the API server.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_grpc::kms_v1beta1::key_management_service_server::KeyManagementServiceServer as ServerV1;
use lanyard_grpc::kms_v2::key_management_service_server::KeyManagementServiceServer as ServerV2;
use lanyard_grpc::{IncomingConnections, PrivateSocket, SocketError, SocketFile};
use lanyard_telemetry::ReadinessGate;
use lanyard_vocabulary::format_error_chain;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tonic::service::Routes;
use tonic::transport::Server;

use crate::plugin::KmsPlugin;
use crate::service::{KmsV1Service, KmsV2Service};

/// Serves both versions of the KMS API on one socket, which only the user of the process can open.
#[derive(Debug)]
pub struct KmsServer {
    /// The socket. What a dead process left there is replaced; a living one is waited out.
    pub socket: PathBuf,
    /// What is served.
    pub plugin: KmsPlugin,
    /// Open while the socket listens.
    pub gate: ReadinessGate,
    /// How long calls in flight may take when the end has begun.
    pub drain: Duration,
    /// The time.
    pub clock: SharedClock,
}

/// The socket could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsServeError {
    /// It could not be made.
    #[error("the socket for the API server cannot be made")]
    Socket(#[from] SocketError),
    /// The server ended by itself.
    #[error("what serves {} ended by itself", socket.display())]
    Ended {
        /// The socket.
        socket: PathBuf,
        /// Why, if it said so.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The server broke off.
    #[error("what serves the socket broke off")]
    TaskFailed(#[from] JoinError),
}

impl KmsServeError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Socket(error) => error.hint().to_owned(),
            Self::Ended { .. } | Self::TaskFailed(_) => {
                "start it again, and see what the log says before the end".to_owned()
            }
        }
    }
}

type KmsServerTask = JoinHandle<Result<(), tonic::transport::Error>>;

impl KmsServer {
    /// Serves until `end` is ready, and then until the calls in flight are answered. A socket that
    /// is removed is made again.
    ///
    /// # Errors
    ///
    /// [`KmsServeError`] where there can be no socket at the path, and where the server ended by
    /// itself.
    pub async fn run(self, end: impl Future<Output = ()> + Send) -> Result<(), KmsServeError> {
        let mut end = pin!(end);
        let mut had_one = false;
        loop {
            let (incoming, file) = tokio::select! {
                opened = self.bind_socket(had_one) => opened?,
                () = &mut end => return Ok(()),
            };
            let (close, mut serving) = self.serve(incoming);
            self.gate.open();
            had_one = true;
            let is_end = tokio::select! {
                () = &mut end => true,
                () = self.wait_until_socket_removed(&file) => false,
                ended = &mut serving => return Err(self.ended_error(ended?)),
            };
            // Nobody new comes in; who is in is served.
            drop((file, close));
            if is_end {
                self.gate.close("the process ends");
                return self.drain(serving).await;
            }
            self.gate.close("the socket was removed");
            tracing::warn!(socket = %self.socket.display(), "the socket was removed and is made again");
        }
    }

    /// The socket, as soon as it can be had: an instance that is being replaced still has it. A path
    /// where there was one can have one again; where there was none it is taken for a mistake.
    async fn bind_socket(
        &self,
        had_one: bool,
    ) -> Result<(IncomingConnections, SocketFile), KmsServeError> {
        let mut told = None;
        loop {
            match PrivateSocket::bind(&self.socket) {
                Ok(socket) => {
                    tracing::info!(socket = %self.socket.display(), "listening");
                    return Ok(socket.split());
                }
                Err(error) if is_bind_retryable(&error, had_one) => {
                    let reason = format_error_chain(&error);
                    if told.as_ref() != Some(&reason) {
                        tracing::warn!(hint = error.hint(), "{reason}; trying again");
                        self.gate.close(reason.clone());
                        told = Some(reason);
                    }
                }
                Err(error) => return Err(error.into()),
            }
            self.clock.sleep(SOCKET_POLL_INTERVAL).await;
        }
    }

    fn serve(&self, incoming: IncomingConnections) -> (oneshot::Sender<()>, KmsServerTask) {
        let routes = Routes::default()
            .add_service(ServerV2::new(KmsV2Service(self.plugin.clone())))
            .add_service(ServerV1::new(KmsV1Service(self.plugin.clone())));
        let (close, closed) = oneshot::channel::<()>();
        let server = Server::builder().max_concurrent_streams(MAX_CONCURRENT_STREAMS);
        let serving = async move {
            let closed = async { drop(closed.await) };
            let mut server = server;
            server.add_routes(routes).serve_with_incoming_shutdown(incoming, closed).await
        };
        (close, tokio::spawn(serving))
    }

    async fn wait_until_socket_removed(&self, file: &SocketFile) {
        while file.is_in_place() {
            self.clock.sleep(SOCKET_POLL_INTERVAL).await;
        }
    }

    async fn drain(&self, mut serving: KmsServerTask) -> Result<(), KmsServeError> {
        tokio::select! {
            biased;
            ended = &mut serving => match ended? {
                Ok(()) => Ok(()),
                failed => Err(self.ended_error(failed)),
            },
            () = self.clock.sleep(self.drain) => {
                tracing::warn!(waited = ?self.drain, "calls in flight are left unanswered");
                serving.abort();
                Ok(())
            }
        }
    }

    fn ended_error(&self, ended: Result<(), tonic::transport::Error>) -> KmsServeError {
        KmsServeError::Ended { socket: self.socket.clone(), source: ended.err() }
    }
}

/// Whether the same path is tried again.
const fn is_bind_retryable(error: &SocketError, had_one: bool) -> bool {
    matches!(error, SocketError::InUse { .. }) || (had_one && error.is_transient())
}

/// How soon a lost socket is noticed, and a taken one tried again.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Calls at once on one connection: an API server that begins reads many seeds.
const MAX_CONCURRENT_STREAMS: u32 = 512;

#[cfg(test)]
mod tests;
