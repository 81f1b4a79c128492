//! The limits of the PKCS#12 files that clients import.
//!
//! The parameters of a file decide how long its decryption takes and how much memory it needs, so they are read before
//! the file is decrypted. Encrypted content can contain further encrypted bags; for this reason it is decrypted here
//! after its own parameters were checked.

use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt as _, KeyInit, KeyIvInit as _};
use pkcs5::der::asn1::{ContextSpecific, OctetString};
use pkcs5::der::{Any, Decode, Encode as _};
use pkcs5::pbes2;
use pkcs12::cms::cert::x509::spki::AlgorithmIdentifierOwned;
use pkcs12::cms::content_info::ContentInfo;
use pkcs12::cms::encrypted_data::EncryptedData;
use pkcs12::kdf::{Pkcs12KeyType, derive_key_utf8};
use pkcs12::pbe_params::{EncryptedPrivateKeyInfo, Pkcs12PbeParams};
use pkcs12::safe_bag::SafeContents;
use pkcs12::{
    AuthenticatedSafe, PKCS_12_CERT_BAG_OID, PKCS_12_KEY_BAG_OID,
    PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC, PKCS_12_PBEWITH_SHAAND40_BIT_RC2_CBC,
    PKCS_12_PKCS8_KEY_BAG_OID, Pfx,
};
use zeroize::Zeroizing;

/// The maximum number of iterations of all key derivations of a file. Tools of Mozilla use 600,000 for each of two.
const MAX_ITERATIONS: u32 = 1_500_000;
/// The maximum number of keys and certificates.
const MAX_BAGS: usize = 32;
const DATA: &str = "1.2.840.113549.1.7.1";
const ENCRYPTED_DATA: &str = "1.2.840.113549.1.7.6";

/// A PKCS#12 file is not decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Pkcs12LimitError {
    #[error("it is not PKCS#12, its encryption is unknown, or the password is wrong")]
    Unreadable,
    #[error("its keys are derived with scrypt")]
    Scrypt,
    #[error("its key derivations have more than {MAX_ITERATIONS} iterations")]
    Iterations,
    #[error("it has more than {MAX_BAGS} keys and certificates")]
    Bags,
    #[error("it contains other objects than keys and certificates")]
    UnexpectedBag,
}

/// Checks the parameters of a PKCS#12 file. Its message authentication code is not verified.
pub(super) fn check_pkcs12_limits(file: &[u8], password: &str) -> Result<(), Pkcs12LimitError> {
    let pfx: Pfx = decode(file)?;
    let mut remaining = RemainingWork { iterations: MAX_ITERATIONS, bags: MAX_BAGS };
    if let Some(mac) = &pfx.mac_data {
        remaining.take_iterations(mac.iterations)?;
    }
    let safes: AuthenticatedSafe<'_> = decode(&plain_content(&pfx.auth_safe)?)?;
    for safe in safes {
        let contents = match safe.content_type.to_string().as_str() {
            DATA => plain_content(&safe)?,
            ENCRYPTED_DATA => {
                let encrypted: EncryptedData = reencode(&safe.content)?;
                let info = encrypted.enc_content_info;
                let encryption = remaining.take_encryption(&info.content_enc_alg)?;
                match &info.encrypted_content {
                    Some(content) => encryption.decrypt(content.as_bytes(), password)?,
                    None => continue,
                }
            }
            _ => return Err(Pkcs12LimitError::Unreadable),
        };
        remaining.take_bags(&contents)?;
    }
    Ok(())
}

fn decode<'a, T: Decode<'a>>(der: &'a [u8]) -> Result<T, Pkcs12LimitError> {
    T::from_der(der).map_err(|_malformed| Pkcs12LimitError::Unreadable)
}

fn reencode<T: for<'a> Decode<'a>>(content: &Any) -> Result<T, Pkcs12LimitError> {
    decode(&content.to_der().map_err(|_malformed| Pkcs12LimitError::Unreadable)?)
}

/// The bytes of content without encryption.
fn plain_content(info: &ContentInfo) -> Result<Zeroizing<Vec<u8>>, Pkcs12LimitError> {
    let content: OctetString = reencode(&info.content)?;
    Ok(Zeroizing::new(content.into_bytes().into()))
}

/// What the rest of a file may demand.
struct RemainingWork {
    iterations: u32,
    bags: usize,
}

impl RemainingWork {
    fn take_iterations(&mut self, count: impl TryInto<u32>) -> Result<(), Pkcs12LimitError> {
        let count = count.try_into().map_err(|_negative| Pkcs12LimitError::Unreadable)?;
        let remaining = self.iterations.checked_sub(count);
        self.iterations = remaining.ok_or(Pkcs12LimitError::Iterations)?;
        Ok(())
    }

    /// Reads an algorithm, whose key derivation it subtracts.
    fn take_encryption(
        &mut self,
        algorithm: &AlgorithmIdentifierOwned,
    ) -> Result<PasswordEncryption, Pkcs12LimitError> {
        let parameters = algorithm.parameters.as_ref().ok_or(Pkcs12LimitError::Unreadable)?;
        let cipher = match algorithm.oid {
            pbes2::PBES2_OID => {
                let der = parameters.to_der().map_err(|_malformed| Pkcs12LimitError::Unreadable)?;
                let parameters: pbes2::Parameters = decode(&der)?;
                let derivation = parameters.kdf.pbkdf2().ok_or(Pkcs12LimitError::Scrypt)?;
                self.take_iterations(derivation.iteration_count)?;
                return Ok(PasswordEncryption::Pbes2(Box::new(parameters)));
            }
            PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC => OldCipher::TripleDes,
            PKCS_12_PBEWITH_SHAAND40_BIT_RC2_CBC => OldCipher::Rc2,
            _ => return Err(Pkcs12LimitError::Unreadable),
        };
        let parameters: Pkcs12PbeParams = reencode(parameters)?;
        // The key and the initialization vector are derived separately.
        self.take_iterations(parameters.iterations)?;
        self.take_iterations(parameters.iterations)?;
        Ok(PasswordEncryption::Old(cipher, parameters))
    }

    fn take_bags(&mut self, contents: &[u8]) -> Result<(), Pkcs12LimitError> {
        let bags: SafeContents = decode(contents)?;
        self.bags = self.bags.checked_sub(bags.len()).ok_or(Pkcs12LimitError::Bags)?;
        for bag in &bags {
            match bag.bag_id {
                PKCS_12_CERT_BAG_OID | PKCS_12_KEY_BAG_OID => {}
                PKCS_12_PKCS8_KEY_BAG_OID => {
                    let key: ContextSpecific<EncryptedPrivateKeyInfo> = decode(&bag.bag_value)?;
                    self.take_encryption(&key.value.encryption_algorithm)?;
                }
                _ => return Err(Pkcs12LimitError::UnexpectedBag),
            }
        }
        Ok(())
    }
}

/// The password-based encryption of content.
enum PasswordEncryption {
    Pbes2(Box<pbes2::Parameters>),
    Old(OldCipher, Pkcs12PbeParams),
}

/// A cipher of PKCS#12 itself.
enum OldCipher {
    TripleDes,
    Rc2,
}

impl PasswordEncryption {
    fn decrypt(&self, data: &[u8], password: &str) -> Result<Zeroizing<Vec<u8>>, Pkcs12LimitError> {
        let plain = match self {
            Self::Pbes2(parameters) => parameters.decrypt(password, data).ok(),
            Self::Old(OldCipher::TripleDes, parameters) => {
                decrypt_cbc::<des::TdesEde3>(data, password, parameters, 24)
            }
            Self::Old(OldCipher::Rc2, parameters) => {
                decrypt_cbc::<rc2::Rc2>(data, password, parameters, 5)
            }
        };
        plain.map(Zeroizing::new).ok_or(Pkcs12LimitError::Unreadable)
    }
}

fn decrypt_cbc<C: BlockCipherDecrypt + KeyInit>(
    data: &[u8],
    password: &str,
    parameters: &Pkcs12PbeParams,
    key_bytes: usize,
) -> Option<Vec<u8>> {
    let derive = |kind, bytes| {
        let salt = parameters.salt.as_bytes();
        derive_key_utf8::<sha1::Sha1>(password, salt, kind, parameters.iterations, bytes).ok()
    };
    let key = Zeroizing::new(derive(Pkcs12KeyType::EncryptionKey, key_bytes)?);
    let vector = derive(Pkcs12KeyType::Iv, 8)?;
    let decryptor = cbc::Decryptor::<C>::new_from_slices(&key, &vector).ok()?;
    decryptor.decrypt_padded_vec::<Pkcs7>(data).ok()
}

#[cfg(test)]
mod tests;
