//! PKCS#12 archives (RFC 7292), also called PFX, in the legacy and the modern profiles.
//!
//! An archive names the cost of its own decryption, and parts that it encrypts name costs again. This reader
//! therefore checks the parameters of each part before it derives a key ([`ReadLimits`]). Libraries that open an
//! archive in one call cannot do so for parts within encrypted parts.

mod encryption;
mod read_limits;
#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::hmac;
use der::asn1::{AnyRef, ContextSpecific, ObjectIdentifier, OctetString, OctetStringRef};
use der::{Decode, Encode};
use pkcs12::cms::content_info::ContentInfo;
use pkcs12::cms::encrypted_data::EncryptedData;
use pkcs12::kdf::{Pkcs12KeyType, derive_key_utf8};
use pkcs12::pbe_params::EncryptedPrivateKeyInfo;
use pkcs12::safe_bag::SafeContents;
use pkcs12::{
    AuthenticatedSafe, CertBag, MacData, PKCS_12_CERT_BAG_OID, PKCS_12_KEY_BAG_OID,
    PKCS_12_PKCS8_KEY_BAG_OID, Pfx, SafeBag,
};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::{Zeroize, Zeroizing};

use super::error::Pkcs12Error;
use super::key::pkcs8_algorithm;
use crate::secret::SecretText;
use encryption::Encryption;
use read_limits::ReadLimits;

/// The private keys and certificates of an archive, in archive order. Bags of other types are ignored.
pub struct Pkcs12Archive {
    /// The private keys in PKCS#8.
    pub keys: Vec<Zeroizing<Vec<u8>>>,
    /// The certificates in DER.
    pub certificates: Vec<Vec<u8>>,
}

impl Pkcs12Archive {
    /// Opens an archive with `password`, or with the empty password if there is none. The time and the memory
    /// that this takes are bounded.
    ///
    /// # Errors
    ///
    /// Returns a [`Pkcs12Error`] if the archive is malformed, exceeds a limit, uses an unsupported algorithm, or
    /// has another password.
    pub fn open(der: &[u8], password: Option<&SecretText>) -> Result<Self, Pkcs12Error> {
        let mut limits = ReadLimits::for_archive(der.len())?;
        let archive = Pfx::from_der(der)?;
        let content = octets(&archive.auth_safe, DATA)?;
        if let Some(mac) = &archive.mac_data {
            limits.count_iterations(mac.iterations)?;
        }
        let parts = AuthenticatedSafe::from_der(content)?;
        limits.count_elements(parts.len())?;
        let parts: Vec<_> = parts
            .iter()
            .map(|part| ArchivePart::parse(part, &mut limits))
            .collect::<Result<_, _>>()?;

        let text = password.map_or("", SecretText::expose);
        if let Some(mac) = &archive.mac_data
            && !is_authentic(content, mac, text)?
        {
            return Err(match password {
                Some(_) => Pkcs12Error::WrongPassword,
                None => Pkcs12Error::PasswordNeeded,
            });
        }
        let mut opened = Self { keys: Vec::new(), certificates: Vec::new() };
        for part in parts {
            match part {
                ArchivePart::Plain(bags) => opened.add_bags(bags, text, &mut limits)?,
                ArchivePart::Encrypted { encryption, bags } => {
                    let bags = encryption.decrypt(bags.as_bytes(), text)?;
                    opened.add_bags(&bags, text, &mut limits)?;
                }
            }
        }
        Ok(opened)
    }

    fn add_bags(
        &mut self,
        bags: &[u8],
        password: &str,
        limits: &mut ReadLimits,
    ) -> Result<(), Pkcs12Error> {
        let mut bags = SafeContents::from_der(bags)?;
        let added = limits
            .count_elements(bags.len())
            .and_then(|()| bags.iter().try_for_each(|bag| self.add_bag(bag, password, limits)));
        // A bag may hold a key that is not encrypted.
        for bag in &mut bags {
            bag.bag_value.zeroize();
        }
        added
    }

    fn add_bag(
        &mut self,
        bag: &SafeBag,
        password: &str,
        limits: &mut ReadLimits,
    ) -> Result<(), Pkcs12Error> {
        match bag.bag_id {
            PKCS_12_KEY_BAG_OID => {
                let key =
                    ContextSpecific::<AnyRef<'_>>::from_der(&bag.bag_value)?.value.to_der()?;
                self.add_key(Zeroizing::new(key))
            }
            PKCS_12_PKCS8_KEY_BAG_OID => {
                let key =
                    ContextSpecific::<EncryptedPrivateKeyInfo>::from_der(&bag.bag_value)?.value;
                let encryption = Encryption::parse(&key.encryption_algorithm, limits)?;
                self.add_key(encryption.decrypt(key.encrypted_data.as_bytes(), password)?)
            }
            PKCS_12_CERT_BAG_OID => {
                let certificate = ContextSpecific::<CertBag>::from_der(&bag.bag_value)?.value;
                if certificate.cert_id != X509_CERTIFICATE {
                    return Err(Pkcs12Error::Unsupported);
                }
                let der = certificate.cert_value.into_bytes();
                X509Certificate::from_der(&der).map_err(|_syntax| Pkcs12Error::Malformed)?;
                self.certificates.push(der.into());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_key(&mut self, der: Zeroizing<Vec<u8>>) -> Result<(), Pkcs12Error> {
        if pkcs8_algorithm(&der).is_none() {
            return Err(Pkcs12Error::PrivateKey);
        }
        self.keys.push(der);
        Ok(())
    }
}

impl fmt::Debug for Pkcs12Archive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, certificates) = (self.keys.len(), self.certificates.len());
        write!(formatter, "Pkcs12Archive({keys} keys ***, {certificates} certificates)")
    }
}

/// A part of an archive, which contains bags.
enum ArchivePart<'a> {
    Plain(&'a [u8]),
    Encrypted { encryption: Encryption, bags: OctetString },
}

impl<'a> ArchivePart<'a> {
    fn parse(part: &'a ContentInfo, limits: &mut ReadLimits) -> Result<Self, Pkcs12Error> {
        if part.content_type != ENCRYPTED_DATA {
            return octets(part, DATA).map(Self::Plain);
        }
        let encrypted = part.content.decode_as::<EncryptedData>()?.enc_content_info;
        let encryption = Encryption::parse(&encrypted.content_enc_alg, limits)?;
        let bags = encrypted.encrypted_content.ok_or(Pkcs12Error::Malformed)?;
        Ok(Self::Encrypted { encryption, bags })
    }
}

/// The octets of a part that has this type.
fn octets(part: &ContentInfo, content_type: ObjectIdentifier) -> Result<&[u8], Pkcs12Error> {
    if part.content_type != content_type {
        return Err(Pkcs12Error::Unsupported);
    }
    Ok(part.content.decode_as::<&OctetStringRef>()?.as_bytes())
}

/// Whether the MAC of the content (RFC 7292, 5.1) belongs to this password.
fn is_authentic(content: &[u8], mac: &MacData, password: &str) -> Result<bool, Pkcs12Error> {
    macro_rules! key {
        ($algorithm:ident, $digest:ty) => {{
            let (salt, length) =
                (mac.mac_salt.as_bytes(), hmac::$algorithm.digest_algorithm().output_len());
            let key = derive_key_utf8::<$digest>(
                password,
                salt,
                Pkcs12KeyType::Mac,
                mac.iterations,
                length,
            );
            hmac::Key::new(hmac::$algorithm, &Zeroizing::new(key?))
        }};
    }
    let key = match mac.mac.algorithm.oid {
        SHA_1 => key!(HMAC_SHA1_FOR_LEGACY_USE_ONLY, Sha1),
        SHA_224 => key!(HMAC_SHA224, Sha224),
        SHA_256 => key!(HMAC_SHA256, Sha256),
        SHA_384 => key!(HMAC_SHA384, Sha384),
        SHA_512 => key!(HMAC_SHA512, Sha512),
        _ => return Err(Pkcs12Error::Unsupported),
    };
    Ok(hmac::verify(&key, content, mac.mac.digest.as_bytes()).is_ok())
}

/// Whether Go's PKCS#12 reader cannot open the archive: its parameters name PBES2 for encryption or SHA-256
/// for the MAC.
pub(super) fn is_modern(der: &[u8]) -> bool {
    let names = |oid: ObjectIdentifier| {
        oid.to_der().is_ok_and(|oid| der.windows(oid.len()).any(|window| window == oid))
    };
    names(encryption::PBES2) || names(SHA_256)
}

impl From<der::Error> for Pkcs12Error {
    fn from(_: der::Error) -> Self {
        Self::Malformed
    }
}

/// `data` and `encrypted-data` (RFC 5652, sections 4 and 8).
const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const ENCRYPTED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.6");
/// `x509Certificate` (RFC 2985, appendix A).
const X509_CERTIFICATE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.22.1");
/// Digests (RFC 8017, appendix C).
const SHA_1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA_224: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.4");
const SHA_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA_384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA_512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
