//! The gRPC server on the socket for the API server.

use std::borrow::Cow;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use lanyard_clock::{ErrorHint, SharedClock};
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

/// Serves both versions of the KMS API on one unix socket that only the process's user can open.
#[derive(Debug)]
pub struct KmsServer {
    /// The path of the socket. A stale socket of an exited process is replaced; a socket with a
    /// running server is waited for.
    pub socket: PathBuf,
    /// The plugin that is served.
    pub plugin: KmsPlugin,
    /// The readiness gate: open while the socket listens.
    pub gate: ReadinessGate,
    /// How long calls in flight may take after shutdown starts.
    pub drain: Duration,
    /// The source of time.
    pub clock: SharedClock,
}

/// The socket could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KmsServeError {
    /// The socket could not be created.
    #[error("cannot create the socket for the API server")]
    Socket(#[from] SocketError),
    /// The server stopped although it was not asked to.
    #[error("the server on {} stopped unexpectedly", socket.display())]
    Ended {
        socket: PathBuf,
        /// The server's error, if it reported one.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The server task panicked or was cancelled.
    #[error("the server task of the socket failed")]
    TaskFailed(#[from] JoinError),
}

impl ErrorHint for KmsServeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Socket(error) => return error.hint(),
            Self::Ended { .. } | Self::TaskFailed(_) => {
                "restart the plugin, and check the last lines of its log"
            }
        }))
    }
}

type KmsServerTask = JoinHandle<Result<(), tonic::transport::Error>>;

impl KmsServer {
    /// Serves until `end` completes, and then until the calls in flight are answered or the drain
    /// time is over. Creates the socket again if it is removed.
    ///
    /// # Errors
    ///
    /// [`KmsServeError`] if the socket cannot be created or the server stops unexpectedly.
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
            // Stop accepting connections; open ones stay.
            drop((file, close));
            if is_end {
                self.gate.close("the process ends");
                return self.drain(serving).await;
            }
            self.gate.close("the socket was removed");
            tracing::warn!(socket = %self.socket.display(), "the socket was removed; creating it again");
        }
    }

    /// Binds the socket, and waits while another instance, for example one that is being replaced,
    /// listens on it. Errors at a path that worked before are retried; at the first bind they are
    /// returned, because the path is probably wrong.
    async fn bind_socket(
        &self,
        had_one: bool,
    ) -> Result<(IncomingConnections, SocketFile), KmsServeError> {
        let mut last_reason = None;
        loop {
            match PrivateSocket::bind(&self.socket) {
                Ok(socket) => {
                    tracing::info!(socket = %self.socket.display(), "listening");
                    return Ok(socket.split());
                }
                Err(error) if is_bind_retryable(&error, had_one) => {
                    let reason = format_error_chain(&error);
                    if last_reason.as_ref() != Some(&reason) {
                        tracing::warn!(hint = error.hint().as_deref(), "{reason}; trying again");
                        self.gate.close(reason.clone());
                        last_reason = Some(reason);
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
                tracing::warn!(waited = ?self.drain, "the drain time is over: aborting the calls in flight");
                serving.abort();
                Ok(())
            }
        }
    }

    fn ended_error(&self, ended: Result<(), tonic::transport::Error>) -> KmsServeError {
        KmsServeError::Ended { socket: self.socket.clone(), source: ended.err() }
    }
}

/// Whether binding the same path may succeed later.
const fn is_bind_retryable(error: &SocketError, had_one: bool) -> bool {
    matches!(error, SocketError::InUse { .. }) || (had_one && error.is_transient())
}

/// How often the server checks for a removed socket, and retries a socket that is in use.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The limit of concurrent calls on one connection: a starting API server decrypts many seeds.
const MAX_CONCURRENT_STREAMS: u32 = 512;

#[cfg(test)]
mod tests;
