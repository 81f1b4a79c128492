//! Faults of the transport: slow and truncated bodies, and connections that are reset.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use lanyard_clock::{Clock as _, SharedClock, SleepFuture, SystemClock};
use lanyard_emulator_state::fault_rules::ReplyDelivery;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection_activity::RequestInFlight;

/// The number of pieces of a slow body.
const SLOW_PIECES: usize = 8;
/// The time in which the connection writes the headers, or the first bytes of a body, before it ends.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// Whether a connection has to be reset. Shared by the connection and its requests.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionReset(Arc<AtomicBool>);

impl ConnectionReset {
    /// Resets the connection with its next read or write, or when it is closed.
    pub(super) fn request(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_requested() { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

/// A TCP connection that can be reset. A reset connection sends a TCP segment with the flag RST.
#[derive(Debug)]
pub(super) struct ResettableStream {
    stream: TcpStream,
    reset: ConnectionReset,
}

impl ResettableStream {
    pub(super) const fn new(stream: TcpStream, reset: ConnectionReset) -> Self {
        Self { stream, reset }
    }
}

impl Drop for ResettableStream {
    fn drop(&mut self) {
        if self.reset.is_requested()
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "a connection is closed instead of reset");
        }
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reset.check()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.reset.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reset.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reset.check()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.reset.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of a reply ended early, as a fault rule demands.
#[derive(Debug, thiserror::Error)]
#[error("the body was truncated by an injected fault")]
pub(super) struct BodyTruncated;

/// The body of a reply.
pub(super) enum ReplyBody {
    Complete(Full<Bytes>),
    Faulty(Box<FaultyBody>),
}

/// A body in pieces. Its announced length is that of the complete body.
pub(super) struct FaultyBody {
    clock: SharedClock,
    pieces: VecDeque<Bytes>,
    /// The pause before each piece.
    pause: Duration,
    /// The current pause.
    sleep: Option<SleepFuture>,
    ends: BodyEnd,
    length: u64,
    /// A slow body is not idle.
    _request: RequestInFlight,
}

/// What follows the last piece.
enum BodyEnd {
    Complete,
    Truncated,
    Reset(ConnectionReset),
}

impl ReplyBody {
    /// The body of a reply with this delivery.
    pub(super) fn new(
        body: Bytes,
        delivery: ReplyDelivery,
        clock: &SharedClock,
        reset: &ConnectionReset,
        request: RequestInFlight,
    ) -> Self {
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let faulty = |pieces, pause, ends| {
            let clock = SharedClock::clone(clock);
            let sleep = None;
            Self::Faulty(Box::new(FaultyBody {
                clock,
                pieces,
                pause,
                sleep,
                ends,
                length,
                _request: request,
            }))
        };
        match delivery {
            ReplyDelivery::Complete | ReplyDelivery::ResetBeforeHeaders => {
                Self::Complete(Full::new(body))
            }
            ReplyDelivery::SlowBody(duration) => {
                let size = body.len().div_ceil(SLOW_PIECES).max(1);
                let pieces: VecDeque<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
                let count = u32::try_from(pieces.len().max(1)).unwrap_or(u32::MAX);
                faulty(pieces, duration / count, BodyEnd::Complete)
            }
            ReplyDelivery::Truncated(bytes) => {
                let start = body.slice(..bytes.min(body.len().saturating_sub(1)));
                faulty(VecDeque::from([start]), Duration::ZERO, BodyEnd::Truncated)
            }
            ReplyDelivery::ResetAfterHeaders => {
                faulty(VecDeque::new(), Duration::ZERO, BodyEnd::Reset(reset.clone()))
            }
        }
    }
}

impl FaultyBody {
    /// Waits until the connection had time to write what it has, then ends the body.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<(), BodyTruncated>>> {
        if matches!(self.ends, BodyEnd::Complete) {
            return Poll::Ready(None);
        }
        // The operating system needs this time, whatever clock the emulator uses.
        let sleep = self.sleep.get_or_insert_with(|| SystemClock::new().sleep(FLUSH_TIME));
        ready!(sleep.as_mut().poll(context));
        if let BodyEnd::Reset(reset) = &self.ends {
            reset.request();
        }
        Poll::Ready(Some(Err(BodyTruncated)))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyTruncated;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyTruncated>>> {
        let body = match self.get_mut() {
            Self::Complete(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                return Poll::Ready(
                    frame.map(|frame| frame.map_err(|never: Infallible| match never {})),
                );
            }
            Self::Faulty(body) => body,
        };
        if body.pieces.is_empty() {
            let end = ready!(body.poll_end(context));
            return Poll::Ready(end.map(|end| end.map(|()| Frame::data(Bytes::new()))));
        }
        if !body.pause.is_zero() {
            let (clock, pause) = (&body.clock, body.pause);
            let sleep = body.sleep.get_or_insert_with(|| clock.sleep(pause));
            ready!(sleep.as_mut().poll(context));
            body.sleep = None;
        }
        Poll::Ready(body.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Complete(body) => body.is_end_stream(),
            Self::Faulty(body) => body.pieces.is_empty() && matches!(body.ends, BodyEnd::Complete),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Complete(body) => body.size_hint(),
            Self::Faulty(body) => SizeHint::with_exact(body.length),
        }
    }
}
