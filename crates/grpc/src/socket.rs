//! Unix sockets that only one user can open, and clients of unix sockets.
//!
//! File permissions are the trust boundary on a node: every process that can open a socket may use
//! it. A [`PrivateSocket`] therefore has mode 0600 before it is visible, whatever the umask, and
//! gets its name only when it already listens.

mod authority_rewriter;
mod connection;
mod error;
mod socket_file;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

pub use self::connection::SocketConnection;
pub use self::error::SocketError;
use self::error::SocketOperation;
pub use self::socket_file::SocketFile;
use self::socket_file::SocketLocation;

/// The longest path of a unix socket in bytes (unix(7): `sun_path` without the terminating zero).
pub const MAX_SOCKET_PATH: usize = 107;

/// A listening unix socket that only its owner can open.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    file: SocketFile,
}

impl PrivateSocket {
    /// Binds and listens. Replaces a stale socket of an exited process at `path`. Requires a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if the path is too long for a socket, another process listens on it, a file
    /// that is not a socket exists there, or a system call fails.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(SocketError::TooLong { path: path.to_owned(), length });
        }
        let location = SocketLocation::open(path)?;
        location.check_unoccupied()?;
        let listener = bind_temporary(&location)?;
        let file = location.rename_into_place()?;
        Ok(Self { listener, file })
    }

    /// Splits the socket into its connections and its file. Dropping the file removes the path;
    /// open connections continue.
    pub fn split(self) -> (IncomingConnections, SocketFile) {
        (IncomingConnections(self.listener), self.file)
    }
}

/// The incoming connections of a [`PrivateSocket`], as a stream for a server.
#[derive(Debug)]
pub struct IncomingConnections(UnixListener);

impl Stream for IncomingConnections {
    type Item = io::Result<SocketConnection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .poll_accept(context)
            .map(|accepted| Some(accepted.map(|(stream, _)| SocketConnection::new(stream))))
    }
}

/// A client channel to the socket at `path`, with the authority `localhost` that kubelet, drivers
/// and providers send.
///
/// The channel connects with its first call, and reconnects after a server restart. Without a
/// server, a call fails with `UNAVAILABLE`.
pub fn channel_to_socket(path: &Path) -> Channel {
    let path: Arc<Path> = path.into();
    let connector = service_fn(move |_| {
        let path = Arc::clone(&path);
        async move { UnixStream::connect(&*path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// Binds a socket under the temporary name of its location.
fn bind_temporary(location: &SocketLocation) -> Result<UnixListener, SocketError> {
    let socket =
        private_socket().map_err(|error| location.io_error(SocketOperation::Create, error))?;
    location.remove_stale()?;
    let bind = || {
        let address = SocketAddrUnix::new(location.temporary_path())?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)
    };
    bind().map_err(|error| location.io_error(SocketOperation::Bind, error.into()))?;
    UnixListener::from_std(StdListener::from(socket))
        .map_err(|error| location.io_error(SocketOperation::Bind, error))
}

/// Creates a socket with mode 0600. On Linux, the socket file gets the mode that the socket has at
/// `bind`.
fn private_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    Ok(socket)
}

/// The accept backlog: a kubelet opens one connection for each of many pods that start at once.
const LISTEN_BACKLOG: i32 = 1024;
