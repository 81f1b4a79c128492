//! Errors that stop the node plugin's server.

use std::borrow::Cow;
use std::path::PathBuf;

use lanyard_clock::ErrorHint;
use lanyard_grpc::SocketError;
use tokio::task::JoinError;

use crate::registration::RegistrationRejectedError;

/// The node plugin cannot continue to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeServeError {
    /// A socket can never be bound.
    #[error("could not serve on a socket")]
    Socket(#[from] SocketError),
    /// The server of a socket ended unexpectedly.
    #[error("the server on {} ended", path.display())]
    ServerEnded {
        /// The path of the socket.
        path: PathBuf,
        /// The cause, if known.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The kubelet rejected the driver.
    #[error("the driver is not registered")]
    RegistrationRejected(#[source] RegistrationRejectedError),
    /// A task of the server panicked.
    #[error("a task of the server failed")]
    TaskFailed(#[from] JoinError),
}

impl ErrorHint for NodeServeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Socket(error) => return error.hint(),
            Self::RegistrationRejected(refused) => return refused.hint(),
            Self::ServerEnded { .. } | Self::TaskFailed(_) => {
                "restart the node plugin, and report this error with its log"
            }
        }))
    }
}
