//! An in-memory vault for tests: one RSA key, and faults to inject.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{
    KeyPairComponents, KeySize, OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey,
    OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey, Pkcs1PublicEncryptingKey,
    PrivateDecryptingKey, PublicKeyComponents,
};
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_vocabulary::Cloud;
use parking_lot::Mutex;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::algorithm::KeyAlgorithm;
use crate::annotations::VaultReplyHeaders;
use crate::error::{KeyOperationError, VaultErrorReply};
use crate::key::{PinnedKey, VaultKind};
use crate::vault::{KeyResult, KmsKeyOperation, VaultKeyClient};

/// The test vector `fixtures/vector.json`: one software key, and ciphertexts that the other plugins decrypt.
pub(crate) fn test_vector() -> Value {
    serde_json::from_str(include_str!("../fixtures/vector.json")).unwrap()
}

/// The text at a JSON pointer of the test vector.
pub(crate) fn test_vector_text(pointer: &str) -> String {
    test_vector().pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

/// The key version `mykey/ABCD` of the vault `example`, which encrypted the ciphertexts of
/// `fixtures/vector.json`.
pub(crate) fn test_vector_key() -> PinnedKey {
    PinnedKey::new(
        Cloud::Public.endpoints().unwrap(),
        VaultKind::Vault,
        "example".parse().unwrap(),
        "mykey".parse().unwrap(),
        "ABCD".parse().unwrap(),
    )
}

/// A fault that replaces the normal reply of the vault.
#[derive(Debug)]
pub(crate) enum FakeVaultFault {
    /// Fails with this status.
    Status(u16),
    /// Never replies.
    NoReply,
    /// Replies after a delay.
    DelayedReply(ManualClock, Duration),
    /// The token request never completes.
    NoToken,
    /// Replies with another `kid`.
    Kid(Option<&'static str>),
    /// Replies with another value.
    Value(String),
}

/// A vault with one key.
#[derive(Debug)]
pub(crate) struct FakeKmsVault {
    pkcs8: Vec<u8>,
    /// The faults of the next requests, in order.
    pub(crate) faults: Mutex<VecDeque<FakeVaultFault>>,
    /// The requests so far: operation, algorithm, value.
    pub(crate) requests: Mutex<Vec<(KmsKeyOperation, KeyAlgorithm, String)>>,
}

impl FakeKmsVault {
    /// A vault with the key of the test vector.
    pub(crate) fn with_test_vector_key() -> Self {
        let part =
            |name: &str| URL_SAFE_NO_PAD.decode(test_vector_text(&format!("/key/{name}"))).unwrap();
        let components = KeyPairComponents {
            public_key: PublicKeyComponents { n: part("n"), e: part("e") },
            d: part("d"),
            p: part("p"),
            q: part("q"),
            dP: part("dp"),
            dQ: part("dq"),
            qInv: part("qi"),
        };
        Self::from_key_pair(&RsaKeyPair::from_components(&components).unwrap())
    }

    /// A vault with a new key.
    pub(crate) fn with_new_key(size: KeySize) -> Self {
        Self::from_key_pair(&RsaKeyPair::generate(size).unwrap())
    }

    fn from_key_pair(pair: &RsaKeyPair) -> Self {
        let pkcs8 = pair.as_der().unwrap().as_ref().to_vec();
        Self { pkcs8, faults: Mutex::default(), requests: Mutex::default() }
    }

    pub(crate) fn inject_faults(&self, faults: impl IntoIterator<Item = FakeVaultFault>) {
        self.faults.lock().extend(faults);
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().len()
    }

    /// Encrypts or decrypts `input` with the key of the vault; `None` if the operation fails.
    fn compute(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        input: &[u8],
    ) -> Option<Vec<u8>> {
        let key = PrivateDecryptingKey::from_pkcs8(&self.pkcs8).unwrap();
        let mut output = vec![0; key.key_size_bytes()];
        let oaep = &OAEP_SHA256_MGF1SHA256;
        let length = match (operation, algorithm) {
            (KmsKeyOperation::Encrypt, KeyAlgorithm::RsaOaep256) => {
                let key = OaepPublicEncryptingKey::new(key.public_key()).unwrap();
                key.encrypt(oaep, input, &mut output, None).ok()?.len()
            }
            (KmsKeyOperation::Encrypt, KeyAlgorithm::Rsa15) => {
                let key = Pkcs1PublicEncryptingKey::new(key.public_key()).unwrap();
                key.encrypt(input, &mut output).ok()?.len()
            }
            (KmsKeyOperation::Decrypt, KeyAlgorithm::RsaOaep256) => {
                let key = OaepPrivateDecryptingKey::new(key).unwrap();
                key.decrypt(oaep, input, &mut output, None).ok()?.len()
            }
            (KmsKeyOperation::Decrypt, KeyAlgorithm::Rsa15) => {
                let key = Pkcs1PrivateDecryptingKey::new(key).unwrap();
                key.decrypt(input, &mut output).ok()?.len()
            }
        };
        output.truncate(length);
        Some(output)
    }
}

/// The error of an operation for a response of the vault with this status.
fn status_error(status: u16) -> KeyOperationError {
    let code = (status == 403).then(|| "KeyDisabled".to_owned());
    let reply = VaultErrorReply { status, code, message: "scripted".to_owned() };
    match status {
        403 => KeyOperationError::KeyUnusable(reply),
        429 => KeyOperationError::Throttled { reply, retry_after: Some(Duration::from_secs(1)) },
        500.. => KeyOperationError::Failed { reply, retry_after: None },
        _ => KeyOperationError::Refused(reply),
    }
}

#[async_trait]
impl VaultKeyClient for FakeKmsVault {
    async fn prepare_token(&self) -> Result<(), KeyOperationError> {
        let is_silent = matches!(self.faults.lock().front(), Some(FakeVaultFault::NoToken));
        if is_silent {
            self.faults.lock().pop_front();
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn run_operation(
        &self,
        operation: KmsKeyOperation,
        algorithm: KeyAlgorithm,
        value: &str,
    ) -> Result<KeyResult, KeyOperationError> {
        self.requests.lock().push((operation, algorithm, value.to_owned()));
        let fault = self.faults.lock().pop_front();
        // Lets concurrent callers run.
        tokio::task::yield_now().await;
        let input = URL_SAFE_NO_PAD.decode(value).map_err(|_malformed| status_error(400))?;
        let output = self.compute(operation, algorithm, &input).ok_or_else(|| status_error(400));
        let mut result = KeyResult {
            kid: Some(test_vector_key().url().to_owned()),
            value: Zeroizing::new(output.map(|output| URL_SAFE_NO_PAD.encode(output))?),
            reply_headers: VaultReplyHeaders {
                date: "now".to_owned(),
                ..VaultReplyHeaders::default()
            },
        };
        match fault {
            None => {}
            Some(FakeVaultFault::Status(status)) => return Err(status_error(status)),
            Some(FakeVaultFault::NoReply | FakeVaultFault::NoToken) => std::future::pending().await,
            Some(FakeVaultFault::DelayedReply(clock, after)) => clock.sleep(after).await,
            Some(FakeVaultFault::Kid(kid)) => result.kid = kid.map(str::to_owned),
            Some(FakeVaultFault::Value(value)) => result.value = Zeroizing::new(value),
        }
        Ok(result)
    }
}
