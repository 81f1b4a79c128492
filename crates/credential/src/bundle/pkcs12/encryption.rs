//! Password-based encryption of the parts of an archive: PBES2 (RFC 8018, 6.2), and the two schemes of RFC 7292,
//! appendix C, that old archives use.

use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use der::asn1::ObjectIdentifier;
use des::TdesEde3;
use pkcs5::pbes2;
use pkcs12::cms::cert::x509::spki::AlgorithmIdentifierOwned;
use pkcs12::kdf::{Pkcs12KeyType, derive_key_utf8};
use pkcs12::pbe_params::Pkcs12PbeParams;
use pkcs12::{PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC, PKCS_12_PBEWITH_SHAAND40_BIT_RC2_CBC};
use rc2::Rc2;
use sha1::Sha1;
use zeroize::Zeroizing;

use super::super::error::Pkcs12Error;
use super::read_limits::ReadLimits;

/// The object identifier of PBES2.
pub(super) const PBES2: ObjectIdentifier = pbes2::PBES2_OID;

/// An encryption scheme with its parameters, whose cost is counted.
pub(super) enum Encryption {
    Pbes2(pbes2::Parameters),
    TripleDes(Pkcs12PbeParams),
    /// RC2 with a key of 40 bits.
    Rc2(Pkcs12PbeParams),
}

impl Encryption {
    /// Parses a scheme, and counts its iterations.
    pub(super) fn parse(
        algorithm: &AlgorithmIdentifierOwned,
        limits: &mut ReadLimits,
    ) -> Result<Self, Pkcs12Error> {
        let parameters = algorithm.parameters.as_ref().ok_or(Pkcs12Error::Malformed)?;
        let mut legacy = || -> Result<Pkcs12PbeParams, Pkcs12Error> {
            let parameters = parameters.decode_as::<Pkcs12PbeParams>()?;
            limits.count_iterations(parameters.iterations)?;
            Ok(parameters)
        };
        match algorithm.oid {
            PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC => legacy().map(Self::TripleDes),
            PKCS_12_PBEWITH_SHAAND40_BIT_RC2_CBC => legacy().map(Self::Rc2),
            PBES2 => {
                let parameters = parameters.decode_as::<pbes2::Parameters>()?;
                match &parameters.kdf {
                    pbes2::Kdf::Pbkdf2(kdf) => limits.count_iterations(kdf.iteration_count)?,
                    pbes2::Kdf::Scrypt(_) => return Err(Pkcs12Error::Scrypt),
                    _ => return Err(Pkcs12Error::Unsupported),
                }
                Ok(Self::Pbes2(parameters))
            }
            _ => Err(Pkcs12Error::Unsupported),
        }
    }

    pub(super) fn decrypt(
        &self,
        data: &[u8],
        password: &str,
    ) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
        match self {
            Self::Pbes2(parameters) => parameters
                .decrypt(password, data)
                .map(Zeroizing::new)
                .map_err(|error| match error {
                    pkcs5::Error::UnsupportedAlgorithm { .. } => Pkcs12Error::Unsupported,
                    _ => Pkcs12Error::Malformed,
                }),
            Self::TripleDes(parameters) => {
                decrypt_legacy::<TdesEde3>(parameters, 24, data, password)
            }
            Self::Rc2(parameters) => decrypt_legacy::<Rc2>(parameters, 5, data, password),
        }
    }
}

fn decrypt_legacy<C: KeyInit + BlockCipherDecrypt>(
    parameters: &Pkcs12PbeParams,
    key_length: usize,
    data: &[u8],
    password: &str,
) -> Result<Zeroizing<Vec<u8>>, Pkcs12Error> {
    let derive = |purpose, length| {
        let (salt, iterations) = (parameters.salt.as_bytes(), parameters.iterations);
        derive_key_utf8::<Sha1>(password, salt, purpose, iterations, length).map(Zeroizing::new)
    };
    let key = derive(Pkcs12KeyType::EncryptionKey, key_length)?;
    let iv = derive(Pkcs12KeyType::Iv, BLOCK_LENGTH)?;
    let cipher =
        Decryptor::<C>::new_from_slices(&key, &iv).map_err(|_length| Pkcs12Error::Malformed)?;
    let plain = cipher.decrypt_padded_vec::<Pkcs7>(data);
    plain.map(Zeroizing::new).map_err(|_padding| Pkcs12Error::Malformed)
}

/// The block length of triple DES and RC2, in bytes.
const BLOCK_LENGTH: usize = 8;
