//! A connection to a socket of ours.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

use super::authority::Opening;

/// How much is read at once while the first request is looked for.
const CHUNK: usize = 1024;

/// A connection whose first request may name anything as its host (see `authority`).
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    opening: Opening,
    /// What came and was not read yet.
    ready: Vec<u8>,
}

impl Connection {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream, opening: Opening::new(), ready: Vec::new() }
    }

    fn take_ready(&mut self, buffer: &mut ReadBuf<'_>) {
        let now = self.ready.len().min(buffer.remaining());
        buffer.put_slice(&self.ready[..now]);
        self.ready.drain(..now);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ready.is_empty() {
            if self.opening.is_over() {
                return Pin::new(&mut self.stream).poll_read(context, buffer);
            }
            let mut chunk = [0; CHUNK];
            let mut arrived = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut arrived))?;
            if arrived.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ready = self.opening.pass(arrived.filled());
        }
        self.take_ready(buffer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}
