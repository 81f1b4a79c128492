//! The bearer token on each request.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::headers::AUTHORIZATION;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};

/// Puts the credential's token on each request.
///
/// The SDK's own policy keeps a token of its own; ours does not sit a second cache on top of the
/// credential's, so a rotated or revoked token is never served from here.
#[derive(Debug)]
pub struct BearerTokenPolicy {
    credential: Arc<dyn TokenCredential>,
    scope: String,
}

impl BearerTokenPolicy {
    /// The tokens of `credential` for `scope`, over https only.
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
