//! One exchange with Entra: the proof of an identity for a token.

use std::sync::Arc;

use azure_core::http::{RawResponse, Request, StatusCode, Url};
use uuid::Uuid;

use super::error::{Asked, EntraError, display_url};
use super::request::{Form, Proof};
use super::response::parse_token_response;
use crate::token::error::{RetryClass, TokenError};
use crate::token::source::IssuedToken;
use crate::transport::sender::{Exchange, TokenTransport};

/// The proof of an identity, to be exchanged for a token.
pub(crate) struct ProofExchange<'a> {
    pub(crate) endpoint: &'a Url,
    pub(crate) client_id: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) proof: Proof<'a>,
    pub(crate) claims: Option<&'a str>,
    /// One id for the request and its repetitions.
    pub(crate) request_id: Uuid,
}

impl ProofExchange<'_> {
    /// Sends the proof and reads the token; `generation` is whose key signed it.
    pub(crate) async fn fetch(
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
            return Err(TokenError::Refused(Arc::new(self.refusal(response, now))));
        }
        let token = parse_token_response(response.body(), now).map_err(|problem| {
            let (endpoint, status) = (display_url(self.endpoint), response.status().into());
            TokenError::Unreadable { endpoint, status, problem }
        })?;
        Ok(IssuedToken {
            text: token.text,
            asked_at: answer.asked_at,
            expires_in: token.expires_in,
            refresh_in: token.refresh_in,
            generation,
        })
    }

    fn refusal(&self, response: &RawResponse, now: jiff::Timestamp) -> EntraError {
        let asked = Asked {
            endpoint: self.endpoint,
            client_id: self.client_id,
            request_id: self.request_id,
            proof: self.proof.expose(),
        };
        EntraError::read(asked, response, now)
    }
}

impl Exchange for ProofExchange<'_> {
    fn endpoint(&self) -> &Url {
        self.endpoint
    }

    fn request(&self) -> Request {
        let form = Form {
            client_id: self.client_id,
            scope: self.scope,
            proof: self.proof,
            claims: self.claims,
        };
        form.to_request(self.endpoint, self.request_id)
    }

    fn client_id(&self) -> Option<&str> {
        Some(self.client_id)
    }

    fn may_pass(&self, response: &RawResponse) -> bool {
        if response.status().is_success() {
            return false;
        }
        // The time matters for dates in headers only, and the class does not look at them.
        let refusal = self.refusal(response, jiff::Timestamp::UNIX_EPOCH);
        // A detected loop (AADSTS50196) is throttled too, but repeating is what caused it.
        refusal.retry_class() == RetryClass::Transient
            || response.status() == StatusCode::TooManyRequests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Bench, Reply};

    #[tokio::test]
    async fn a_request_has_one_id_under_the_name_that_entra_reads_and_the_general_one() {
        let bench = asked(200, r#"{"access_token":"t","expires_in":9}"#.to_owned()).await;
        let headers = bench.script.seen(0).headers;
        for name in ["client-request-id", "x-ms-client-request-id"] {
            let id = headers.get_optional_string(&name.into());
            assert_eq!(id, Some(Uuid::nil().to_string()), "{name}");
        }
    }

    async fn asked(status: u16, body: String) -> Bench {
        let bench = Bench::new(move |_, _| Reply::status(status, &body));
        let endpoint = "https://login.example/t/oauth2/v2.0/token".parse().unwrap();
        let exchange = ProofExchange {
            endpoint: &endpoint,
            client_id: "client",
            scope: "s",
            proof: Proof::Assertion("a.b.c"),
            claims: None,
            request_id: Uuid::nil(),
        };
        drop(bench.drive(exchange.fetch(&bench.transport(), 1)).await);
        bench
    }

    #[tokio::test]
    async fn only_what_may_pass_by_itself_is_repeated() {
        for (case, status, error, code, expected) in [
            ("passing trouble", 400, "invalid_request", 90_033, 5),
            ("issuer not reached", 400, "invalid_request", 90_061, 5),
            ("its own word", 400, "temporarily_unavailable", 1, 5),
            ("throttled", 429, "too_many", 1, 5),
            ("a loop", 400, "invalid_grant", 50_196, 1),
            ("refused", 401, "invalid_client", 700_027, 1),
            ("unreadable", 200, "none", 1, 1),
        ] {
            let body = format!(r#"{{"error":"{error}","error_codes":[{code}]}}"#);
            assert_eq!(asked(status, body).await.script.requests(), expected, "{case}");
        }
    }
}
