//! A vault in memory, for tests: one RSA key, and whatever is to go wrong.

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

use crate::algorithm::Algorithm;
use crate::annotations::ReplyStamps;
use crate::error::{VaultError, VaultReply};
use crate::key::{PinnedKey, VaultKind};
use crate::vault::{KeyOperation, KeyOperations, KeyResult};

/// One software key, and ciphertexts that the other plugins decrypt.
pub(crate) fn vector() -> Value {
    serde_json::from_str(include_str!("../fixtures/vector.json")).unwrap()
}

/// A text of the vector.
pub(crate) fn text(pointer: &str) -> String {
    vector().pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

/// The key of the vector.
pub(crate) fn pinned() -> PinnedKey {
    PinnedKey::new(
        Cloud::Public.endpoints().unwrap(),
        VaultKind::Vault,
        "example".parse().unwrap(),
        "mykey".parse().unwrap(),
        "ABCD".parse().unwrap(),
    )
}

/// What a vault does instead of what it was asked.
#[derive(Debug)]
pub(crate) enum Instead {
    /// It fails with a status.
    Status(u16),
    /// It never answers.
    Hang,
    /// It answers after a while.
    Late(ManualClock, Duration),
    /// There is never a token to ask with.
    NoToken,
    /// It answers with another `kid`.
    Kid(Option<&'static str>),
    /// It answers with another value.
    Value(String),
}

/// A vault with one key.
#[derive(Debug)]
pub(crate) struct SoftwareVault {
    pkcs8: Vec<u8>,
    /// What is to go wrong, in order.
    pub(crate) instead: Mutex<VecDeque<Instead>>,
    /// What was asked: operation, algorithm, value.
    pub(crate) asked: Mutex<Vec<(KeyOperation, Algorithm, String)>>,
}

impl SoftwareVault {
    /// The vault of the vector's key.
    pub(crate) fn of_vector() -> Self {
        let part = |name: &str| URL_SAFE_NO_PAD.decode(text(&format!("/key/{name}"))).unwrap();
        let components = KeyPairComponents {
            public_key: PublicKeyComponents { n: part("n"), e: part("e") },
            d: part("d"),
            p: part("p"),
            q: part("q"),
            dP: part("dp"),
            dQ: part("dq"),
            qInv: part("qi"),
        };
        Self::of(&RsaKeyPair::from_components(&components).unwrap())
    }

    /// A vault with a new key.
    pub(crate) fn of_size(size: KeySize) -> Self {
        Self::of(&RsaKeyPair::generate(size).unwrap())
    }

    fn of(pair: &RsaKeyPair) -> Self {
        let pkcs8 = pair.as_der().unwrap().as_ref().to_vec();
        Self { pkcs8, instead: Mutex::default(), asked: Mutex::default() }
    }

    pub(crate) fn is_to(&self, instead: impl IntoIterator<Item = Instead>) {
        self.instead.lock().extend(instead);
    }

    pub(crate) fn count(&self) -> usize {
        self.asked.lock().len()
    }

    fn run(&self, operation: KeyOperation, algorithm: Algorithm, input: &[u8]) -> Option<Vec<u8>> {
        let key = PrivateDecryptingKey::from_pkcs8(&self.pkcs8).unwrap();
        let mut output = vec![0; key.key_size_bytes()];
        let oaep = &OAEP_SHA256_MGF1SHA256;
        let length = match (operation, algorithm) {
            (KeyOperation::Encrypt, Algorithm::RsaOaep256) => {
                let key = OaepPublicEncryptingKey::new(key.public_key()).unwrap();
                key.encrypt(oaep, input, &mut output, None).ok()?.len()
            }
            (KeyOperation::Encrypt, Algorithm::Rsa15) => {
                let key = Pkcs1PublicEncryptingKey::new(key.public_key()).unwrap();
                key.encrypt(input, &mut output).ok()?.len()
            }
            (KeyOperation::Decrypt, Algorithm::RsaOaep256) => {
                let key = OaepPrivateDecryptingKey::new(key).unwrap();
                key.decrypt(oaep, input, &mut output, None).ok()?.len()
            }
            (KeyOperation::Decrypt, Algorithm::Rsa15) => {
                let key = Pkcs1PrivateDecryptingKey::new(key).unwrap();
                key.decrypt(input, &mut output).ok()?.len()
            }
        };
        output.truncate(length);
        Some(output)
    }
}

fn refusal(status: u16) -> VaultError {
    let reply = VaultReply { status, code: None, message: "scripted".to_owned() };
    match status {
        403 => VaultError::Restricted(reply),
        429 => VaultError::Throttled { reply, wait: Some(Duration::from_secs(1)) },
        500.. => VaultError::Failed { reply, wait: None },
        _ => VaultError::Refused(reply),
    }
}

#[async_trait]
impl KeyOperations for SoftwareVault {
    async fn authenticate(&self) -> Result<(), VaultError> {
        let is_silent = matches!(self.instead.lock().front(), Some(Instead::NoToken));
        if is_silent {
            self.instead.lock().pop_front();
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn operate(
        &self,
        operation: KeyOperation,
        algorithm: Algorithm,
        value: &str,
    ) -> Result<KeyResult, VaultError> {
        self.asked.lock().push((operation, algorithm, value.to_owned()));
        let instead = self.instead.lock().pop_front();
        // Whoever else asks at the same time gets to it.
        tokio::task::yield_now().await;
        let input = URL_SAFE_NO_PAD.decode(value).map_err(|_malformed| refusal(400))?;
        let output = self.run(operation, algorithm, &input).ok_or_else(|| refusal(400));
        let mut result = KeyResult {
            kid: Some(pinned().url().to_owned()),
            value: Zeroizing::new(output.map(|output| URL_SAFE_NO_PAD.encode(output))?),
            stamps: ReplyStamps { date: "now".to_owned(), ..ReplyStamps::default() },
        };
        match instead {
            None => {}
            Some(Instead::Status(status)) => return Err(refusal(status)),
            Some(Instead::Hang | Instead::NoToken) => std::future::pending().await,
            Some(Instead::Late(clock, after)) => clock.sleep(after).await,
            Some(Instead::Kid(kid)) => result.kid = kid.map(str::to_owned),
            Some(Instead::Value(value)) => result.value = Zeroizing::new(value),
        }
        Ok(result)
    }
}
