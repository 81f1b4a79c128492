//! Ends a run at one of its requests, as a kill of the process would.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Where the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutPosition {
    /// The request is not sent.
    BeforeRequest,
    /// Azure handled the request, but the run does not receive the reply.
    AfterRequest,
}

/// The requests of a run, and the one at which it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestCutter {
    state: Arc<Mutex<CutterState>>,
}

#[derive(Debug, Default)]
struct CutterState {
    requests: usize,
    writes: usize,
    cut: Option<(usize, CutPosition)>,
    reached: Arc<Notify>,
}

impl RequestCutter {
    /// The number of requests since the last cut was set.
    pub(crate) fn request_count(&self) -> usize {
        self.state.lock().requests
    }

    /// The number of writes since the last cut was set.
    pub(crate) fn write_count(&self) -> usize {
        self.state.lock().writes
    }

    /// Counts from 0, and ends the run at the request with this number.
    pub(crate) fn cut_at(&self, number: usize, position: CutPosition) {
        *self.state.lock() =
            CutterState { cut: Some((number, position)), ..CutterState::default() };
    }

    /// Sends all requests from now on.
    pub(crate) fn disable(&self) {
        self.state.lock().cut = None;
    }

    /// Waits until the run has reached the request.
    pub(crate) async fn reached(&self) {
        let reached = Arc::clone(&self.state.lock().reached);
        reached.notified().await;
    }

    pub(crate) fn wrap(&self, inner: Arc<dyn HttpClient>) -> Arc<dyn HttpClient> {
        Arc::new(CuttingClient { inner, cutter: self.clone() })
    }
}

#[derive(Debug)]
struct CuttingClient {
    inner: Arc<dyn HttpClient>,
    cutter: RequestCutter,
}

#[async_trait]
impl HttpClient for CuttingClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let position = {
            let mut state = self.cutter.state.lock();
            let number = state.requests;
            state.requests += 1;
            state.writes += usize::from(!matches!(request.method(), Method::Get | Method::Head));
            state.cut.filter(|(cut, _)| number >= *cut).map(|(_, position)| position)
        };
        match position {
            None => self.inner.execute_request(request).await,
            Some(position) => {
                if position == CutPosition::AfterRequest {
                    drop(self.inner.execute_request(request).await);
                }
                self.cutter.state.lock().reached.notify_one();
                pending().await
            }
        }
    }
}
