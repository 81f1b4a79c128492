//! A token service in this process, with a fixed response.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::headers::Headers;
use azure_core::http::{
    AsyncRawResponse, ClientOptions, HttpClient, Request, StatusCode, Transport,
};
use lanyard_clock::{Clock as _, SystemClock};

/// The length of a real token, in bytes.
pub const TOKEN_LENGTH: usize = 1_500;

/// The response of the token service.
#[derive(Debug, Clone, Copy)]
pub enum ServiceResponse {
    /// A token with a lifetime of one day.
    DayLongToken,
    /// A token that is due for renewal after one second: by `refresh_in`, and by the common rule of five
    /// minutes before the expiry.
    SoonDueToken,
    /// A permanent error: the application is not in this tenant.
    UnauthorizedClient,
}

/// An HTTP client that returns the response of a token service without a network.
pub struct FixedTokenService {
    clock: SystemClock,
    response: ServiceResponse,
    latency_in_milliseconds: AtomicU64,
    requests: AtomicUsize,
    responses: AtomicUsize,
}

impl FixedTokenService {
    /// Creates a service that returns `response` after `latency`.
    pub fn new(clock: SystemClock, response: ServiceResponse, latency: Duration) -> Arc<Self> {
        let service = Self {
            clock,
            response,
            latency_in_milliseconds: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            responses: AtomicUsize::new(0),
        };
        service.set_latency(latency);
        Arc::new(service)
    }

    /// Sets the time until the response of later requests.
    pub fn set_latency(&self, latency: Duration) {
        let milliseconds = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        self.latency_in_milliseconds.store(milliseconds, Ordering::SeqCst);
    }

    /// The number of received requests.
    pub fn request_count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Whether a request has no response yet.
    pub fn has_pending_request(&self) -> bool {
        self.responses.load(Ordering::SeqCst) < self.request_count()
    }

    /// Client options with this service as the transport.
    pub fn client_options(self: &Arc<Self>) -> ClientOptions {
        let client: Arc<dyn HttpClient> = Arc::<Self>::clone(self);
        ClientOptions { transport: Some(Transport::new(client)), ..ClientOptions::default() }
    }

    fn response_content(&self) -> (StatusCode, String) {
        let token = |lifetime: &str| {
            let token = "t".repeat(TOKEN_LENGTH);
            format!(r#"{{"token_type":"Bearer",{lifetime},"access_token":"{token}"}}"#)
        };
        match self.response {
            ServiceResponse::DayLongToken => {
                (StatusCode::Ok, token(r#""expires_in":86400,"ext_expires_in":86400"#))
            }
            ServiceResponse::SoonDueToken => {
                (StatusCode::Ok, token(r#""expires_in":301,"ext_expires_in":301,"refresh_in":1"#))
            }
            ServiceResponse::UnauthorizedClient => {
                (StatusCode::BadRequest, UNAUTHORIZED_CLIENT_BODY.to_owned())
            }
        }
    }
}

#[async_trait]
impl HttpClient for FixedTokenService {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let latency = self.latency_in_milliseconds.load(Ordering::SeqCst);
        if latency > 0 {
            self.clock.sleep(Duration::from_millis(latency)).await;
        }
        let (status, body) = self.response_content();
        self.responses.fetch_add(1, Ordering::SeqCst);
        Ok(AsyncRawResponse::from_bytes(status, Headers::new(), body))
    }
}

impl fmt::Debug for FixedTokenService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FixedTokenService")
            .field("response", &self.response)
            .finish_non_exhaustive()
    }
}

/// The body of [`ServiceResponse::UnauthorizedClient`]. `azure_identity` 1.0.0 cannot parse escape sequences
/// in it.
const UNAUTHORIZED_CLIENT_BODY: &str = r#"{"error":"unauthorized_client","error_description":"AADSTS700016: Application was not found in the directory. Trace ID: 0 Correlation ID: 0 Timestamp: 2026-01-01 00:00:00Z","error_codes":[700016],"timestamp":"2026-01-01 00:00:00Z","trace_id":"0","correlation_id":"0"}"#;
