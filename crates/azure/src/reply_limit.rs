//! The largest reply that a client reads. A program or proxy that answers without end must not exhaust the memory.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use futures::StreamExt as _;

/// The largest body in bytes. The largest known replies are lists of role assignments and of the sizes of virtual
/// machines, with some ten megabytes.
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// A reply is longer than a client reads. The next one would be, too.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the reply has more than {limit} bytes")]
pub struct ReplyTooLarge {
    /// The largest reply in bytes.
    pub limit: usize,
}

impl ReplyTooLarge {
    /// Extracts a [`ReplyTooLarge`] from an SDK error, if there is one.
    pub fn of(error: &azure_core::Error) -> Option<&Self> {
        error.downcast_ref()
    }
}

/// An HTTP client whose response bodies end with [`ReplyTooLarge`] behind [`MAX_REPLY`].
#[derive(Debug)]
pub(crate) struct ReplyLimitClient(pub(crate) Arc<dyn HttpClient>);

#[async_trait]
impl HttpClient for ReplyLimitClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let response = self.0.execute_request(request).await?;
        Ok(limit_body(response, MAX_REPLY))
    }
}

fn limit_body(response: AsyncRawResponse, limit: usize) -> AsyncRawResponse {
    let (status, headers, body) = response.deconstruct();
    let mut left = limit;
    let limited = body.map(move |chunk| {
        let chunk = chunk?;
        left = left
            .checked_sub(chunk.len())
            .ok_or_else(|| azure_core::Error::new(ErrorKind::Other, ReplyTooLarge { limit }))?;
        Ok(chunk)
    });
    AsyncRawResponse::new(status, headers, Box::pin(limited))
}

#[cfg(test)]
mod tests {
    use azure_core::http::StatusCode;
    use azure_core::http::headers::Headers;

    use super::*;

    #[tokio::test]
    async fn longer_reply_is_an_error() {
        for (length, is_accepted) in [(0, true), (8, true), (9, false)] {
            let response =
                AsyncRawResponse::from_bytes(StatusCode::Ok, Headers::new(), vec![b'x'; length]);
            let read = limit_body(response, 8).try_into_raw_response().await;
            assert_eq!(read.is_ok(), is_accepted, "{length}");
            if let Err(error) = read {
                assert_eq!(ReplyTooLarge::of(&error).map(|error| error.limit), Some(8));
            }
        }
    }
}
