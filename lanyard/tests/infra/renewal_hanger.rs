//! Lets every second renewal of a lease hang, as a connection to a host that does not answer would.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::HeaderName;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use parking_lot::Mutex;

/// The number of renewals.
#[derive(Debug, Clone, Default)]
pub(crate) struct RenewalHanger(Arc<Mutex<usize>>);

impl RenewalHanger {
    pub(crate) fn renewal_count(&self) -> usize {
        *self.0.lock()
    }

    pub(crate) fn wrap(&self, inner: Arc<dyn HttpClient>) -> Arc<dyn HttpClient> {
        Arc::new(HangingClient { inner, hanger: self.clone() })
    }
}

#[derive(Debug)]
struct HangingClient {
    inner: Arc<dyn HttpClient>,
    hanger: RenewalHanger,
}

#[async_trait]
impl HttpClient for HangingClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let action = HeaderName::from_static("x-ms-lease-action");
        let is_renewal = request.headers().get_optional_str(&action) == Some("renew");
        let hangs = {
            let mut renewals = self.hanger.0.lock();
            *renewals += usize::from(is_renewal);
            is_renewal && !renewals.is_multiple_of(2)
        };
        if hangs { pending().await } else { self.inner.execute_request(request).await }
    }
}
