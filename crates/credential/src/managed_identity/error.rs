//! Error responses of managed identity endpoints.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use azure_core::http::{RawResponse, Url};
use jiff::Timestamp;
use lanyard_clock::ErrorHint;

use super::endpoint::ManagedIdentityEndpointKind;
use crate::entra::error::{display_url, redacted_response};
use crate::entra::error_body::{TokenErrorBody, parse_error_body};
use crate::reply::retry_after;
use crate::token::error::RetryClass;

/// The error response of a managed identity endpoint.
#[derive(Clone)]
pub struct ManagedIdentityError {
    kind: ManagedIdentityEndpointKind,
    endpoint: String,
    body: TokenErrorBody,
    retry_after: Option<Duration>,
    response: RawResponse,
}

impl ManagedIdentityError {
    /// Parses an error response that arrived at `now`.
    pub(crate) fn from_response(
        kind: ManagedIdentityEndpointKind,
        endpoint: &Url,
        secrets: &[&str],
        response: &RawResponse,
        now: Timestamp,
    ) -> Self {
        Self {
            kind,
            endpoint: display_url(endpoint),
            body: parse_error_body(response.body(), secrets),
            retry_after: retry_after(response.headers(), now),
            response: redacted_response(response, secrets),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().into()
    }

    /// The endpoint's error code, for example `invalid_request`.
    pub fn error(&self) -> Option<&str> {
        self.body.error.as_deref()
    }

    /// The endpoint's description, on one line.
    pub fn description(&self) -> Option<&str> {
        self.body.description.as_deref()
    }

    /// The delay of the `Retry-After` header.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The response with secrets redacted from its body.
    pub fn response(&self) -> &RawResponse {
        &self.response
    }

    /// Whether repeating the request can succeed.
    pub fn retry_class(&self) -> RetryClass {
        match self.status() {
            429 => RetryClass::Throttled { after: self.retry_after },
            404 | 408 | 410 | 500.. => RetryClass::Transient,
            _ => RetryClass::Denied,
        }
    }

    fn text(&self) -> Option<&str> {
        self.description().or(self.body.excerpt.as_deref())
    }
}

impl ErrorHint for ManagedIdentityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let unreachable = self.text().is_some_and(|text| text.contains("unreachable"));
        let text = match (self.kind, self.status()) {
            (ManagedIdentityEndpointKind::Imds, 403) if unreachable => {
                "a proxy answered in the place of IMDS, as Docker Desktop does: managed identity \
                 is not available here, use another credential"
            }
            (_, 400) => {
                "the identity is not assigned to this host: check the client id, and assign the \
                 identity to the virtual machine, scale set or app"
            }
            (ManagedIdentityEndpointKind::AppService, 401 | 403) => {
                "the endpoint does not accept IDENTITY_HEADER: it changes when the app restarts, \
                 so read it again"
            }
            (_, 404 | 410) => {
                "the endpoint is being updated or no identity is assigned: try again in a minute, \
                 then check the identity of this host"
            }
            (_, 429) => "too many requests from this host: look for processes that do not cache",
            (_, 500..=599) => "the endpoint has a transient error: the request will be retried",
            _ => {
                "something else may answer at the endpoint's address: check \
                 AZURE_POD_IDENTITY_AUTHORITY_HOST and IDENTITY_ENDPOINT"
            }
        };
        Some(text.into())
    }
}

impl fmt::Display for ManagedIdentityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (endpoint, status) = (&self.endpoint, self.status());
        write!(formatter, "{} at {endpoint} answered with status {status}", self.kind)?;
        if let Some(error) = self.error() {
            write!(formatter, ", {error}")?;
        }
        if let Some(text) = self.text() {
            write!(formatter, ": {}", text.trim_end_matches('.'))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ManagedIdentityError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ManagedIdentityError")
            .field("kind", &self.kind)
            .field("endpoint", &self.endpoint)
            .field("status", &self.status())
            .field("answer", &self.body)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for ManagedIdentityError {}
