//! Limits the size of vault responses.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::Error;
use azure_core::error::ErrorKind;
use azure_core::http::headers::CONTENT_LENGTH;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{AsyncRawResponse, Context, Request};
use futures::StreamExt as _;
use lanyard_azure::ReplyTooLarge;
use zeroize::Zeroizing;

use crate::memory::{MAX_LIST_PAGE_BYTES, MAX_OBJECT_RESPONSE_BYTES};

/// Reads the body of a response up to the size that was reserved in [`crate::ReadMemory`]. A vault never
/// sends more; a server in its place might.
#[derive(Debug)]
pub(crate) struct ResponseBodyLimit;

#[async_trait]
impl Policy for ResponseBodyLimit {
    #[expect(elided_lifetimes_in_paths, reason = "the trait binds the lifetime late")]
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let Some((first, rest)) = next.split_first() else {
            return Err(Error::with_message(ErrorKind::Other, "nothing sends the request"));
        };
        let limit = max_body_bytes(request.url().path());
        let response = first.send(context, request, rest).await?;
        let (status, headers, body) = response.deconstruct();
        let length = headers.get_optional_str(&CONTENT_LENGTH).and_then(|text| text.parse().ok());
        if length.is_some_and(|length: usize| length > limit) {
            return Err(response_too_large_error(limit));
        }
        // Allocate the full capacity once: a buffer that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(length.unwrap_or(limit)));
        let mut body = std::pin::pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            if bytes.len().saturating_add(chunk.len()) > limit {
                return Err(response_too_large_error(limit));
            }
            bytes.extend_from_slice(&chunk);
        }
        let bytes = std::mem::take(&mut *bytes);
        Ok(AsyncRawResponse::from_bytes(status, headers, bytes))
    }
}

/// The maximum size of a response for this path, in bytes. A list of versions is
/// `/<collection>/<object>/versions`; an object may be named `versions`, too.
fn max_body_bytes(path: &str) -> usize {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        [_, _, "versions"] => MAX_LIST_PAGE_BYTES,
        _ => MAX_OBJECT_RESPONSE_BYTES,
    }
}

fn response_too_large_error(limit: usize) -> Error {
    Error::new(ErrorKind::Other, ReplyTooLarge { limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_of_versions_may_be_as_long_as_a_page() {
        for path in ["/secrets/a/versions", "/keys/versions/versions/"] {
            assert_eq!(max_body_bytes(path), MAX_LIST_PAGE_BYTES, "{path}");
        }
        for path in ["/secrets/versions", "/secrets/versions/", "/secrets/a", "/secrets/a/0123"] {
            assert_eq!(max_body_bytes(path), MAX_OBJECT_RESPONSE_BYTES, "{path}");
        }
    }
}
