//! A pipeline policy that adds a bearer token to each request.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::headers::AUTHORIZATION;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};

/// Adds the credential's token to each request.
///
/// Unlike the SDK's policy, this one does not cache tokens: the credential caches them, so a
/// rotated or revoked token is never sent from a second cache.
#[derive(Debug)]
pub struct BearerTokenPolicy {
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

impl BearerTokenPolicy {
    /// Creates a policy for tokens of `credential` for `scope`. It rejects URLs that are not https.
    pub fn new(credential: Arc<dyn TokenCredential>, scope: String) -> Self {
        Self { credential, scope }
    }
}

#[async_trait]
impl Policy for BearerTokenPolicy {
    #[expect(elided_lifetimes_in_paths, reason = "the trait binds the lifetime late")]
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        if request.url().scheme() != "https" {
            let message = "a token is sent over https only";
            return Err(azure_core::Error::with_message(ErrorKind::Credential, message));
        }
        let token = self.credential.get_token(&[&self.scope], None).await?;
        request.insert_header(AUTHORIZATION, format!("Bearer {}", token.token.secret()));
        let Some((first, rest)) = next.split_first() else {
            let message = "the pipeline ends before its transport";
            return Err(azure_core::Error::with_message(ErrorKind::Other, message));
        };
        first.send(context, request, rest).await
    }
}
