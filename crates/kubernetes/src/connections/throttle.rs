//! When the API server wants to be asked again.
//!
//! Its priority and fairness answers in plain text, with the seconds in the header `Retry-After`
//! alone (k8s.io/apiserver `filters/priority-and-fairness.go`), and kube hands on no header of an
//! error. A `Status` has a field for the same.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tower::BoxError;

/// An answer as it came, or told anew.
pub(super) type RewrittenBody = Either<Incoming, Full<Bytes>>;

/// Puts the header into the `Status` of an answer that asks for a pause.
pub(super) async fn copy_retry_after(
    answer: Response<Incoming>,
) -> Result<Response<RewrittenBody>, BoxError> {
    let asks = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    let header = answer.headers().get(RETRY_AFTER).filter(|_| asks.contains(&answer.status()));
    // An API server writes seconds; a date would be of something in between.
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
    let told = serde_json::from_slice::<Value>(body).ok().filter(|it| it["kind"] == "Status");
    let mut status = told.unwrap_or_else(|| {
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

/// What an error takes.
const MAX_BODY_BYTES: usize = 1 << 20;
