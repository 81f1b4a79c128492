//! Requests to Azure Resource Manager.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::Method;
use lanyard_clock::{RetryClass, SharedClock};
use lanyard_vocabulary::cloud::CloudEndpoints;
use serde_json::Value;

use crate::arm_request::ArmRequest;
use crate::authenticated_client::{
    AuthenticatedClient, AzureCallError, AzureResponse, ClientRequest, arm_scope,
};
use crate::long_running::{
    OperationError, OperationPoll, OperationStart, PendingOperation, PollAdvance, PollPolicy,
};
use crate::rate_limit_headroom::{HeadroomRecorder, RateLimitHeadroom};
use crate::response_headers::ResponseHeaders;
use crate::service_url::own_url;
use crate::transport::AzureTransport;

/// A client of Azure Resource Manager in one cloud, for one identity. Clones share the connections and the
/// rate limit, and may be used at the same time.
#[derive(Debug, Clone)]
pub struct ArmClient {
    endpoint: String,
    client: AuthenticatedClient,
    headroom: HeadroomRecorder,
}

/// Far more pages than any list of a subscription has.
const MAX_PAGES: usize = 1_000;

impl ArmClient {
    /// Creates a client for `credential` in the cloud with these endpoints.
    pub fn new(
        endpoints: &CloudEndpoints,
        credential: Arc<dyn TokenCredential>,
        transport: &AzureTransport,
    ) -> Self {
        let client = AuthenticatedClient::new(Self::scope(endpoints), credential, transport);
        Self { endpoint: endpoints.arm_url(), client, headroom: HeadroomRecorder::default() }
    }

    /// The lowest rate limit headroom of all replies so far; `None` if no reply named it.
    pub fn lowest_headroom(&self) -> Option<RateLimitHeadroom> {
        self.headroom.lowest()
    }

    /// The scope of tokens for Azure Resource Manager.
    pub fn scope(endpoints: &CloudEndpoints) -> String {
        arm_scope(endpoints)
    }

    /// Sends a GET request for `path` (a resource id or a collection below one) in `api_version`.
    ///
    /// Unlike the other methods, its errors do not name the correlation id: a caller that polls can compare
    /// their texts.
    pub async fn fetch(
        &self,
        path: &str,
        api_version: &str,
    ) -> Result<AzureResponse, AzureCallError> {
        let request = ArmRequest::get(path, api_version.to_owned());
        self.send_once(&request, false).await
    }

    /// Sends a request. The transport retries it; see [`RetryPolicy`](crate::RetryPolicy).
    pub async fn send(&self, request: &ArmRequest) -> Result<AzureResponse, AzureCallError> {
        self.send_once(request, true).await
    }

    /// Reads a resource; `None` if the resource, its group or its parent does not exist. A missing subscription
    /// and an unknown resource type are errors.
    pub async fn fetch_optional(
        &self,
        path: &str,
        api_version: &str,
    ) -> Result<Option<AzureResponse>, AzureCallError> {
        match self.send(&ArmRequest::get(path, api_version.to_owned())).await {
            Ok(response) => Ok(Some(response)),
            Err(error) if is_missing_resource(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all pages of a list. `query` contains further parameters, for example `$filter`.
    ///
    /// # Errors
    ///
    /// Also [`AzureCallError::ForeignUrl`] if a `nextLink` has another host, and
    /// [`AzureCallError::TooManyPages`] after a thousand pages.
    pub async fn list(
        &self,
        path: &str,
        api_version: &str,
        query: &[(&'static str, &str)],
    ) -> Result<Vec<Value>, AzureCallError> {
        let mut request = ArmRequest::get(path, api_version.to_owned());
        for (name, value) in query {
            request = request.with_query(*name, *value);
        }
        let target = request.target();
        let mut items = Vec::new();
        let mut response = self.send(&request).await?;
        for _ in 0..MAX_PAGES {
            let malformed =
                || AzureCallError::Malformed { target: target.clone(), status: response.status };
            let page = response.body.get_mut("value").map(Value::take);
            let Some(Value::Array(page)) = page else { return Err(malformed()) };
            items.extend(page);
            let next = response.body.get("nextLink").and_then(Value::as_str);
            let Some(next) = next.filter(|next| !next.is_empty()) else { return Ok(items) };
            response = self.fetch_url(&target, next).await?;
        }
        Err(AzureCallError::TooManyPages { target, limit: MAX_PAGES })
    }

    /// Sends a write, and finds out whether its operation is complete.
    ///
    /// The deletion of a resource that does not exist is complete.
    pub async fn start(&self, request: &ArmRequest) -> Result<OperationStart, OperationError> {
        match self.send(request).await {
            Ok(response) => OperationStart::from_response(request, response),
            Err(error) if request.method == Method::Delete && is_missing_resource(&error) => {
                let headers = ResponseHeaders::default();
                let response = AzureResponse { status: 404, body: Value::Null, headers };
                Ok(OperationStart::Completed(response))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks for the state of an operation. A completed operation may need a second request, for its result.
    pub async fn poll(
        &self,
        operation: &PendingOperation,
    ) -> Result<OperationPoll, OperationError> {
        let mut current = operation.clone();
        loop {
            let reply = match current.polling_url() {
                Some(url) => self.fetch_url(current.target(), url).await,
                None => self.send(&current.resource_request()).await,
            };
            match current.advance(reply)? {
                PollAdvance::PollNow(next) => current = next,
                PollAdvance::Report(poll) => return Ok(poll),
            }
        }
    }

    /// Polls an operation until it is complete, first after the pause that Azure named. Transient errors and
    /// throttling do not end the wait before its deadline.
    ///
    /// # Errors
    ///
    /// [`OperationError::TimedOut`] contains the operation, whose wait can be continued.
    pub async fn wait(
        &self,
        operation: PendingOperation,
        clock: &SharedClock,
        policy: PollPolicy,
    ) -> Result<AzureResponse, OperationError> {
        let begin = clock.monotonic();
        let mut operation = operation;
        let mut pause = operation.retry_after();
        loop {
            let waited = clock.monotonic().saturating_sub(begin);
            let left = policy.timeout.saturating_sub(waited);
            if left.is_zero() {
                return Err(OperationError::timed_out(operation, waited));
            }
            clock.sleep(pause.unwrap_or(policy.interval).min(left)).await;
            match self.poll(&operation).await {
                Ok(OperationPoll::Succeeded(response)) => return Ok(response),
                Ok(OperationPoll::InProgress { retry_after, operation: next }) => {
                    (pause, operation) = (retry_after, next);
                }
                Err(OperationError::Call(error)) => {
                    pause = match error.class() {
                        RetryClass::Transient => None,
                        RetryClass::Throttled { after } => after,
                        _ => return Err(error.into()),
                    };
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn send_once(
        &self,
        request: &ArmRequest,
        names_correlation_id: bool,
    ) -> Result<AzureResponse, AzureCallError> {
        let Some(url) = request.url(&self.endpoint) else {
            return Err(AzureCallError::InvalidTarget { target: request.path.clone() });
        };
        let (method, body, url) = (request.method, request.body.as_ref(), &url);
        let headers = request.headers();
        let parts = ClientRequest { method, url, body, headers, names_correlation_id };
        let response = self.client.send_request(parts).await?;
        self.headroom.observe(&response.headers);
        Ok(response)
    }

    /// Reads a URL from a reply of Azure Resource Manager, which must have the same host.
    async fn fetch_url(&self, target: &str, url: &str) -> Result<AzureResponse, AzureCallError> {
        let url = own_url(&self.endpoint, url)
            .map_err(|host| AzureCallError::ForeignUrl { target: target.to_owned(), host })?;
        let parts = ClientRequest {
            method: Method::Get,
            url: &url,
            body: None,
            headers: Vec::new(),
            names_correlation_id: true,
        };
        self.client.send_request(parts).await
    }
}

/// Whether the error means that the resource, its group or its parent does not exist. A reply without a code
/// may come from a gateway.
fn is_missing_resource(error: &AzureCallError) -> bool {
    const OTHER_CODES: [&str; 6] = [
        crate::authenticated_client::NO_CODE,
        "InvalidResourceNamespace",
        "InvalidResourceType",
        "InvalidSubscriptionId",
        "NoRegisteredProviderFound",
        "SubscriptionNotFound",
    ];
    let AzureCallError::NotFound { code, .. } = error else { return false };
    !OTHER_CODES.iter().any(|other| other.eq_ignore_ascii_case(code))
}

#[cfg(test)]
mod tests;
