//! Copies the `Retry-After` header of a throttled response into its `Status` body.
//!
//! The API server's priority and fairness answers in plain text and sends the seconds only in the
//! `Retry-After` header (k8s.io/apiserver `filters/priority-and-fairness.go`). kube drops the headers
//! of errors, but keeps `details.retryAfterSeconds` of a `Status`.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tower::BoxError;

/// The body of a response: as received, or rewritten.
pub(super) type RewrittenBody = Either<Incoming, Full<Bytes>>;

/// Copies `Retry-After` into the `Status` of a response with HTTP 429 or 503.
pub(super) async fn copy_retry_after(
    answer: Response<Incoming>,
) -> Result<Response<RewrittenBody>, BoxError> {
    let asks = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    let header = answer.headers().get(RETRY_AFTER).filter(|_| asks.contains(&answer.status()));
    // The API server writes seconds; a date would come from a proxy and is ignored.
    let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let Some(seconds) = seconds else { return Ok(answer.map(Either::Left)) };
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(CONTENT_LENGTH);
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await?.to_bytes();
    let status = status_with_retry_after(&body, parts.status, seconds);
    let body = Full::from(serde_json::to_vec(&status)?);
    Ok(Response::from_parts(parts, Either::Right(body)))
}

fn status_with_retry_after(body: &[u8], code: StatusCode, seconds: u32) -> Value {
    let parsed = serde_json::from_slice::<Value>(body).ok().filter(|it| it["kind"] == "Status");
    let mut status = parsed.unwrap_or_else(|| {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code.as_u16(),
            "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""),
            "message": String::from_utf8_lossy(body).trim(),
        })
    });
    if !status["details"].is_object() {
        status["details"] = json!({});
    }
    status["details"]["retryAfterSeconds"] = json!(seconds);
    status
}

/// The maximum size of an error body.
const MAX_BODY_BYTES: usize = 1 << 20;
