//! Error responses of Entra ID.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use azure_core::http::headers::Headers;
use azure_core::http::{RawResponse, Url};
use azure_core::time::parse_rfc7231;
use jiff::{SignedDuration, Timestamp};
use lanyard_clock::{ErrorHint, ErrorReply};
use uuid::Uuid;

use super::error_body::{TokenErrorBody, parse_error_body};
use crate::error_codes::ENTRA;
use crate::reply::retry_after;
use crate::transport::redact::redact;
use lanyard_clock::RetryClass;

/// Entra ID's error response to a token request.
///
/// The error codes may change, as Microsoft's documentation warns: only hints use them, and decisions check
/// [`EntraError::error`] first.
#[derive(Clone)]
pub struct EntraError {
    endpoint: String,
    client_id: String,
    request_id: Uuid,
    body: TokenErrorBody,
    retry_after: Option<Duration>,
    clock_skew: Option<SignedDuration>,
    detail: Option<String>,
    /// Whether the credential knows a reason why this error may be transient.
    is_transient: bool,
    response: RawResponse,
}

/// The token request that a response answers.
#[derive(Clone, Copy)]
pub(crate) struct TokenRequestInfo<'a> {
    pub(crate) endpoint: &'a Url,
    pub(crate) client_id: &'a str,
    pub(crate) request_id: Uuid,
    /// The secret that must not appear in the error, even if the response echoes it.
    pub(crate) proof: &'a str,
}

impl EntraError {
    /// Parses an error response that arrived at `now`.
    pub(crate) fn from_response(
        asked: TokenRequestInfo<'_>,
        response: &RawResponse,
        now: Timestamp,
    ) -> Self {
        let secrets = [asked.proof];
        let headers = response.headers();
        Self {
            endpoint: display_url(asked.endpoint),
            client_id: asked.client_id.to_owned(),
            request_id: asked.request_id,
            body: parse_error_body(response.body(), &secrets),
            retry_after: retry_after(headers, now),
            clock_skew: measure_clock_skew(headers, now),
            detail: None,
            is_transient: false,
            response: redacted_response(response, &secrets),
        }
    }

    /// Adds the credential's own details to the hint, for example the subject of a token.
    pub(crate) fn with_detail(mut self, remark: String) -> Self {
        self.detail = Some(remark);
        self
    }

    /// Marks the error as transient, based on what the credential knows.
    pub(crate) fn mark_transient(mut self) -> Self {
        self.is_transient = true;
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().into()
    }

    /// The OAuth `error`, for example `invalid_client`.
    pub fn error(&self) -> Option<&str> {
        self.body.error.as_deref()
    }

    /// The beginning of `error_description`, on one line.
    pub fn description(&self) -> Option<&str> {
        self.body.description.as_deref()
    }

    /// The numeric codes of `error_codes`.
    pub fn error_codes(&self) -> &[u32] {
        &self.body.codes
    }

    /// The number of the AADSTS code, if the response has one.
    pub fn code(&self) -> Option<u32> {
        self.body.codes.first().copied()
    }

    /// Entra's id of the request.
    pub fn trace_id(&self) -> Option<&str> {
        self.body.trace_id.as_deref()
    }

    /// The id that correlates this request with others.
    pub fn correlation_id(&self) -> Option<&str> {
        self.body.correlation_id.as_deref()
    }

    /// The time of the error, as Entra wrote it.
    pub fn timestamp(&self) -> Option<&str> {
        self.body.timestamp.as_deref()
    }

    /// The claims challenge that a new request has to satisfy, as JSON text.
    pub fn claims(&self) -> Option<&str> {
        self.body.claims.as_deref()
    }

    /// The `suberror`, which subdivides some error codes.
    pub fn suberror(&self) -> Option<&str> {
        self.body.suberror.as_deref()
    }

    /// The delay of the `Retry-After` header.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// How far the service's clock (its `Date` header) is ahead of the local clock; negative if it is behind.
    /// The precision is about the response's transit time.
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        self.clock_skew
    }

    /// The response with secrets redacted from its body.
    pub fn response(&self) -> &RawResponse {
        &self.response
    }

    /// Whether the service rejects the credential itself, so that another key may succeed.
    pub fn is_invalid_client(&self) -> bool {
        self.error() == Some("invalid_client")
            || self.code().is_some_and(|code| KEY_CODES.contains(&code))
    }

    /// Whether the service knows the identity and rejects the requested scope.
    pub(crate) fn is_scope_error(&self) -> bool {
        let by_code = |code| SCOPE_CODES.contains(&code);
        let by_word = || matches!(self.error(), Some("invalid_scope" | "invalid_resource"));
        self.code()
            .map_or_else(by_word, |code| by_code(code) || (by_word() && !KEY_CODES.contains(&code)))
    }

    /// Whether repeating the request can succeed. Entra sends some codes with several values of `error`, which
    /// distinguishes invalid from denied requests.
    pub fn retry_class(&self) -> RetryClass {
        let by_code = ENTRA.find(self.reply(self.code_name().as_deref()));
        let by_code = by_code.filter(|row| {
            matches!(row.class, RetryClass::Transient | RetryClass::Throttled { .. })
        });
        let by_error = ErrorReply { status: None, code: self.error(), message: "" };
        let row = ENTRA.find_by_status(self.status()).or(by_code).or_else(|| ENTRA.find(by_error));
        match row.map_or(RetryClass::Denied, |row| row.class) {
            RetryClass::Throttled { .. } => RetryClass::Throttled { after: self.retry_after },
            _ if self.is_transient => RetryClass::Transient,
            class => class,
        }
    }

    /// The AADSTS code, or the OAuth `error` of a reply without such a code.
    pub(crate) fn code_name(&self) -> Option<Cow<'_, str>> {
        let number = self.code().map(|code| Cow::Owned(format!("AADSTS{code}")));
        number.or_else(|| self.error().map(Cow::Borrowed))
    }

    fn reply<'a>(&'a self, code: Option<&'a str>) -> ErrorReply<'a> {
        let message = self.description().or(self.body.excerpt.as_deref()).unwrap_or_default();
        ErrorReply { status: Some(self.status()), code, message }
    }
}

impl ErrorHint for EntraError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let skewed = self.clock_skew.filter(|skew| skew.abs() >= NOTABLE_SKEW);
        let hint: Cow<'static, str> = match skewed
            .filter(|_| self.code() == Some(OUTSIDE_TIME_RANGE))
        {
            Some(skew) => {
                let direction = if skew.is_positive() { "behind" } else { "ahead of" };
                let seconds = skew.abs().as_secs();
                format!("this host's clock is {seconds} s {direction} the service's: set it").into()
            }
            None => ENTRA.hint(self.reply(self.code_name().as_deref())),
        };
        Some(match &self.detail {
            Some(remark) => format!("{hint}; {remark}").into(),
            None => hint,
        })
    }
}

impl fmt::Display for EntraError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, endpoint) = (&self.client_id, &self.endpoint);
        let status = self.status();
        write!(formatter, "{endpoint} refused a token to client {client} with status {status}")?;
        if let Some(error) = self.error() {
            write!(formatter, ", {error}")?;
        }
        let text = self.description().or(self.body.excerpt.as_deref());
        let named = text.is_some_and(|text| text.starts_with("AADSTS"));
        if let Some(code) = self.code().filter(|_| !named) {
            write!(formatter, ", AADSTS{code}")?;
        }
        if let Some(text) = text {
            write!(formatter, ": {}", text.trim_end_matches('.'))?;
        }
        write!(formatter, " (client-request-id {}", self.request_id)?;
        if let Some(trace_id) = self.trace_id() {
            write!(formatter, ", trace id {trace_id}")?;
        }
        // Entra repeats the id of the request.
        let correlation_id = self.correlation_id();
        if let Some(correlation_id) =
            correlation_id.filter(|it| *it != self.request_id.to_string().as_str())
        {
            write!(formatter, ", correlation id {correlation_id}")?;
        }
        if let Some(timestamp) = self.timestamp() {
            write!(formatter, ", {timestamp}")?;
        }
        formatter.write_str(")")
    }
}

impl fmt::Debug for EntraError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EntraError")
            .field("endpoint", &self.endpoint)
            .field("client_id", &self.client_id)
            .field("request_id", &self.request_id)
            .field("status", &self.status())
            .field("answer", &self.body)
            .field("retry_after", &self.retry_after)
            .field("skew", &self.clock_skew)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for EntraError {}

/// A URL's origin and path, for messages: its user info, query and fragment may contain secrets.
pub(crate) fn display_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// Redacts secrets in the response's body and removes its cookies.
pub(crate) fn redacted_response(response: &RawResponse, secrets: &[&str]) -> RawResponse {
    let mut headers = response.headers().clone();
    headers.remove("set-cookie");
    let mut body = redact(&String::from_utf8_lossy(response.body()), secrets);
    // Truncate after redaction: a truncated secret would not be recognised.
    body.truncate(body.floor_char_boundary(MAX_KEPT_BODY));
    RawResponse::from_bytes(response.status(), headers, body)
}

fn measure_clock_skew(headers: &Headers, now: Timestamp) -> Option<SignedDuration> {
    let date = parse_rfc7231(headers.get_optional_str(&"date".into())?).ok()?;
    Some(SignedDuration::from_secs(date.unix_timestamp() - now.as_second()))
}

/// Codes about the key, although Entra sometimes sends them with another `error`.
const KEY_CODES: [u32; 4] = [700_027, 700_024, 1_000_502, 7_000_214];
/// Codes about the scope or its resource: malformed, or unknown in this tenant.
const SCOPE_CODES: [u32; 4] = [70_011, 500_011, 650_057, 1_002_012];
/// The assertion is outside its time range.
pub(crate) const OUTSIDE_TIME_RANGE: u32 = 700_024;
/// A smaller skew is noise: the `Date` header counts whole seconds, and the response is in transit for a
/// while.
const NOTABLE_SKEW: SignedDuration = SignedDuration::from_secs(30);
/// The maximum length of the stored error body, in bytes.
const MAX_KEPT_BODY: usize = 8 * 1024;

#[cfg(test)]
mod tests;
