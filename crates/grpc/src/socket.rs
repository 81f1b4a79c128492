//! Sockets that belong to one user from their birth on, and clients of such sockets.
//!
//! Trust on a node is by file permissions: whoever can open a socket may use it. A
//! [`PrivateSocket`] therefore has mode 0600 before anybody can see it, whatever the umask, and
//! appears under its name only when it listens already.

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

/// The longest path of a unix socket, in bytes (unix(7): `sun_path` without its final zero).
pub const MAX_SOCKET_PATH: usize = 107;

/// A listening unix socket that only its owner can open.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    file: SocketFile,
}

impl PrivateSocket {
    /// Binds and listens. What a dead process left at `path` is replaced.
    ///
    /// # Errors
    ///
    /// Where the path is too long for a socket, where somebody listens there already, where
    /// something other than a socket is there, and where a system call fails. Needs a tokio
    /// runtime.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(SocketError::TooLong { path: path.to_owned(), length });
        }
        let place = SocketLocation::open(path)?;
        place.check_unoccupied()?;
        let listener = bind_temporary(&place)?;
        let file = place.rename_into_place()?;
        Ok(Self { listener, file })
    }

    /// The connections, and the name in the file system. The name goes when it is dropped, and
    /// the connections go on without it.
    pub fn split(self) -> (IncomingConnections, SocketFile) {
        (IncomingConnections(self.listener), self.file)
    }
}

/// The connections to a [`PrivateSocket`], as a stream for a server.
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

/// A client's channel to the socket at `path`, with the authority `localhost` that kubelet,
/// drivers and providers send.
///
/// It connects at its first call, and again after the server went away; a call that finds nobody
/// fails with `UNAVAILABLE`.
pub fn channel_to_socket(path: &Path) -> Channel {
    let path: Arc<Path> = path.into();
    let connector = service_fn(move |_| {
        let path = Arc::clone(&path);
        async move { UnixStream::connect(&*path).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// A socket under the hidden name of its place.
fn bind_temporary(place: &SocketLocation) -> Result<UnixListener, SocketError> {
    let socket =
        private_socket().map_err(|error| place.io_error(SocketOperation::Create, error))?;
    place.remove_stale()?;
    let bind = || {
        let address = SocketAddrUnix::new(place.temporary_path())?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)
    };
    bind().map_err(|error| place.io_error(SocketOperation::Bind, error.into()))?;
    UnixListener::from_std(StdListener::from(socket))
        .map_err(|error| place.io_error(SocketOperation::Bind, error))
}

/// On Linux the file of a socket gets the mode that the socket had when it was bound.
fn private_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    Ok(socket)
}

/// How many connections may wait: a kubelet that publishes for many pods at once opens one each.
const LISTEN_BACKLOG: i32 = 1024;
