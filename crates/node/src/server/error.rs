//! What ends a node other than its supervisor.

use std::path::PathBuf;

use lanyard_grpc::SocketError;
use tokio::task::JoinError;

use crate::registration::RegistrationRefused;

/// A node could not go on serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A socket can never be bound.
    #[error("could not serve on a socket")]
    Socket(#[from] SocketError),
    /// The server on a socket ended.
    #[error("the server on {} ended", path.display())]
    Ended {
        /// The socket.
        path: PathBuf,
        /// Why, where it was said.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The kubelet did not take the driver.
    #[error("the driver is not registered")]
    Refused(#[source] RegistrationRefused),
    /// A part of the process broke.
    #[error("a part of the process broke")]
    Broken(#[from] JoinError),
}

impl ServeError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Socket(error) => error.hint(),
            Self::Refused(refused) => refused.hint(),
            Self::Ended { .. } | Self::Broken(_) => {
                "start the node plugin again, and report this with its log"
            }
        }
    }
}
