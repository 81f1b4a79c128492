//! A scripted HTTP client with its fixture, for tests.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, HttpClient, Request, StatusCode, Transport, Url,
};
use jiff::Timestamp;
use lanyard_clock::{Clock as _, ManualClock};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::metrics::NoMetrics;
use crate::randomness::fixed::FixedRandomness;
use crate::transport::sender::{TokenTransport, TokenTransportOptions};

/// The scripted reaction to a request.
pub(crate) enum ScriptedReply {
    /// Returns a response.
    Respond { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// Breaks the connection.
    ConnectionReset,
    /// Never responds.
    NoResponse,
    /// Waits for a permit of [`ScriptedTokenService::release`] and then reacts as given.
    Gated(Box<Self>),
}

impl ScriptedReply {
    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Respond { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    pub(crate) fn token(text: &str, expires_in: u64) -> Self {
        let body = format!(
            r#"{{"token_type":"Bearer","expires_in":{expires_in},"ext_expires_in":{expires_in},"access_token":"{text}"}}"#
        );
        Self::status(200, &body)
    }

    pub(crate) fn error(error: &str, code: u32) -> Self {
        let body = format!(
            r#"{{"error":"{error}","error_description":"AADSTS{code}: refused.\r\nTrace ID: t","error_codes":[{code}]}}"#
        );
        Self::status(401, &body.replace("\r\n", "\\r\\n"))
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Respond { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    pub(crate) fn gated(self) -> Self {
        Self::Gated(Box::new(self))
    }
}

/// A request that the service received.
#[derive(Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    pub(crate) body: String,
}

impl RecordedRequest {
    /// A field of the form body.
    pub(crate) fn form_field(&self, name: &str) -> Option<String> {
        let mut fields = url::form_urlencoded::parse(self.body.as_bytes());
        fields.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

type ReplyFunction = dyn Fn(&RecordedRequest, usize) -> ScriptedReply + Send + Sync;

/// A service that answers with a script, a function of the request and its number from zero.
#[derive(Clone)]
pub(crate) struct ScriptedTokenService {
    reply_function: Arc<ReplyFunction>,
    recorded_requests: Arc<Mutex<Vec<RecordedRequest>>>,
    gate: Arc<Semaphore>,
}

impl ScriptedTokenService {
    pub(crate) fn new(
        service: impl Fn(&RecordedRequest, usize) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        Self {
            reply_function: Arc::new(service),
            recorded_requests: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    pub(crate) fn request_count(&self) -> usize {
        self.recorded_requests.lock().len()
    }

    pub(crate) fn request(&self, number: usize) -> RecordedRequest {
        self.recorded_requests.lock()[number].clone()
    }

    /// Releases `count` gated requests.
    pub(crate) fn release(&self, count: usize) {
        self.gate.add_permits(count);
    }

    async fn reply(&self, reply: ScriptedReply) -> azure_core::Result<AsyncRawResponse> {
        let mut reply = reply;
        loop {
            match reply {
                ScriptedReply::Gated(next) => {
                    self.gate.acquire().await.unwrap().forget();
                    reply = *next;
                }
                ScriptedReply::NoResponse => std::future::pending().await,
                ScriptedReply::ConnectionReset => {
                    let error = io::Error::from(io::ErrorKind::ConnectionReset);
                    return Err(Error::new(ErrorKind::Io, error));
                }
                ScriptedReply::Respond { status, headers, body } => {
                    let mut wire = Headers::new();
                    for (name, value) in headers {
                        wire.insert(name, value);
                    }
                    let status = StatusCode::from(status);
                    return Ok(AsyncRawResponse::from_bytes(status, wire, body));
                }
            }
        }
    }
}

impl fmt::Debug for ScriptedTokenService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Script")
    }
}

#[async_trait]
impl HttpClient for ScriptedTokenService {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let Body::Bytes(body) = request.body() else { panic!("token requests have no streams") };
        let observed = RecordedRequest {
            url: request.url().clone(),
            headers: request.headers().clone(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        };
        let number = {
            let mut all = self.recorded_requests.lock();
            all.push(observed.clone());
            all.len() - 1
        };
        self.reply((self.reply_function)(&observed, number)).await
    }
}

/// A manual clock and a transport over a script. Time passes only while all tasks wait.
#[derive(Clone)]
pub(crate) struct TokenServiceFixture {
    pub(crate) clock: ManualClock,
    pub(crate) script: ScriptedTokenService,
}

impl TokenServiceFixture {
    pub(crate) fn new(
        service: impl Fn(&RecordedRequest, usize) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let start = Timestamp::from_second(1_795_262_400).unwrap();
        Self { clock: ManualClock::starting_at(start), script: ScriptedTokenService::new(service) }
    }

    pub(crate) fn options(&self) -> TokenTransportOptions {
        TokenTransportOptions {
            client: ClientOptions {
                transport: Some(Transport::new(Arc::new(self.script.clone()))),
                ..ClientOptions::default()
            },
            clock: Arc::new(self.clock.clone()),
            randomness: FixedRandomness::shared(0.0),
            retry: None,
            limits: None,
            metrics: Arc::new(NoMetrics),
        }
    }

    pub(crate) fn transport(&self) -> TokenTransport {
        TokenTransport::new(self.options())
    }

    /// Runs every task until it waits.
    pub(crate) async fn run_pending_tasks(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Advances the clock and runs every task until it waits.
    pub(crate) async fn advance(&self, duration: Duration) {
        self.run_pending_tasks().await;
        self.clock.advance(duration);
        self.run_pending_tasks().await;
    }

    /// Runs `future` to completion, and advances the clock whenever all tasks wait.
    pub(crate) async fn run_to_completion<F: Future>(&self, future: F) -> F::Output {
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = self.run_pending_tasks() => {}
            }
            if let Some(due) = self.clock.time_until_next_deadline() {
                self.clock.advance(due);
            }
        }
    }

    /// Measures how long `future` takes on the manual clock.
    pub(crate) async fn run_and_measure<F: Future>(&self, future: F) -> (F::Output, Duration) {
        let start = self.clock.monotonic();
        let output = self.run_to_completion(future).await;
        (output, self.clock.monotonic().saturating_sub(start))
    }
}
