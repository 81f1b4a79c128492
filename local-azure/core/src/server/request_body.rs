//! Reads the bodies of requests: small ones at once, large ones after their operation has accepted the head.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::EXPECT;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use lanyard_clock::{SharedClock, SleepFuture};
use lanyard_emulator_state::request::ServiceRequest;

use crate::emulated_service::SMALL_BODY_BYTES;
use crate::engine::{EmulatorEngine, EngineReply, Ingress};

/// The time for a small body, for the next piece of a large one, and for discarding a body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a rejected body is read and discarded: a client that still sends would not see the reply.
const MAX_DISCARDED_BYTES: usize = 64 << 20;

/// The body of a request was not read.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The operation does not accept the request, by its head.
    Rejected(Box<EngineReply>),
    /// The body has more than `most` bytes.
    TooLarge { most: usize },
    /// The connection closed before the end of the body.
    Interrupted,
    /// The client is too slow.
    TimedOut,
}

/// Reads the body of a request whose other parts are complete.
pub(super) async fn read_body(
    engine: &EmulatorEngine,
    ingress: Ingress,
    request: &ServiceRequest,
    body: Incoming,
    clock: &SharedClock,
) -> Result<Bytes, BodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut limit =
        BodyLimit { engine, ingress, request, most: SMALL_BODY_BYTES, is_admitted: false };
    let mut pieces = BodyPieces { body, clock, timeout: None };
    let read = collect(declared, &mut limit, &mut pieces).await;
    let is_rejected = matches!(read, Err(BodyError::Rejected(_) | BodyError::TooLarge { .. }));
    // A client with this header sends no body before the server wants it.
    if is_rejected && !request.headers.contains_key(EXPECT) {
        pieces.discard().await;
    }
    read
}

async fn collect(
    declared: usize,
    limit: &mut BodyLimit<'_>,
    pieces: &mut BodyPieces<'_>,
) -> Result<Bytes, BodyError> {
    limit.check(declared)?;
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(piece) = pieces.next().await? {
        let length = first.len().max(all.len()) + piece.len();
        limit.check(length)?;
        if limit.is_admitted {
            pieces.timeout = None;
        }
        if first.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.reserve(declared.max(length));
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// How many bytes a body may have.
struct BodyLimit<'r> {
    engine: &'r EmulatorEngine,
    ingress: Ingress,
    request: &'r ServiceRequest,
    most: usize,
    /// Whether `most` is the limit of the operation, which has accepted the head.
    is_admitted: bool,
}

impl BodyLimit<'_> {
    fn check(&mut self, bytes: usize) -> Result<(), BodyError> {
        if bytes > self.most && !self.is_admitted {
            self.most = self
                .engine
                .admit_large_body(self.request, self.ingress)
                .map_err(BodyError::Rejected)?;
            self.is_admitted = true;
        }
        if bytes > self.most { Err(BodyError::TooLarge { most: self.most }) } else { Ok(()) }
    }
}

struct BodyPieces<'r> {
    body: Incoming,
    clock: &'r SharedClock,
    /// Started when the client has to be waited for.
    timeout: Option<SleepFuture>,
}

impl BodyPieces<'_> {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let (timeout, clock) = (&mut self.timeout, self.clock);
            let expired = async {
                timeout.get_or_insert_with(|| clock.sleep(BODY_TIMEOUT)).as_mut().await;
            };
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = expired => return Err(BodyError::TimedOut),
            };
            match frame.map(|frame| frame.map(hyper::body::Frame::into_data)) {
                None => return Ok(None),
                Some(Err(_)) => return Err(BodyError::Interrupted),
                Some(Ok(Ok(piece))) if !piece.is_empty() => return Ok(Some(piece)),
                Some(Ok(_)) => {}
            }
        }
    }

    async fn discard(&mut self) {
        self.timeout = None;
        let mut discarded = 0;
        while discarded <= MAX_DISCARDED_BYTES
            && let Ok(Some(piece)) = self.next().await
        {
            discarded += piece.len();
        }
    }
}
