//! The exchange of a client's credential for an access token with Entra.

use std::sync::Arc;

use azure_core::http::{RawResponse, Request, StatusCode, Url};
use uuid::Uuid;

use super::error::{EntraError, TokenRequestInfo, display_url};
use super::request::{ClientAuthentication, TokenRequestForm};
use super::response::parse_token_response;
use crate::assertion::AssertionSigner;
use crate::identity::EntraApplication;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::IssuedToken;
use crate::transport::sender::{TokenExchange, TokenTransport};
use lanyard_clock::RetryClass;

/// Exchanges the authentication of `application` for the token of `key`. `generation` is the generation whose key
/// signed the assertion; zero for credentials without generations.
pub(crate) async fn exchange(
    application: &EntraApplication,
    authentication: ClientAuthentication<'_>,
    key: &TokenKey,
    generation: u64,
    transport: &TokenTransport,
) -> Result<IssuedToken, TokenError> {
    let claims = key.variant.claims_parameter()?;
    let exchange = ClientCredentialsExchange {
        endpoint: &application.token_endpoint_for(key.variant.tenant.as_ref()),
        client_id: application.client.as_str(),
        scope: &key.scope,
        authentication,
        claims: claims.as_deref(),
        request_id: transport.randomness().uuid(),
    };
    exchange.fetch_token(transport, generation).await
}

/// Like [`exchange`], with an assertion that `signer` signs.
pub(crate) async fn exchange_signed(
    application: &EntraApplication,
    signer: &AssertionSigner,
    key: &TokenKey,
    generation: u64,
    transport: &TokenTransport,
) -> Result<IssuedToken, TokenError> {
    let endpoint = application.token_endpoint_for(key.variant.tenant.as_ref());
    let (now, jti) = (transport.clock().now(), transport.randomness().uuid());
    let assertion = signer
        .sign(&application.client, &endpoint, now, jti)
        .map_err(|error| TokenError::Assertion { generation, source: Arc::new(error) })?;
    let authentication = ClientAuthentication::Assertion(assertion.as_str());
    exchange(application, authentication, key, generation, transport).await
}

/// One exchange of a client's credential for a token.
struct ClientCredentialsExchange<'a> {
    endpoint: &'a Url,
    client_id: &'a str,
    scope: &'a str,
    authentication: ClientAuthentication<'a>,
    claims: Option<&'a str>,
    /// The request id, shared by all retries.
    request_id: Uuid,
}

impl ClientCredentialsExchange<'_> {
    /// Sends the request and parses the token.
    async fn fetch_token(
        &self,
        transport: &TokenTransport,
        generation: u64,
    ) -> Result<IssuedToken, TokenError> {
        let request_id = self.request_id;
        let host = self.endpoint.host_str().unwrap_or_default();
        tracing::debug!(host, scope = self.scope, %request_id, generation, "requesting a token");
        let answer = transport.send(self).await?;
        let (response, now) = (&answer.response, transport.clock().now());
        if !response.status().is_success() {
            return Err(TokenError::Refused(Arc::new(self.error_from_response(response, now))));
        }
        let token = parse_token_response(response.body(), now).map_err(|problem| {
            let (endpoint, status) = (display_url(self.endpoint), response.status().into());
            TokenError::Unreadable { endpoint, status, problem }
        })?;
        Ok(IssuedToken {
            text: token.text,
            requested_at: answer.requested_at,
            expires_in: token.expires_in,
            refresh_in: token.refresh_in,
            generation,
        })
    }

    fn error_from_response(&self, response: &RawResponse, now: jiff::Timestamp) -> EntraError {
        let asked = TokenRequestInfo {
            endpoint: self.endpoint,
            client_id: self.client_id,
            request_id: self.request_id,
            proof: self.authentication.expose(),
        };
        EntraError::from_response(asked, response, now)
    }
}

impl TokenExchange for ClientCredentialsExchange<'_> {
    fn endpoint(&self) -> &Url {
        self.endpoint
    }

    fn request(&self) -> Request {
        let form = TokenRequestForm {
            client_id: self.client_id,
            scope: self.scope,
            authentication: self.authentication,
            claims: self.claims,
        };
        form.to_request(self.endpoint, self.request_id)
    }

    fn client_id(&self) -> Option<&str> {
        Some(self.client_id)
    }

    fn is_retryable(&self, response: &RawResponse) -> bool {
        if response.status().is_success() {
            return false;
        }
        // Only date headers need the time, and the retry class does not use them.
        let rejection = self.error_from_response(response, jiff::Timestamp::UNIX_EPOCH);
        // A detected loop (AADSTS50196) counts as throttling, but retries are its cause.
        rejection.retry_class() == RetryClass::Transient
            || response.status() == StatusCode::TooManyRequests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::scripted_service::{ScriptedReply, TokenServiceFixture};
    use crate::token::request::TokenVariant;

    #[tokio::test]
    async fn request_id_is_sent_in_both_client_request_id_headers() {
        let bench = send_request(200, r#"{"access_token":"t","expires_in":9}"#.to_owned()).await;
        let headers = bench.script.request(0).headers;
        for name in ["client-request-id", "x-ms-client-request-id"] {
            let id = headers.get_optional_string(&name.into());
            assert_eq!(id, Some(Uuid::nil().to_string()), "{name}");
        }
    }

    async fn send_request(status: u16, body: String) -> TokenServiceFixture {
        let bench = TokenServiceFixture::new(move |_, _| ScriptedReply::status(status, &body));
        let (application, transport) = (fixture::application(), bench.transport());
        let key = TokenKey::parse(&["s"], TokenVariant::PLAIN).unwrap();
        let authentication = ClientAuthentication::Assertion("a.b.c");
        let exchange = exchange(&application, authentication, &key, 1, &transport);
        drop(bench.run_to_completion(exchange).await);
        bench
    }

    #[tokio::test]
    async fn only_transient_errors_are_retried() {
        for (case, status, error, code, expected) in [
            ("transient error", 400, "invalid_request", 90_033, 5),
            ("issuer not reached", 400, "invalid_request", 90_061, 5),
            ("its own word", 400, "temporarily_unavailable", 1, 5),
            ("throttled", 429, "too_many", 1, 5),
            ("a loop", 400, "invalid_grant", 50_196, 1),
            ("refused", 401, "invalid_client", 700_027, 1),
            ("unreadable", 200, "none", 1, 1),
        ] {
            let body = format!(r#"{{"error":"{error}","error_codes":[{code}]}}"#);
            assert_eq!(send_request(status, body).await.script.request_count(), expected, "{case}");
        }
    }
}
