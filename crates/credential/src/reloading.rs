//! The credential of a certificate file that rotates.

mod observer;
mod rotation;
mod source;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use serde::Serialize;

use self::observer::MetricsLoadObserver;
use self::source::CertificateSource;
use crate::file::{CredentialFile, CredentialFileOptions, LoadError};
use crate::generation::CredentialGeneration;
use crate::health::{LastTokenError, TokenHealth};
use crate::loader::LoaderHealth;
use crate::token::engine::TokenEngine;
use crate::token::error::TokenError;
use crate::token::request::{TokenKey, TokenVariant};
use crate::token::table::CachedToken;
use crate::transport::sender::{TokenTransport, TokenTransportOptions};

/// How a [`ReloadingCertificateCredential`] reads its file and reaches Entra.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ReloadingCertificateOptions {
    /// How the file is followed and understood.
    pub file: CredentialFileOptions,
    /// The way to Entra; give all the credentials of a process the same one.
    pub transport: TokenTransport,
}

impl ReloadingCertificateOptions {
    /// The default options over a transport of your own.
    pub fn with_transport(transport: TokenTransportOptions) -> Self {
        Self { transport: TokenTransport::new(transport), ..Self::default() }
    }
}

/// A credential that signs in with a certificate file and follows the file as it rotates.
///
/// The counterpart of msi-dataplane's `NewUserAssignedIdentityCredential`, with these differences:
///
/// - It notices atomic swaps, as the Secrets Store CSI driver makes them, within a second.
/// - A rotation keeps the tokens, as long as client, tenant and authority stay the same: they are
///   still valid. The new key is tried in the background, so that a broken one shows in
///   [`ReloadingCertificateCredential::health`] and not in a request.
/// - While Entra refuses the new key, the one that worked last serves until its `not_after`,
///   however many rotations ago that was; and whenever Entra refuses a key, the file is read again
///   at once.
/// - A request for one scope never waits for another's, and no caller longer than it wants to.
#[derive(Debug)]
pub struct ReloadingCertificateCredential {
    engine: Arc<TokenEngine<CertificateSource>>,
}

impl ReloadingCertificateCredential {
    /// Loads the file and follows it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if the file cannot be read or used: the first load fails fast.
    pub async fn open(
        path: impl AsRef<Path> + Send,
        options: ReloadingCertificateOptions,
    ) -> Result<Arc<Self>, LoadError> {
        let ReloadingCertificateOptions { mut file, transport } = options;
        let metrics = Arc::clone(transport.metrics());
        file.observer = Some(Arc::new(MetricsLoadObserver { metrics, next: file.observer.take() }));
        let file = CredentialFile::open(path, file, Arc::clone(transport.clock())).await?;
        let source = CertificateSource::new(file, transport.clone());
        let engine = Arc::new(TokenEngine::new(source, &transport));
        rotation::spawn_rotation_task(&engine);
        Ok(Arc::new(Self { engine }))
    }

    /// The generation in use.
    pub fn generation(&self) -> Arc<CredentialGeneration> {
        self.engine.source().file().current()
    }

    /// Lends the cached token for `scope` to `read`, without copying it; none if it has to be
    /// fetched first.
    pub fn with_cached_token<R>(&self, scope: &str, read: impl FnOnce(&str) -> R) -> Option<R> {
        self.engine.with_cached_token(scope, &TokenVariant::PLAIN, |token: &CachedToken| {
            read(token.expose())
        })
    }

    /// Asks Entra for a new token for `scope` though one is held, so that the newest key proves
    /// itself now. What is held serves on until the new one is there, and if none comes.
    ///
    /// A success says that the identity still gets tokens, by the newest key or by an older one in
    /// its place: which, [`CredentialHealth::key`] knows.
    ///
    /// # Errors
    ///
    /// Why there is no new token.
    pub async fn renew_token(&self, scope: &str) -> Result<(), TokenError> {
        let key = TokenKey::parse(&[scope], TokenVariant::PLAIN)?;
        self.engine.renew(&key, self.generation().number()).await
    }

    /// How the credential is: the file, the key and the tokens.
    pub fn health(&self) -> CredentialHealth {
        let source = self.engine.source();
        CredentialHealth {
            file: source.file().health(),
            key: source.key_health(),
            tokens: self.engine.health(),
            cool_down_seconds: source.cool_down().map(|left| left.as_secs().max(1)),
        }
    }

    /// Whether tokens can be had, as far as is known without asking: one is still valid, or the
    /// credential has not expired and nothing puts the identity in doubt.
    pub fn is_ready(&self) -> bool {
        let tokens = self.engine.health();
        let expired = self.generation().expires_at() <= self.engine.source().now();
        let valid = tokens.scopes.iter().any(|scope| scope.seconds_left > 0);
        valid || (!expired && tokens.is_ready())
    }
}

#[async_trait]
impl TokenCredential for ReloadingCertificateCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        self.engine.access_token(scopes, options).await
    }
}

/// How a [`ReloadingCertificateCredential`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CredentialHealth {
    /// The file and its rotations.
    pub file: LoaderHealth,
    /// What Entra thinks of the newest key.
    pub key: KeyHealth,
    /// The tokens.
    pub tokens: TokenHealth,
    /// For how many seconds Entra still wants to be left alone.
    pub cool_down_seconds: Option<u64>,
}

/// What Entra thinks of the newest key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum KeyHealth {
    /// It has not been used yet.
    #[default]
    Untried,
    /// It has fetched a token.
    Accepted {
        /// The generation.
        generation: u64,
    },
    /// Entra refuses it. The key before serves while it lasts.
    Refused {
        /// The generation.
        generation: u64,
        /// Entra's answer.
        error: LastTokenError,
    },
}

#[cfg(test)]
mod tests;
