//! What the plugin does, without a wire: encrypt, decrypt, and prove that both work.

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

/// A ciphertext of version 2 of the KMS API, with what is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptedValue {
    /// The ciphertext, in one of the two layouts.
    pub ciphertext: Vec<u8>,
    /// The id of the key that encrypted it.
    pub key_id: String,
    /// What is kept beside it.
    pub annotations: CiphertextAnnotations,
}

/// What a plugin works with.
#[derive(Debug)]
pub struct KmsPluginParts {
    /// The key.
    pub key: PinnedKey,
    /// How new ciphertexts are laid out; both layouts are read.
    pub layout: CiphertextLayout,
    /// Who encrypts and decrypts.
    pub vault: Arc<dyn VaultKeyClient>,
    /// Where requests are counted.
    pub metrics: KmsMetrics,
    /// The time.
    pub clock: SharedClock,
}

/// The plugin of one key version. Clones are the same plugin.
#[derive(Debug, Clone)]
pub struct KmsPlugin(Arc<KmsPluginInner>);

#[derive(Debug)]
struct KmsPluginInner {
    parts: KmsPluginParts,
    proof_cache: ProofCache,
}

impl KmsPlugin {
    /// A plugin that has asked nobody yet.
    pub fn new(parts: KmsPluginParts) -> Self {
        let proof = ProofCache::new(Arc::clone(&parts.clock));
        Self(Arc::new(KmsPluginInner { parts, proof_cache: proof }))
    }

    /// The key.
    pub fn key(&self) -> &PinnedKey {
        &self.0.parts.key
    }

    /// The numbers.
    pub(crate) fn metrics(&self) -> &KmsMetrics {
        &self.0.parts.metrics
    }

    /// The time.
    pub(crate) fn clock(&self) -> &SharedClock {
        &self.0.parts.clock
    }

    /// Encrypts for version 2. Within `given`, what passes by itself is tried again.
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

    /// Decrypts what either layout of version 2 holds. What cannot be one of this key's ciphertexts
    /// is refused without asking the vault.
    pub async fn decrypt(
        &self,
        sealed: &EncryptedValue,
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, KmsPluginError> {
        check_ciphertext_origin(self.key(), &sealed.key_id, &sealed.annotations)?;
        self.decrypt_with_vault(KeyAlgorithm::RsaOaep256, &sealed.ciphertext, given).await
    }

    /// Encrypts for version 1: the ciphertext is all there is.
    pub async fn encrypt_v1(
        &self,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<Vec<u8>, KmsPluginError> {
        let (ciphertext, _) =
            self.encrypt_with_vault(KeyAlgorithm::Rsa15, plaintext, given).await?;
        Ok(ciphertext)
    }

    /// Decrypts what either layout of version 1 holds.
    pub async fn decrypt_v1(
        &self,
        ciphertext: &[u8],
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, KmsPluginError> {
        self.decrypt_with_vault(KeyAlgorithm::Rsa15, ciphertext, given).await
    }

    /// Proves that the key encrypts and decrypts, by doing both.
    ///
    /// A good proof counts for [`KmsPlugin::PROOF_VALIDITY`]; whoever asks while one is made shares it,
    /// good or bad, unless it is bad for want of time and the other one has more. So however many API servers and probes ask, the vault gets two requests in that
    /// time at most.
    pub async fn prove(&self, given: Duration) -> Result<(), Arc<KmsPluginError>> {
        self.0.proof_cache.get_or_prove(given, |left| self.prove_uncached(left)).await
    }

    /// How long a good proof counts. API servers ask every 60 s, and probes and their health
    /// requests in between.
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
        // What is kept under the id of a key that did not encrypt it could never be read again.
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

    /// Asks the vault, again where that may help and there is time.
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
            tracing::debug!(tries, word = error.label(), ?pause, "asking the vault again");
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

/// What is encrypted to see whether the key works: the other plugins' word.
const HEALTHCHECK: &[u8] = b"healthcheck";
