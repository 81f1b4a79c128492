//! Prevents the SDK from caching tokens.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::time::OffsetDateTime;

/// Returns tokens as expired, so that the SDK's policy requests one for each request.
///
/// The credential has its own cache, which handles rotations; a second cache would serve the token of a
/// replaced identity. Errors are marked as the credential's, so that a rejected token request is not mistaken
/// for a rejection by the vault.
#[derive(Debug)]
pub(crate) struct UncachedCredential {
    inner: Arc<dyn TokenCredential>,
}

impl UncachedCredential {
    pub(crate) fn new(inner: Arc<dyn TokenCredential>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl TokenCredential for UncachedCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        match self.inner.get_token(scopes, options).await {
            Ok(token) => Ok(AccessToken { expires_on: OffsetDateTime::UNIX_EPOCH, ..token }),
            Err(error) if *error.kind() == ErrorKind::Credential => Err(error),
            Err(error) => Err(azure_core::Error::new(ErrorKind::Credential, error)),
        }
    }
}
