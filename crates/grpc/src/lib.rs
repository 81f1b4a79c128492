//! gRPC types of CSI, kubelet plugin registration, Secrets Store providers and the Kubernetes KMS
//! API, and the unix sockets for them.
//!
//! `cargo xtask codegen` generates the messages from `proto/`. Messages that carry secrets print no
//! values in `Debug` and are zeroized when dropped, so take their fields with [`std::mem::take`].
//!
//! ```
//! use lanyard_grpc::PrivateSocket;
//! use lanyard_grpc::csi::identity_client::IdentityClient;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("csi.sock");
//! let (incoming, file) = PrivateSocket::bind(&path)?.split();
//! assert!(file.is_in_place());
//! // A server uses `incoming`; a client connects to the path.
//! let client = IdentityClient::new(lanyard_grpc::channel_to_socket(&path));
//! # drop((incoming, client));
//! drop(file);
//! assert!(!path.exists());
//! # Ok(())
//! # }
//! ```

mod generated;
mod redacted_debug;
mod socket;
mod zeroize_on_drop;

pub use generated::{csi, kms_v1beta1, kms_v2, provider, registration};
pub use socket::{
    IncomingConnections, MAX_SOCKET_PATH, PrivateSocket, SocketConnection, SocketError, SocketFile,
    channel_to_socket,
};
