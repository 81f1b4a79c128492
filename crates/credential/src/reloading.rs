//! The credential of a rotating certificate file.

mod rotation;
mod source;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use self::source::CertificateSource;
use crate::file::{CredentialFile, CredentialFileOptions};
use crate::generation::CredentialGeneration;
use crate::health::{LastTokenError, TokenHealth};
use crate::loader::{LoadError, LoaderHealth};
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::token::request::{TokenKey, TokenVariant};
use crate::transport::sender::{TokenTransport, TokenTransportOptions};

/// Options of a [`ReloadingCertificateCredential`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ReloadingCertificateOptions {
    /// Options for following and parsing the file.
    pub file: CredentialFileOptions,
    /// The transport to Entra. Share one between all credentials of a process.
    pub transport: TokenTransport,
}

impl ReloadingCertificateOptions {
    /// The default options with a custom transport.
    pub fn with_transport(transport: TokenTransportOptions) -> Self {
        Self { transport: TokenTransport::new(transport), ..Self::default() }
    }
}

/// Signs in with a certificate file and follows the file as it rotates.
///
/// The counterpart of msi-dataplane's `NewUserAssignedIdentityCredential`, with these differences:
///
/// - It detects atomic swaps, as the Secrets Store CSI driver makes them, within a second.
/// - A rotation keeps the cached tokens if client, tenant and authority are unchanged: they are still valid.
///   The credential tries the new key in the background, so that an unusable key shows in
///   [`ReloadingCertificateCredential::health`] before a request fails.
/// - While Entra rejects the new key, the credential uses the key that Entra accepted last, until its
///   `not_after`, regardless of the number of rotations since. Whenever Entra rejects a key, the credential
///   reads the file again immediately.
/// - A request for one scope never waits for a request for another, and no caller waits longer than its own
///   timeout.
#[derive(Debug)]
pub struct ReloadingCertificateCredential {
    engine: Arc<TokenEngine<CertificateSource>>,
}

impl ReloadingCertificateCredential {
    /// Loads the file and follows it.
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if the file cannot be read or used: the first load fails fast.
    pub async fn open(
        path: impl AsRef<Path> + Send,
        options: ReloadingCertificateOptions,
    ) -> Result<Arc<Self>, LoadError> {
        let ReloadingCertificateOptions { file, transport } = options;
        let (clock, metrics) = (Arc::clone(transport.clock()), Arc::clone(transport.metrics()));
        let file = CredentialFile::open_with_metrics(path.as_ref(), file, clock, metrics).await?;
        let source = CertificateSource::new(file, transport.clone());
        let engine = Arc::new(TokenEngine::new(source, &transport));
        rotation::spawn_rotation_task(&engine);
        Ok(Arc::new(Self { engine }))
    }

    /// The generation in use.
    pub fn generation(&self) -> Arc<CredentialGeneration> {
        self.engine.source().file().current()
    }

    /// Requests a new token for `scope` even if one is cached, to test the newest key now. The cached token
    /// stays in use until the new one arrives, and after a failure.
    ///
    /// Success means that the identity can still get tokens, with the newest key or with an older one as
    /// fallback: [`CredentialHealth::key`] shows which.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no new token.
    pub async fn renew_token(&self, scope: &str) -> Result<(), TokenError> {
        let key = TokenKey::parse(&[scope], TokenVariant::PLAIN)?;
        self.engine.renew(&key, self.generation().number()).await
    }

    /// The health of the file, the key and the tokens.
    pub fn health(&self) -> CredentialHealth {
        let source = self.engine.source();
        CredentialHealth {
            file: source.file().health(),
            key: source.key_health(),
            tokens: self.engine.health(),
            cool_down_seconds: source.cool_down().map(|left| left.as_secs().max(1)),
        }
    }

    /// Whether the credential can supply tokens, judged without sending a request: one is still valid, or the
    /// credential has not expired and no error affects the identity.
    pub fn is_ready(&self) -> bool {
        let tokens = self.engine.health();
        let expired = self.generation().expires_at() <= self.engine.source().now();
        let valid = tokens.scopes.iter().any(|scope| scope.seconds_left > 0);
        valid || (!expired && tokens.is_ready())
    }
}

engine_credential!(ReloadingCertificateCredential, cached_token);

/// The health of a [`ReloadingCertificateCredential`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CredentialHealth {
    /// The state of the file and its rotations.
    pub file: LoaderHealth,
    /// Entra's verdict on the newest key.
    pub key: KeyHealth,
    /// The state of the tokens.
    pub tokens: TokenHealth,
    /// The remaining cool-down of Entra's token endpoint, in seconds.
    pub cool_down_seconds: Option<u64>,
}

/// Entra's verdict on the newest key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
#[non_exhaustive]
pub enum KeyHealth {
    /// The key has not been used yet.
    #[default]
    Untried,
    /// Entra issued a token for the key.
    Accepted {
        /// The generation.
        generation: u64,
    },
    /// Entra rejected the key. The previous key is the fallback until it expires.
    Refused {
        /// The generation.
        generation: u64,
        /// Entra's error response.
        error: LastTokenError,
    },
}

#[cfg(test)]
mod tests;
