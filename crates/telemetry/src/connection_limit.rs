//! Limits the number and age of connections to the HTTP endpoints. Every client that reaches the
//! port can open connections, and each uses a file descriptor that volumes need, too.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use lanyard_clock::{SharedClock, SleepFuture};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Accepts at most [`MAX_CONNECTIONS`] connections at a time; others wait in the kernel's queue.
pub(crate) struct ConnectionLimitListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    clock: SharedClock,
}

/// A TCP connection whose reads and writes fail with `TimedOut` once it is older than [`MAX_CONNECTION_AGE`],
/// even if it is in use.
pub(crate) struct MaxAgeConnection {
    stream: TcpStream,
    deadline: SleepFuture,
    timed_out: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimitListener {
    pub(crate) fn new(listener: TcpListener, clock: SharedClock) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)), clock }
    }
}

impl Listener for ConnectionLimitListener {
    type Io = MaxAgeConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let deadline = self.clock.sleep(MAX_CONNECTION_AGE);
        (MaxAgeConnection { stream, deadline, timed_out: false, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl MaxAgeConnection {
    /// Fails if the connection is too old.
    fn check_deadline(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.timed_out = self.timed_out || self.deadline.as_mut().poll(context).is_ready();
        if self.timed_out { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl AsyncRead for MaxAgeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for MaxAgeConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_deadline(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Enough for a monitoring system and one connection per kubelet probe.
pub(crate) const MAX_CONNECTIONS: usize = 32;

/// Responses take milliseconds; a client with a persistent connection reconnects.
pub(crate) const MAX_CONNECTION_AGE: Duration = Duration::from_mins(1);
