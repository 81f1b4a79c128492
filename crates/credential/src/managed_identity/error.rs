//! Error responses of managed identity endpoints.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use azure_core::http::{RawResponse, Url};
use jiff::Timestamp;
use lanyard_clock::{ErrorCodeTable, ErrorHint, ErrorReply};

use super::endpoint_kind::ManagedIdentityEndpointKind;
use crate::entra::error::{display_url, redacted_response};
use crate::entra::error_body::{TokenErrorBody, parse_error_body};
use crate::error_codes::{APP_SERVICE, ENTRA, IDENTITY_NOT_FOUND, IMDS, NO_MANAGED_IDENTITY_FOUND};
use crate::reply::retry_after;
use lanyard_clock::RetryClass;

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
        match self.table().find_by_status(self.status()).map(|row| row.class) {
            Some(RetryClass::Throttled { .. }) => RetryClass::Throttled { after: self.retry_after },
            class => class.unwrap_or(RetryClass::Denied),
        }
    }

    /// Whether the requested identity is not assigned to the host or app, or the host or app has no identity.
    pub fn is_unassigned(&self) -> bool {
        let row = self.table().find(self.reply());
        row.is_some_and(|row| {
            matches!(row.message_part, IDENTITY_NOT_FOUND | NO_MANAGED_IDENTITY_FOUND)
        })
    }

    /// The error codes of the endpoint.
    const fn table(&self) -> &'static ErrorCodeTable {
        match self.kind {
            ManagedIdentityEndpointKind::Imds => &IMDS,
            ManagedIdentityEndpointKind::AppService => &APP_SERVICE,
        }
    }

    fn reply(&self) -> ErrorReply<'_> {
        let message = self.text().unwrap_or_default();
        ErrorReply { status: Some(self.status()), code: self.error(), message }
    }

    fn text(&self) -> Option<&str> {
        self.description().or(self.body.excerpt.as_deref())
    }
}

impl ErrorHint for ManagedIdentityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let reply = self.reply();
        // The endpoint repeats errors of Entra ID.
        Some(match self.body.codes.first().map(|code| format!("AADSTS{code}")) {
            Some(code) => ENTRA.hint(ErrorReply { code: Some(&code), ..reply }),
            None => self.table().hint(reply),
        })
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
