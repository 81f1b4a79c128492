//! The operations of the plugin, independent of gRPC: encrypt, decrypt, and prove that both work.

mod proof;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use zeroize::Zeroizing;

use self::proof::ProofCache;
use crate::algorithm::KeyAlgorithm;
use crate::annotations::{CiphertextAnnotations, check_ciphertext_origin, desired_annotations};
use crate::error::{KeyOperationError, KmsPluginError};
use crate::key::{PinnedKey, key_id};
use crate::layout::CiphertextLayout;
use crate::metrics::{KmsMetrics, MeasuredOperation};
use crate::retry;
use crate::vault::{KeyResult, KmsKeyOperation, VaultKeyClient};

/// A ciphertext of version 2 of the KMS API, with the key id and annotations that the API server
/// stores with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptedValue {
    /// The ciphertext, in one of the two layouts.
    pub ciphertext: Vec<u8>,
    /// The id of the key that encrypted it.
    pub key_id: String,
    /// The annotations that the API server stores with the ciphertext.
    pub annotations: CiphertextAnnotations,
}

/// The key, vault client, metrics and clock that a plugin uses.
#[derive(Debug)]
pub struct KmsPluginParts {
    /// The key version that the plugin serves.
    pub key: PinnedKey,
    /// The layout of new ciphertexts; the plugin reads both layouts.
    pub layout: CiphertextLayout,
    /// The client that encrypts and decrypts.
    pub vault: Arc<dyn VaultKeyClient>,
    /// The metrics that the plugin updates.
    pub metrics: KmsMetrics,
    /// The source of time.
    pub clock: SharedClock,
}

/// The plugin for one key version. Clones share their state.
#[derive(Debug, Clone)]
pub struct KmsPlugin(Arc<KmsPluginInner>);

#[derive(Debug)]
struct KmsPluginInner {
    parts: KmsPluginParts,
    proof_cache: ProofCache,
}

impl KmsPlugin {
    /// Creates a plugin. Makes no request.
    pub fn new(parts: KmsPluginParts) -> Self {
        let proof = ProofCache::new(Arc::clone(&parts.clock));
        Self(Arc::new(KmsPluginInner { parts, proof_cache: proof }))
    }

    /// The key version that the plugin serves.
    pub fn key(&self) -> &PinnedKey {
        &self.0.parts.key
    }

    pub(crate) fn metrics(&self) -> &KmsMetrics {
        &self.0.parts.metrics
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.parts.clock
    }

    /// Encrypts for version 2 of the KMS API. Retries transient errors for up to `given`.
    pub async fn encrypt(
        &self,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<EncryptedValue, KmsPluginError> {
        let (ciphertext, result) =
            self.encrypt_with_vault(KeyAlgorithm::RsaOaep256, plaintext, given).await?;
        Ok(EncryptedValue {
            ciphertext,
            key_id: self.key().id().to_owned(),
            annotations: desired_annotations(self.0.parts.layout, &result.reply_headers),
        })
    }

    /// Decrypts a ciphertext of version 2 in either layout. Rejects a ciphertext that cannot be one
    /// of this key's without a request to the vault.
    pub async fn decrypt(
        &self,
        sealed: &EncryptedValue,
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, KmsPluginError> {
        check_ciphertext_origin(self.key(), &sealed.key_id, &sealed.annotations)?;
        self.decrypt_with_vault(KeyAlgorithm::RsaOaep256, &sealed.ciphertext, given).await
    }

    /// Encrypts for version 1 of the KMS API, which stores only the ciphertext.
    pub async fn encrypt_v1(
        &self,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<Vec<u8>, KmsPluginError> {
        let (ciphertext, _) =
            self.encrypt_with_vault(KeyAlgorithm::Rsa15, plaintext, given).await?;
        Ok(ciphertext)
    }

    /// Decrypts a ciphertext of version 1 in either layout.
    pub async fn decrypt_v1(
        &self,
        ciphertext: &[u8],
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, KmsPluginError> {
        self.decrypt_with_vault(KeyAlgorithm::Rsa15, ciphertext, given).await
    }

    /// Proves that the key works by encrypting and decrypting a test value.
    ///
    /// A successful proof is valid for [`KmsPlugin::PROOF_VALIDITY`]. Concurrent callers share one
    /// proof and its result, except that a caller with a longer deadline does not share a timeout.
    /// The vault therefore gets at most two requests in that time, however many API servers and
    /// probes ask.
    pub async fn prove(&self, given: Duration) -> Result<(), Arc<KmsPluginError>> {
        self.0.proof_cache.get_or_prove(given, |left| self.prove_uncached(left)).await
    }

    /// How long a successful proof is valid. API servers ask every 60 s, and probes and health
    /// requests ask in between.
    pub const PROOF_VALIDITY: Duration = Duration::from_secs(10);

    async fn prove_uncached(&self, given: Duration) -> Result<(), KmsPluginError> {
        let until = self.clock().monotonic().saturating_add(given);
        let sealed = self.encrypt(HEALTHCHECK, given).await?;
        let left = until.saturating_sub(self.clock().monotonic());
        let plaintext = self.decrypt(&sealed, left).await?;
        if plaintext.as_slice() == HEALTHCHECK {
            Ok(())
        } else {
            Err(KmsPluginError::ProofMismatch)
        }
    }

    async fn encrypt_with_vault(
        &self,
        algorithm: KeyAlgorithm,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<(Vec<u8>, KeyResult), KmsPluginError> {
        let layout = self.0.parts.layout;
        let value = layout.encrypt_value(plaintext);
        let result = self
            .call_with_retries(KmsKeyOperation::Encrypt, algorithm, &value, given)
            .await
            .map_err(KmsPluginError::Encrypt)?;
        // A ciphertext that is stored under the id of another key could never be decrypted.
        let got = result.kid.as_deref().unwrap_or_default();
        if key_id(got) != self.key().id() {
            let expected = self.key().id().to_owned();
            return Err(KmsPluginError::KeyId { expected, got: got.to_owned() });
        }
        let ciphertext = layout.ciphertext(&result.value).map_err(KmsPluginError::Ciphertext)?;
        Ok((ciphertext, result))
    }

    async fn decrypt_with_vault(
        &self,
        algorithm: KeyAlgorithm,
        ciphertext: &[u8],
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, KmsPluginError> {
        let layout = CiphertextLayout::of_ciphertext(ciphertext).map_err(KmsPluginError::Layout)?;
        let value = layout.decrypt_value(ciphertext);
        let result = self
            .call_with_retries(KmsKeyOperation::Decrypt, algorithm, &value, given)
            .await
            .map_err(KmsPluginError::Decrypt)?;
        layout.plaintext(&result.value).map_err(KmsPluginError::Plaintext)
    }

    /// Calls the vault, and retries transient errors while time is left.
    async fn call_with_retries(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        value: &str,
        given: Duration,
    ) -> Result<KeyResult, KeyOperationError> {
        let clock = self.clock();
        let until = clock.monotonic().saturating_add(given);
        let mut tries = 0;
        loop {
            let left = until.saturating_sub(clock.monotonic());
            let error = match self.call_once(operation, algorithm, value, left).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            tries += 1;
            let left = until.saturating_sub(clock.monotonic());
            let Some(pause) = retry::retry_delay(tries, &error, left, fastrand::f64()) else {
                return Err(error);
            };
            tracing::debug!(tries, word = error.label(), ?pause, "retrying the vault request");
            clock.sleep(pause).await;
        }
    }

    async fn call_once(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        value: &str,
        left: Duration,
    ) -> Result<KeyResult, KeyOperationError> {
        let KmsPluginInner { parts: KmsPluginParts { vault, clock, metrics, .. }, .. } = &*self.0;
        let began = clock.monotonic();
        let limit = retry::token_timeout(left);
        let token = tokio::select! {
            biased;
            token = vault.prepare_token() => token,
            () = clock.sleep(limit) => Err(KeyOperationError::TokenTimedOut { after: limit }),
        };
        let left = left.saturating_sub(clock.monotonic().saturating_sub(began));
        let limit = retry::attempt_timeout(left);
        let result = if let Err(error) = token {
            Err(error)
        } else {
            tokio::select! {
                biased;
                result = vault.run_operation(operation, algorithm, value) => result,
                () = clock.sleep(limit) => Err(KeyOperationError::TimedOut { after: limit }),
            }
        };
        let counted = match operation {
            KmsKeyOperation::Encrypt => MeasuredOperation::Encrypt,
            KmsKeyOperation::Decrypt => MeasuredOperation::Decrypt,
        };
        let took = clock.monotonic().saturating_sub(began);
        metrics.record(counted, took, result.as_ref().err().map(KeyOperationError::label));
        result
    }
}

/// The plaintext of the proof; upstream and its fork use the same one.
const HEALTHCHECK: &[u8] = b"healthcheck";
