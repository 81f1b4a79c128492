//! PKCS#12 (RFC 7292), also called PFX, in its old and new profiles.

use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;
use zeroize::Zeroizing;

use super::Pkcs12Error;
use crate::secret::SecretText;

/// The members of an archive, in the order found.
pub(crate) struct Contents {
    pub(crate) keys: Vec<Zeroizing<Vec<u8>>>,
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// Opens an archive with `password`; without one, with the empty password.
pub(crate) fn open(der: &[u8], password: Option<&SecretText>) -> Result<Contents, Pkcs12Error> {
    let text = password.map_or("", SecretText::expose);
    let archive =
        Pkcs12Archive::from_pkcs12(der, text).map_err(|error| fault(&error, password.is_some()))?;
    let keys = archive.keys.iter().map(|bag| Zeroizing::new(bag.key.as_der().to_vec())).collect();
    let certificates = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect();
    Ok(Contents { keys, certificates })
}

fn fault(error: &Error, password_given: bool) -> Pkcs12Error {
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
