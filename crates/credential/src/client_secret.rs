//! The credential of an application that has a client secret.

use std::sync::Arc;

use async_trait::async_trait;

use crate::entra::exchange::exchange;
use crate::entra::request::ClientAuthentication;
use crate::identity::{Authority, ClientId, EntraApplication, TenantId};
use crate::secret::SecretText;
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::sender::TokenTransport;

/// Authenticates an application with a client secret (RFC 6749 section 4.4).
///
/// A client secret is the weakest credential: each request carries it, and anyone who reads it can act as the
/// application. It is supported because `SecretProviderClass`es that use `nodePublishSecretRef` need it.
#[derive(Debug)]
pub struct ClientSecretCredential {
    engine: TokenEngine<ClientSecretSource>,
}

impl ClientSecretCredential {
    /// Creates a credential for the application `client` in `tenant`.
    pub fn new(
        tenant: &TenantId,
        client: ClientId,
        authority: &Authority,
        secret: SecretText,
        transport: &TokenTransport,
    ) -> Arc<Self> {
        let application = EntraApplication::new(tenant.clone(), client, authority.clone());
        let source = ClientSecretSource { application, secret, transport: transport.clone() };
        Arc::new(Self { engine: TokenEngine::new(source, transport) })
    }
}

engine_credential!(ClientSecretCredential, health);

#[derive(Debug)]
struct ClientSecretSource {
    application: EntraApplication,
    secret: SecretText,
    transport: TokenTransport,
}

#[async_trait]
impl TokenSource for ClientSecretSource {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        let authentication = ClientAuthentication::Secret(self.secret.expose());
        exchange(&self.application, authentication, key, 0, &self.transport).await
    }
}

#[cfg(test)]
mod tests {
    use azure_core::credentials::TokenCredential as _;
    use lanyard_clock::ErrorHint as _;

    use super::*;
    use crate::scripted_service::{ScriptedReply, TokenServiceFixture};

    const VAULT: &str = "https://vault.azure.net/.default";

    fn credential(bench: &TokenServiceFixture) -> Arc<ClientSecretCredential> {
        let authority = "https://login.example".parse().unwrap();
        let secret = SecretText::from("planted marker/of~a secret");
        let client = "client".parse().unwrap();
        let transport = bench.transport();
        let tenant = "tenant".parse().unwrap();
        ClientSecretCredential::new(&tenant, client, &authority, secret, &transport)
    }

    #[tokio::test]
    async fn client_secret_is_exchanged_once_and_the_token_is_cached() {
        let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
        let credential = credential(&bench);
        for _ in 0..3 {
            let token =
                bench.run_to_completion(credential.get_token(&[VAULT], None)).await.unwrap();
            assert_eq!(token.token.secret(), "t");
        }
        assert_eq!(bench.script.request_count(), 1);
        let observed = bench.script.request(0);
        assert_eq!(observed.url.as_str(), "https://login.example/tenant/oauth2/v2.0/token");
        assert_eq!(observed.form_field("client_secret").unwrap(), "planted marker/of~a secret");
        assert_eq!(observed.form_field("client_assertion"), None);
    }

    #[tokio::test]
    async fn echoed_client_secret_is_redacted_from_errors() {
        let echo = |observed: &crate::scripted_service::RecordedRequest, _| {
            let secret = observed.form_field("client_secret").unwrap();
            let text = format!("AADSTS7000215: Invalid client secret provided: {secret}");
            let body = serde_json::json!({"error": "invalid_client", "error_description": text});
            ScriptedReply::status(401, &body.to_string())
        };
        let bench = TokenServiceFixture::new(echo);
        let credential = credential(&bench);
        let error =
            bench.run_to_completion(credential.get_token(&[VAULT], None)).await.unwrap_err();
        let error = TokenError::of(&error).unwrap();
        let output = format!("{error} {error:?} {credential:?} {:?}", error.hint());
        assert!(!output.contains("planted"), "{output}");
        assert!(!error.is_outage());
    }
}
