//! A connection to a [`super::PrivateSocket`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::{Connected, UdsConnectInfo};

use super::authority_rewriter::AuthorityRewriter;

/// The size of a read from the socket, in bytes.
const READ_CHUNK_SIZE: usize = 4096;

/// A connection whose requests may name any authority (see `authority_rewriter`).
#[derive(Debug)]
pub struct SocketConnection {
    stream: UnixStream,
    authority_rewriter: AuthorityRewriter,
    /// Rewritten bytes that the server has not read yet.
    read_buffer: Vec<u8>,
}

impl SocketConnection {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream, authority_rewriter: AuthorityRewriter::new(), read_buffer: Vec::new() }
    }

    fn drain_read_buffer(&mut self, buffer: &mut ReadBuf<'_>) {
        let now = self.read_buffer.len().min(buffer.remaining());
        buffer.put_slice(&self.read_buffer[..now]);
        self.read_buffer.drain(..now);
    }
}

impl AsyncRead for SocketConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.read_buffer.is_empty() {
            let mut chunk = [0; READ_CHUNK_SIZE];
            let mut arrived = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut arrived))?;
            if arrived.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.read_buffer = self.authority_rewriter.rewrite(arrived.filled());
        }
        self.drain_read_buffer(buffer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SocketConnection {
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

impl Connected for SocketConnection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}
