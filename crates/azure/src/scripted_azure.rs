//! An HTTP client with scripted replies, for the tests of this crate.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode};
use azure_core::time::OffsetDateTime;
use jiff::Timestamp;
use lanyard_clock::ManualClock;
use parking_lot::Mutex;
use serde_json::Value;

use crate::transport::{AzureTransport, AzureTransportSettings};

/// A reply: status, headers and body.
pub(crate) type ScriptedReply = (u16, &'static [(&'static str, &'static str)], Value);

/// Answers each request with the next reply, and records the request.
#[derive(Debug, Default)]
pub(crate) struct ScriptedAzure {
    replies: Mutex<VecDeque<ScriptedReply>>,
    requests: Mutex<Vec<String>>,
}

impl ScriptedAzure {
    pub(crate) fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Arc<Self> {
        let replies = Mutex::new(replies.into_iter().collect());
        Arc::new(Self { replies, requests: Mutex::default() })
    }

    /// A transport to this client, and its clock.
    pub(crate) fn transport(self: &Arc<Self>) -> (AzureTransport, ManualClock) {
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let client: Arc<dyn HttpClient> = Arc::<Self>::clone(self);
        let settings = AzureTransportSettings::default();
        let shared = Arc::new(clock.clone());
        (AzureTransport::from_http_client(client, &settings, shared), clock)
    }

    /// Each request: method, URL, `prefer`, `if-match` and `if-none-match` if given, and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

#[async_trait]
impl HttpClient for ScriptedAzure {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let mut text = format!("{} {}", request.method(), request.url());
        for name in ["prefer", "if-match", "if-none-match"] {
            let value = request.headers().get_optional_str(&HeaderName::from_static(name));
            if let Some(value) = value {
                text = format!("{text} {name}={value}");
            }
        }
        if let Body::Bytes(bytes) = request.body()
            && !bytes.is_empty()
        {
            text = format!("{text} {}", String::from_utf8_lossy(bytes));
        }
        self.requests.lock().push(text);
        let (status, pairs, body) = self.replies.lock().pop_front().expect("a scripted reply");
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert(*name, *value);
        }
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(status), headers, bytes))
    }
}

/// A credential whose token never expires.
#[derive(Debug)]
pub(crate) struct ScriptedCredential;

#[async_trait]
impl TokenCredential for ScriptedCredential {
    async fn get_token(
        &self,
        _: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let expires_on = OffsetDateTime::UNIX_EPOCH + azure_core::time::Duration::days(36_500);
        Ok(AccessToken::new(Secret::new("token"), expires_on))
    }
}

/// Runs `work`, advancing the clock to each next deadline.
pub(crate) async fn run_with_clock<T: Send + 'static>(
    clock: &ManualClock,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = tokio::spawn(work);
    while !task.is_finished() {
        tokio::task::yield_now().await;
        if let Some(due) = clock.time_until_next_deadline() {
            clock.advance(due);
        }
    }
    task.await.unwrap()
}
