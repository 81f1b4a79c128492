//! What the plugin does, without a wire: encrypt, decrypt, and prove that both work.

mod proof;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use zeroize::Zeroizing;

use self::proof::ProofKeeper;
use crate::algorithm::Algorithm;
use crate::annotations::{Annotations, check_seal, desired_annotations};
use crate::error::{PluginError, VaultError};
use crate::key::{PinnedKey, key_id};
use crate::layout::Layout;
use crate::metrics::{Counted, KmsMetrics};
use crate::retry;
use crate::vault::{KeyOperation, KeyOperations, KeyResult};

/// A ciphertext of version 2 of the KMS API, with what is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The ciphertext, in one of the two layouts.
    pub ciphertext: Vec<u8>,
    /// The id of the key that encrypted it.
    pub key_id: String,
    /// What is kept beside it.
    pub annotations: Annotations,
}

/// What a plugin works with.
#[derive(Debug)]
pub struct PluginParts {
    /// The key.
    pub key: PinnedKey,
    /// How new ciphertexts are laid out; both layouts are read.
    pub layout: Layout,
    /// Who encrypts and decrypts.
    pub vault: Arc<dyn KeyOperations>,
    /// Where requests are counted.
    pub metrics: KmsMetrics,
    /// The time.
    pub clock: SharedClock,
}

/// The plugin of one key version. Clones are the same plugin.
#[derive(Debug, Clone)]
pub struct Plugin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    parts: PluginParts,
    proof: ProofKeeper,
}

impl Plugin {
    /// A plugin that has asked nobody yet.
    pub fn new(parts: PluginParts) -> Self {
        let proof = ProofKeeper::new(Arc::clone(&parts.clock));
        Self(Arc::new(Inner { parts, proof }))
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
    pub async fn encrypt(&self, plaintext: &[u8], given: Duration) -> Result<Sealed, PluginError> {
        let (ciphertext, result) = self.encrypted(Algorithm::RsaOaep256, plaintext, given).await?;
        Ok(Sealed {
            ciphertext,
            key_id: self.key().id().to_owned(),
            annotations: desired_annotations(self.0.parts.layout, &result.stamps),
        })
    }

    /// Decrypts what either layout of version 2 holds. What cannot be one of this key's ciphertexts
    /// is refused without asking the vault.
    pub async fn decrypt(
        &self,
        sealed: &Sealed,
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, PluginError> {
        check_seal(self.key(), &sealed.key_id, &sealed.annotations)?;
        self.decrypted(Algorithm::RsaOaep256, &sealed.ciphertext, given).await
    }

    /// Encrypts for version 1: the ciphertext is all there is.
    pub async fn encrypt_v1(
        &self,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<Vec<u8>, PluginError> {
        let (ciphertext, _) = self.encrypted(Algorithm::Rsa15, plaintext, given).await?;
        Ok(ciphertext)
    }

    /// Decrypts what either layout of version 1 holds.
    pub async fn decrypt_v1(
        &self,
        ciphertext: &[u8],
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, PluginError> {
        self.decrypted(Algorithm::Rsa15, ciphertext, given).await
    }

    /// Proves that the key encrypts and decrypts, by doing both.
    ///
    /// A good proof counts for [`Plugin::PROOF_COUNTS`]; whoever asks while one is made shares it,
    /// good or bad, unless it is bad for want of time and the other one has more. So however many API servers and probes ask, the vault gets two requests in that
    /// time at most.
    pub async fn prove(&self, given: Duration) -> Result<(), Arc<PluginError>> {
        self.0.proof.shared(given, |left| self.prove_now(left)).await
    }

    /// How long a good proof counts. API servers ask every 60 s, and probes and their health
    /// requests in between.
    pub const PROOF_COUNTS: Duration = Duration::from_secs(10);

    async fn prove_now(&self, given: Duration) -> Result<(), PluginError> {
        let until = self.clock().monotonic().saturating_add(given);
        let sealed = self.encrypt(HEALTHCHECK, given).await?;
        let left = until.saturating_sub(self.clock().monotonic());
        let plaintext = self.decrypt(&sealed, left).await?;
        if plaintext.as_slice() == HEALTHCHECK { Ok(()) } else { Err(PluginError::Mismatch) }
    }

    async fn encrypted(
        &self,
        algorithm: Algorithm,
        plaintext: &[u8],
        given: Duration,
    ) -> Result<(Vec<u8>, KeyResult), PluginError> {
        let layout = self.0.parts.layout;
        let value = layout.encrypt_value(plaintext);
        let result = self
            .ask(KeyOperation::Encrypt, algorithm, &value, given)
            .await
            .map_err(PluginError::Encrypt)?;
        // What is kept under the id of a key that did not encrypt it could never be read again.
        let got = result.kid.as_deref().unwrap_or_default();
        if key_id(got) != self.key().id() {
            let expected = self.key().id().to_owned();
            return Err(PluginError::KeyId { expected, got: got.to_owned() });
        }
        let ciphertext = layout.ciphertext(&result.value).map_err(PluginError::Ciphertext)?;
        Ok((ciphertext, result))
    }

    async fn decrypted(
        &self,
        algorithm: Algorithm,
        ciphertext: &[u8],
        given: Duration,
    ) -> Result<Zeroizing<Vec<u8>>, PluginError> {
        let layout = Layout::of_ciphertext(ciphertext).map_err(PluginError::Layout)?;
        let value = layout.decrypt_value(ciphertext);
        let result = self
            .ask(KeyOperation::Decrypt, algorithm, &value, given)
            .await
            .map_err(PluginError::Decrypt)?;
        layout.plaintext(&result.value).map_err(PluginError::Plaintext)
    }

    /// Asks the vault, again where that may help and there is time.
    async fn ask(
        &self,
        operation: KeyOperation,
        algorithm: Algorithm,
        value: &str,
        given: Duration,
    ) -> Result<KeyResult, VaultError> {
        let clock = self.clock();
        let until = clock.monotonic().saturating_add(given);
        let mut tries = 0;
        loop {
            let left = until.saturating_sub(clock.monotonic());
            let error = match self.ask_once(operation, algorithm, value, left).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            tries += 1;
            let left = until.saturating_sub(clock.monotonic());
            let Some(pause) = retry::pause(tries, &error, left, fastrand::f64()) else {
                return Err(error);
            };
            tracing::debug!(tries, word = error.word(), ?pause, "asking the vault again");
            clock.sleep(pause).await;
        }
    }

    async fn ask_once(
        &self,
        operation: KeyOperation,
        algorithm: Algorithm,
        value: &str,
        left: Duration,
    ) -> Result<KeyResult, VaultError> {
        let Inner { parts: PluginParts { vault, clock, metrics, .. }, .. } = &*self.0;
        let began = clock.monotonic();
        let limit = retry::token_limit(left);
        let token = tokio::select! {
            biased;
            token = vault.authenticate() => token,
            () = clock.sleep(limit) => Err(VaultError::TokenTimedOut { after: limit }),
        };
        let left = left.saturating_sub(clock.monotonic().saturating_sub(began));
        let limit = retry::try_limit(left);
        let result = if let Err(error) = token {
            Err(error)
        } else {
            tokio::select! {
                biased;
                result = vault.operate(operation, algorithm, value) => result,
                () = clock.sleep(limit) => Err(VaultError::TimedOut { after: limit }),
            }
        };
        let counted = match operation {
            KeyOperation::Encrypt => Counted::Encrypt,
            KeyOperation::Decrypt => Counted::Decrypt,
        };
        let took = clock.monotonic().saturating_sub(began);
        metrics.count(counted, took, result.as_ref().err().map(VaultError::word));
        result
    }
}

/// What is encrypted to see whether the key works: the other plugins' word.
const HEALTHCHECK: &[u8] = b"healthcheck";
