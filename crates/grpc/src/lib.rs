//! gRPC wire types of CSI, of kubelet registration, of Secrets Store providers and of the
//! Kubernetes KMS API, and the sockets that they travel on.
//!
//! The messages are generated from `proto/` by `cargo xtask codegen`. Those that carry secrets
//! print no values and are wiped when dropped, so their fields are taken with
//! [`std::mem::take`].
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
//! // A server takes `incoming`; a client finds it by its path.
//! let client = IdentityClient::new(lanyard_grpc::connect(&path));
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
