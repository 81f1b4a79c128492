//! PKCS#12 archives (RFC 7292), also called PFX, in the legacy and the modern profiles.

use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;
use zeroize::Zeroizing;

use super::Pkcs12Error;
use crate::secret::SecretText;

/// The members of an archive, in archive order.
pub(crate) struct Pkcs12Contents {
    pub(crate) keys: Vec<Zeroizing<Vec<u8>>>,
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// Opens an archive with `password`, or with the empty password if there is none.
pub(crate) fn open(
    der: &[u8],
    password: Option<&SecretText>,
) -> Result<Pkcs12Contents, Pkcs12Error> {
    let text = password.map_or("", SecretText::expose);
    let archive = Pkcs12Archive::from_pkcs12(der, text)
        .map_err(|error| pkcs12_error(&error, password.is_some()))?;
    let keys = archive.keys.iter().map(|bag| Zeroizing::new(bag.key.as_der().to_vec())).collect();
    let certificates = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect();
    Ok(Pkcs12Contents { keys, certificates })
}

/// Whether Go's PKCS#12 reader cannot open the archive: its parameters name PBES2 for encryption or SHA-256
/// for the MAC.
pub(crate) fn is_modern(der: &[u8]) -> bool {
    let names = |oid: &[u8]| der.windows(oid.len()).any(|window| window == oid);
    names(&PBES2) || names(&SHA_256)
}

/// 1.2.840.113549.1.5.13 in DER (RFC 8018, appendix C).
const PBES2: [u8; 11] = [0x06, 0x09, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x05, 0x0D];
/// 2.16.840.1.101.3.4.2.1 in DER (RFC 5754, section 2.2).
const SHA_256: [u8; 11] = [0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];

fn pkcs12_error(error: &Error, password_given: bool) -> Pkcs12Error {
    match error {
        Error::MacError(_) if password_given => Pkcs12Error::WrongPassword,
        Error::MacError(_) => Pkcs12Error::PasswordNeeded,
        Error::UnsupportedEncryptionScheme
        | Error::UnsupportedMacAlgorithm
        | Error::UnsupportedContentType
        | Error::UnsupportedCertificateType => Pkcs12Error::Unsupported,
        Error::InvalidPrivateKey => Pkcs12Error::PrivateKey,
        _ => Pkcs12Error::Malformed,
    }
}
