//! Connections to the pages: few at once, and none for long. Whoever reaches the port may open
//! them, and each holds a descriptor that volumes need.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use lanyard_clock::{SharedClock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes connections while there is a place for them.
pub(crate) struct FewConnections {
    listener: TcpListener,
    places: Arc<Semaphore>,
    clock: SharedClock,
}

/// A connection that ends after a while, whatever it is at.
pub(crate) struct ShortConnection {
    stream: TcpStream,
    end: Sleep,
    is_over: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl FewConnections {
    pub(crate) fn to(listener: TcpListener, clock: SharedClock) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MOST)), clock }
    }
}

impl Listener for FewConnections {
    type Io = ShortConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // It is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let end = self.clock.sleep(LONGEST);
        (ShortConnection { stream, end, is_over: false, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl ShortConnection {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.is_over = self.is_over || self.end.as_mut().poll(context).is_ready();
        if self.is_over { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl AsyncRead for ShortConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ShortConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A monitoring system has one, the kubelet one for each probe.
pub(crate) const MOST: usize = 32;

/// A page is answered in milliseconds; a client that keeps its connection makes another one.
pub(crate) const LONGEST: Duration = Duration::from_mins(1);
