//! What ends a node other than its supervisor.

use std::path::PathBuf;

use lanyard_grpc::SocketError;
use tokio::task::JoinError;

use crate::registration::RegistrationRejectedError;

/// A node could not go on serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeServeError {
    /// A socket can never be bound.
    #[error("could not serve on a socket")]
    Socket(#[from] SocketError),
    /// The server on a socket ended.
    #[error("the server on {} ended", path.display())]
    ServerEnded {
        /// The socket.
        path: PathBuf,
        /// Why, where it was said.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The kubelet did not take the driver.
    #[error("the driver is not registered")]
    RegistrationRejected(#[source] RegistrationRejectedError),
    /// A part of the process broke.
    #[error("a part of the process broke")]
    TaskFailed(#[from] JoinError),
}

impl NodeServeError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Socket(error) => error.hint(),
            Self::RegistrationRejected(refused) => refused.hint(),
            Self::ServerEnded { .. } | Self::TaskFailed(_) => {
                "start the node plugin again, and report this with its log"
            }
        }
    }
}
