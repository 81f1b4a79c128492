//! An HTTP client of the local Azure's engine, without sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode};
use azure_core::time::OffsetDateTime;
use lanyard_clock::Clock as _;
use lanyard_emulator::testing::seeded_state::issue_access_token_for;
use lanyard_emulator::testing::{EngineFixture, Ingress};
use lanyard_vocabulary::EntraClientId;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Where a run of lanyard ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutPosition {
    BeforeRequest,
    AfterRequest,
}

/// Acts before a request of lanyard, as another client at this moment.
pub(crate) type Intruder = Box<dyn FnMut(&EngineFixture, &Request) + Send>;

/// Holds the requests of several clients back until the test lets one of them pass.
#[derive(Debug, Default)]
pub(crate) struct RequestGate(Mutex<Vec<oneshot::Sender<()>>>);

impl RequestGate {
    async fn pass(&self) {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().push(sender);
        receiver.await.unwrap();
    }

    /// Lets one of the waiting requests pass; `choose` returns a number below the one that it gets. Returns whether a
    /// request waited.
    pub(crate) fn let_one_pass(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let mut waiting = self.0.lock();
        // Requests of runs that have ended do not wait any more.
        waiting.retain(|sender| !sender.is_closed());
        if waiting.is_empty() {
            return false;
        }
        let number = choose(waiting.len());
        waiting.remove(number).send(()).is_ok()
    }
}

/// The requests of one client.
pub(crate) struct EngineClient {
    engine: Arc<EngineFixture>,
    gate: Option<Arc<RequestGate>>,
    state: Mutex<ClientState>,
    cut: Notify,
}

#[derive(Default)]
struct ClientState {
    requests: usize,
    cut: Option<(usize, CutPosition)>,
    /// The ids that a policy protects from creation, in lower case.
    denied: Vec<String>,
    intruder: Option<Intruder>,
}

impl std::fmt::Debug for EngineClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EngineClient").finish_non_exhaustive()
    }
}

impl EngineClient {
    pub(crate) fn new(engine: Arc<EngineFixture>) -> Arc<Self> {
        Arc::new(Self { engine, gate: None, state: Mutex::default(), cut: Notify::new() })
    }

    /// A client whose requests wait at the gate.
    pub(crate) fn behind_gate(engine: Arc<EngineFixture>, gate: &Arc<RequestGate>) -> Arc<Self> {
        let gate = Some(Arc::clone(gate));
        Arc::new(Self { engine, gate, state: Mutex::default(), cut: Notify::new() })
    }

    /// Sets the request at which the next run ends, counted from 0, and who acts during the run.
    pub(crate) fn begin_run(&self, cut: Option<(usize, CutPosition)>, intruder: Option<Intruder>) {
        let mut state = self.state.lock();
        (state.requests, state.cut, state.intruder) = (0, cut, intruder);
    }

    /// Waits until the run has reached the request at which it ends.
    pub(crate) async fn reached(&self) {
        self.cut.notified().await;
    }

    /// Denies or allows the creation of a resource, as a policy does.
    pub(crate) fn toggle_policy(&self, id: &str) {
        let (mut state, id) = (self.state.lock(), id.to_ascii_lowercase());
        match state.denied.iter().position(|it| *it == id) {
            Some(position) => drop(state.denied.remove(position)),
            None => state.denied.push(id),
        }
    }

    fn send(&self, request: &Request) -> AsyncRawResponse {
        let headers: Vec<_> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
            .collect();
        let headers: Vec<_> = headers.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let body = match request.body() {
            Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::SeekableStream(_) => String::new(),
        };
        let method = request.method().as_str().parse().unwrap();
        let url = request.url().as_str();
        let reply = self.engine.send_request(Ingress::Tunnel, &method, url, &headers, &body);
        let mut headers = Headers::new();
        for (name, value) in reply.headers.iter() {
            let name = HeaderName::from(name.as_str().to_owned());
            headers.insert(name, HeaderValue::from(value.to_str().unwrap().to_owned()));
        }
        AsyncRawResponse::from_bytes(StatusCode::from(reply.status.as_u16()), headers, reply.body)
    }

    fn is_denied(&self, request: &Request) -> bool {
        let path = request.url().path().to_ascii_lowercase();
        request.method().as_str() == "PUT" && self.state.lock().denied.contains(&path)
    }
}

#[async_trait]
impl HttpClient for EngineClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        let (position, intruder) = {
            let mut state = self.state.lock();
            let number = state.requests;
            state.requests += 1;
            let position = state.cut.filter(|(cut, _)| number >= *cut).map(|(_, it)| it);
            (position, state.intruder.take())
        };
        if let Some(mut intruder) = intruder {
            intruder(&self.engine, request);
            self.state.lock().intruder = Some(intruder);
        }
        if position == Some(CutPosition::BeforeRequest) {
            self.cut.notify_one();
            return std::future::pending().await;
        }
        let response = if self.is_denied(request) {
            let body = r#"{"error":{"code":"RequestDisallowedByPolicy","message":"denied"}}"#;
            AsyncRawResponse::from_bytes(StatusCode::Forbidden, Headers::new(), body)
        } else {
            self.send(request)
        };
        if position.is_some() {
            self.cut.notify_one();
            return std::future::pending().await;
        }
        Ok(response)
    }
}

/// The audience of Azure Resource Manager.
pub(crate) const ARM_AUDIENCE: &str = "https://management.azure.com/";

/// Signs in as an application of the seeded state. Signatures are slow, so each token is used for half an hour.
#[derive(Debug)]
pub(crate) struct EngineCredential {
    engine: Arc<EngineFixture>,
    client: EntraClientId,
    /// Each audience with the time of its token.
    tokens: Mutex<BTreeMap<String, (Duration, String)>>,
}

impl EngineCredential {
    pub(crate) fn new(engine: &Arc<EngineFixture>, client: EntraClientId) -> Arc<Self> {
        Arc::new(Self { engine: Arc::clone(engine), client, tokens: Mutex::default() })
    }

    pub(crate) fn token(&self, audience: &str) -> String {
        let (mut tokens, now) = (self.tokens.lock(), self.engine.clock.monotonic());
        match tokens.get(audience) {
            Some((issued, token)) if now.saturating_sub(*issued) < Duration::from_mins(30) => {
                token.clone()
            }
            _ => {
                let token = issue_access_token_for(&self.engine, self.client, audience);
                tokens.insert(audience.to_owned(), (now, token.clone()));
                token
            }
        }
    }
}

#[async_trait]
impl TokenCredential for EngineCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        // Tokens of the engine are valid for an hour of its own time.
        let expires = OffsetDateTime::now_utc() + azure_core::time::Duration::hours(1);
        let audience = scopes[0].trim_end_matches("/.default");
        let audience = if audience.contains("management") { ARM_AUDIENCE } else { audience };
        Ok(AccessToken::new(Secret::new(self.token(audience)), expires))
    }
}
