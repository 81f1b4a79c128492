//! The certificate files that clients import, and that a certificate's secret contains.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_emulator_state::certificate_bundle::{Pkcs12Profile, encode_pem, encode_pkcs12};
use lanyard_emulator_state::keys::{AsymmetricKey, RedactedText};
use lanyard_emulator_state::vaults::bundle_form::BundleForm;
use lanyard_emulator_state::vaults::der_certificate::DerCertificate;
use p12_keystore::Pkcs12Archive;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use super::pkcs12_limits::{Pkcs12LimitError, check_pkcs12_limits};

/// The content of a certificate file that a client imports.
#[derive(Debug)]
pub(super) struct ImportedBundle {
    pub(super) form: BundleForm,
    pub(super) key: AsymmetricKey,
    /// The certificates in the order of the file.
    pub(super) certificates: Vec<DerCertificate>,
}

/// A PKCS#12 or PEM file could not be imported as a certificate. The messages are those of Azure Key Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ImportBundleError {
    #[error(
        "The specified PKCS#12 X.509 certificate content can not be read. Please check if certificate is \
         in valid PKCS#12 format and if the password is correct."
    )]
    Pkcs12,
    #[error("The specified PKCS#12 X.509 certificate content can not be read: {0}.")]
    Pkcs12Limit(Pkcs12LimitError),
    #[error(
        "The specified PEM X.509 certificate content is in an unexpected format. Please check if \
         certificate is in valid PEM format."
    )]
    Pem,
    #[error(
        "The specified PEM X.509 certificate content has no private key in PKCS#8 format \
         (`BEGIN PRIVATE KEY`)."
    )]
    PemKey,
    #[error("The specified X.509 certificate content has no private key, or more than one.")]
    KeyCount,
    #[error("The private key is neither RSA of at least 2048 bits nor of a supported curve.")]
    UnsupportedKey,
}

/// Encodes the value of a certificate's secret: PEM, or PKCS#12 in base64. `chain[leaf]` is the
/// certificate of the key.
pub(super) fn encode_bundle(
    form: BundleForm,
    key: Option<&AsymmetricKey>,
    chain: &[DerCertificate],
    leaf: usize,
) -> Result<RedactedText, p12_keystore::error::Error> {
    let key = key.map(AsymmetricKey::pkcs8);
    let chain: Vec<_> = chain.iter().map(DerCertificate::as_bytes).collect();
    Ok(match form {
        BundleForm::Pem => {
            let text = encode_pem(key, &chain);
            RedactedText::new(String::from_utf8_lossy(&text).into_owned())
        }
        BundleForm::Pkcs12 => {
            let file = encode_pkcs12(key, &chain, leaf, Pkcs12Profile::Legacy)?;
            RedactedText::new(STANDARD.encode(&*file))
        }
    })
}

/// Decodes the value of an import request: PEM, or base64 of PEM or PKCS#12.
pub(super) fn decode_bundle(
    value: &RedactedText,
    password: Option<&RedactedText>,
) -> Result<ImportedBundle, ImportBundleError> {
    let text = value.expose();
    if is_pem(text.as_bytes()) {
        return decode_pem(text.as_bytes());
    }
    let compact: Zeroizing<String> =
        Zeroizing::new(text.chars().filter(|character| !character.is_whitespace()).collect());
    let file = STANDARD.decode(compact.as_bytes()).map(Zeroizing::new);
    let file = file.ok().ok_or(ImportBundleError::Pkcs12)?;
    if is_pem(&file) {
        return decode_pem(&file);
    }
    decode_pkcs12(&file, password.map_or("", |password| password.expose()))
}

fn is_pem(bytes: &[u8]) -> bool {
    bytes.windows(11).any(|window| window == b"-----BEGIN ")
}

fn decode_pem(text: &[u8]) -> Result<ImportedBundle, ImportBundleError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(text)
        .map(|certificate| DerCertificate::parse(&certificate.ok()?))
        .collect::<Option<_>>()
        .ok_or(ImportBundleError::Pem)?;
    let keys: Vec<_> = PrivatePkcs8KeyDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|_malformed| ImportBundleError::Pem)?;
    let [key] = keys.as_slice() else {
        return Err(if keys.is_empty() {
            ImportBundleError::PemKey
        } else {
            ImportBundleError::KeyCount
        });
    };
    let key = AsymmetricKey::parse_pkcs8(key.secret_pkcs8_der());
    let key = key.map_err(|_unsupported| ImportBundleError::UnsupportedKey)?;
    if certificates.is_empty() {
        return Err(ImportBundleError::Pem);
    }
    Ok(ImportedBundle { form: BundleForm::Pem, key, certificates })
}

fn decode_pkcs12(file: &[u8], password: &str) -> Result<ImportedBundle, ImportBundleError> {
    check_pkcs12_limits(file, password).map_err(|error| match error {
        Pkcs12LimitError::Unreadable => ImportBundleError::Pkcs12,
        other => ImportBundleError::Pkcs12Limit(other),
    })?;
    let archive = Pkcs12Archive::from_pkcs12(file, password)
        .map_err(|_unreadable| ImportBundleError::Pkcs12)?;
    let [key] = archive.keys.as_slice() else { return Err(ImportBundleError::KeyCount) };
    let key = AsymmetricKey::parse_pkcs8(key.key.as_der());
    let key = key.map_err(|_unsupported| ImportBundleError::UnsupportedKey)?;
    let certificates: Vec<_> = archive
        .certs
        .iter()
        .map(|bag| DerCertificate::parse(bag.cert.as_der()))
        .collect::<Option<_>>()
        .ok_or(ImportBundleError::Pkcs12)?;
    if certificates.is_empty() {
        return Err(ImportBundleError::Pkcs12);
    }
    Ok(ImportedBundle { form: BundleForm::Pkcs12, key, certificates })
}
