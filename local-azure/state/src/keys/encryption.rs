//! RSA encryption, and RSA keys from their components.

use aws_lc_rs::rsa::{
    KeyPairComponents, OAEP_SHA1_MGF1SHA1, OAEP_SHA256_MGF1SHA256, OaepAlgorithm,
    OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey,
    Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicKeyComponents,
};
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{RedactedText, RsaKey, RsaKeyError};

/// The padding of RSA encryption (RFC 8017, 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RsaPadding {
    /// `RSA-OAEP-256`: SHA-256 for hash and mask, an empty label.
    OaepSha256,
    /// `RSA-OAEP`: SHA-1 for hash and mask, an empty label.
    OaepSha1,
    /// `RSA1_5`.
    Pkcs1,
}

impl RsaPadding {
    /// The padding of a JSON Web Encryption algorithm (RFC 7518, 4.1).
    pub fn from_jwe_algorithm(name: &str) -> Option<Self> {
        match name {
            "RSA-OAEP-256" => Some(Self::OaepSha256),
            "RSA-OAEP" => Some(Self::OaepSha1),
            "RSA1_5" => Some(Self::Pkcs1),
            _ => None,
        }
    }

    const fn oaep_algorithm(self) -> Option<&'static OaepAlgorithm> {
        match self {
            Self::OaepSha256 => Some(&OAEP_SHA256_MGF1SHA256),
            Self::OaepSha1 => Some(&OAEP_SHA1_MGF1SHA1),
            Self::Pkcs1 => None,
        }
    }
}

/// The private components of an RSA key in the form of a JSON Web Key (RFC 7518, 6.3): base64url.
#[derive(Debug, Deserialize)]
pub struct RsaJwkComponents {
    n: String,
    e: String,
    d: RedactedText,
    p: RedactedText,
    q: RedactedText,
    dp: RedactedText,
    dq: RedactedText,
    qi: RedactedText,
}

impl RsaKey {
    /// Creates a key from its components.
    ///
    /// # Errors
    ///
    /// Returns an error if the components are not those of one key.
    pub fn from_jwk_components(numbers: &RsaJwkComponents) -> Result<Self, RsaKeyError> {
        let private = |text: &RedactedText| decode_component(text.expose());
        let components = KeyPairComponents {
            public_key: PublicKeyComponents {
                n: decode_component(&numbers.n)?,
                e: decode_component(&numbers.e)?,
            },
            d: private(&numbers.d)?,
            p: private(&numbers.p)?,
            q: private(&numbers.q)?,
            dP: private(&numbers.dp)?,
            dQ: private(&numbers.dq)?,
            qInv: private(&numbers.qi)?,
        };
        Self::from_components(&components)
    }

    /// Creates a key from its components, big endian.
    ///
    /// # Errors
    ///
    /// Returns an error if the components are not those of one key.
    pub(crate) fn from_components(
        components: &KeyPairComponents<impl AsRef<[u8]>>,
    ) -> Result<Self, RsaKeyError> {
        let pair = RsaKeyPair::from_components(components)
            .map_err(|_rejected| RsaKeyError::InvalidComponents)?;
        Self::from_key_pair(pair)
    }

    /// Encrypts a text. Returns `None` if the text is too long for the key and the padding.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed.
    pub fn encrypt(
        &self,
        padding: RsaPadding,
        plaintext: &[u8],
    ) -> Result<Option<Vec<u8>>, RsaKeyError> {
        let key = self.decrypting_key()?.public_key();
        let mut ciphertext = vec![0; key.key_size_bytes()];
        let written = match padding.oaep_algorithm() {
            Some(algorithm) => OaepPublicEncryptingKey::new(key)
                .and_then(|key| Ok(key.encrypt(algorithm, plaintext, &mut ciphertext, None)?.len()))
                .ok(),
            None => Pkcs1PublicEncryptingKey::new(key)
                .and_then(|key| Ok(key.encrypt(plaintext, &mut ciphertext)?.len()))
                .ok(),
        };
        Ok(written.map(|_| ciphertext))
    }

    /// Decrypts a text. Returns `None` if it was not encrypted with this key and padding.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored key cannot be parsed.
    pub fn decrypt(
        &self,
        padding: RsaPadding,
        ciphertext: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, RsaKeyError> {
        let key = self.decrypting_key()?;
        let mut plaintext = Zeroizing::new(vec![0; key.key_size_bytes()]);
        let written = match padding.oaep_algorithm() {
            Some(algorithm) => OaepPrivateDecryptingKey::new(key)
                .and_then(|key| Ok(key.decrypt(algorithm, ciphertext, &mut plaintext, None)?.len()))
                .ok(),
            None => Pkcs1PrivateDecryptingKey::new(key)
                .and_then(|key| Ok(key.decrypt(ciphertext, &mut plaintext)?.len()))
                .ok(),
        };
        Ok(written.map(|length| {
            plaintext.truncate(length);
            plaintext
        }))
    }

    fn decrypting_key(&self) -> Result<PrivateDecryptingKey, RsaKeyError> {
        PrivateDecryptingKey::from_pkcs8(self.pkcs8()).map_err(|_rejected| RsaKeyError::Encoding)
    }
}

/// Decodes a number, without leading zeros.
fn decode_component(text: &str) -> Result<Zeroizing<Vec<u8>>, RsaKeyError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map(Zeroizing::new);
    let bytes = bytes.map_err(|_malformed| RsaKeyError::InvalidComponents)?;
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    Ok(Zeroizing::new(bytes[start..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphertext_decrypts_only_with_same_key_and_padding() {
        let (key, other) = (crate::testing::client_key(), crate::testing::untrusted_key());
        let paddings = [RsaPadding::OaepSha256, RsaPadding::OaepSha1, RsaPadding::Pkcs1];
        for padding in paddings {
            let ciphertext = key.encrypt(padding, b"seed").unwrap().unwrap();
            assert_eq!(ciphertext.len(), 256);
            let plaintext = key.decrypt(padding, &ciphertext).unwrap().unwrap();
            assert_eq!(plaintext.as_slice(), b"seed");
            if padding != RsaPadding::Pkcs1 {
                assert!(other.decrypt(padding, &ciphertext).unwrap().is_none(), "{padding:?}");
            }
            let mut flipped = ciphertext.clone();
            flipped[100] ^= 1;
            let decrypted = key.decrypt(padding, &flipped).unwrap();
            assert!(decrypted.is_none_or(|text| text.as_slice() != b"seed"), "{padding:?}");
        }
    }

    #[test]
    fn plaintext_length_is_limited_by_the_padding() {
        let key = crate::testing::client_key();
        for (padding, most) in
            [(RsaPadding::OaepSha256, 190), (RsaPadding::OaepSha1, 214), (RsaPadding::Pkcs1, 245)]
        {
            assert!(key.encrypt(padding, &vec![7; most]).unwrap().is_some(), "{padding:?}");
            assert!(key.encrypt(padding, &vec![7; most + 1]).unwrap().is_none(), "{padding:?}");
        }
    }
}
