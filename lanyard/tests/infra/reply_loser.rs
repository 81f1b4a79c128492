//! Loses the replies to every third append to a blob, as a connection that breaks after the request would.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use parking_lot::Mutex;

/// The numbers of appends and of lost replies.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplyLoser(Arc<Mutex<(usize, usize)>>);

impl ReplyLoser {
    pub(crate) fn lost_count(&self) -> usize {
        self.0.lock().1
    }

    pub(crate) fn wrap(&self, inner: Arc<dyn HttpClient>) -> Arc<dyn HttpClient> {
        Arc::new(ReplyLosingClient { inner, loser: self.clone() })
    }
}

#[derive(Debug)]
struct ReplyLosingClient {
    inner: Arc<dyn HttpClient>,
    loser: ReplyLoser,
}

#[async_trait]
impl HttpClient for ReplyLosingClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let is_append = request.url().query().is_some_and(|query| query.contains("appendblock"));
        let reply = self.inner.execute_request(request).await?;
        let mut counts = self.loser.0.lock();
        counts.0 += usize::from(is_append);
        if is_append && counts.0.is_multiple_of(3) {
            counts.1 += 1;
            return Err(azure_core::Error::with_message(ErrorKind::Io, "the reply is lost"));
        }
        Ok(reply)
    }
}
