//! A credential whose tokens the SDK does not keep.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::time::OffsetDateTime;

/// Passes tokens on as if they had run out, so that the SDK's policy asks for each request.
///
/// The credential has a cache of its own, which knows of rotations; a second one above it would
/// serve the token of an identity that was replaced. Errors are marked as the credential's, so
/// that a token that was refused is not taken for a vault that refuses.
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
