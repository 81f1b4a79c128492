//! Subject name and issuer trust: verifies the chain from a leaf to a trusted authority.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, VerificationAlgorithm,
};
use jiff::Timestamp;
use lanyard_emulator_state::certificates::parse_certificate;
use x509_parser::certificate::X509Certificate;

/// The maximum length of a chain; longer ones are an error of the client.
const MAX_CHAIN_DEPTH: usize = 4;

/// The certificate chain of a client assertion does not prove the trusted subject and issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CertificateChainError {
    /// A certificate cannot be parsed.
    #[error("a certificate of `x5c` is not readable")]
    Unreadable,
    /// The leaf has another subject than the trusted one.
    #[error("the subject of the certificate is `{found}`, and the trusted subject is `{wanted}`")]
    SubjectMismatch {
        /// The common name of the leaf.
        found: String,
        /// The trusted common name.
        wanted: String,
    },
    /// The chain does not lead to the trusted authority.
    #[error("the certificate chain does not lead to the trusted issuer")]
    Untrusted,
}

/// Whether a certificate is valid at a time.
pub(super) fn is_valid_at(certificate: &X509Certificate<'_>, now: Timestamp) -> bool {
    let validity = certificate.validity();
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now.as_second())
}

/// Verifies that `leaf` has the trusted subject and that `anchor` issued it, directly or through the other
/// certificates of the request.
///
/// The validity of the leaf is not checked here, because it has its own error.
pub(super) fn verify_chain(
    leaf: &[u8],
    others: &[Vec<u8>],
    anchor: Option<&[u8]>,
    subject: &str,
    now: Timestamp,
) -> Result<(), CertificateChainError> {
    let leaf = parse_certificate(leaf).ok_or(CertificateChainError::Unreadable)?;
    let anchor = anchor.ok_or(CertificateChainError::Untrusted)?;
    let anchor = parse_certificate(anchor).ok_or(CertificateChainError::Untrusted)?;
    let others: Option<Vec<_>> = others.iter().map(|der| parse_certificate(der)).collect();
    let others = others.ok_or(CertificateChainError::Unreadable)?;
    let found = leaf.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    if found != Some(subject) {
        return Err(CertificateChainError::SubjectMismatch {
            found: found.unwrap_or_default().to_owned(),
            wanted: subject.to_owned(),
        });
    }
    let mut child = &leaf;
    for _ in 0..MAX_CHAIN_DEPTH {
        if is_issued_by(&anchor, child, now) {
            return Ok(());
        }
        child = others
            .iter()
            .find(|other| is_issued_by(other, child, now) && other.as_raw() != child.as_raw())
            .ok_or(CertificateChainError::Untrusted)?;
    }
    Err(CertificateChainError::Untrusted)
}

/// Whether `parent` is a currently valid authority and signed `child`.
fn is_issued_by(parent: &X509Certificate<'_>, child: &X509Certificate<'_>, now: Timestamp) -> bool {
    parent.is_ca()
        && parent.subject().as_raw() == child.issuer().as_raw()
        && is_valid_at(parent, now)
        && is_signed_by(parent, child)
}

fn is_signed_by(parent: &X509Certificate<'_>, child: &X509Certificate<'_>) -> bool {
    let algorithm: &'static dyn VerificationAlgorithm =
        match child.signature_algorithm.algorithm.to_id_string().as_str() {
            "1.2.840.113549.1.1.11" => &RSA_PKCS1_2048_8192_SHA256,
            "1.2.840.113549.1.1.12" => &RSA_PKCS1_2048_8192_SHA384,
            "1.2.840.113549.1.1.13" => &RSA_PKCS1_2048_8192_SHA512,
            "1.2.840.10045.4.3.2" => &ECDSA_P256_SHA256_ASN1,
            _ => return false,
        };
    let key = parent.public_key().subject_public_key.data.as_ref();
    let signed = child.tbs_certificate.as_ref();
    ParsedPublicKey::new(algorithm, key)
        .is_ok_and(|key| key.verify_sig(signed, child.signature_value.data.as_ref()).is_ok())
}
