//! Certificates for client authentication, and the emulated authorities that issue them.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
    SerialNumber,
};
use uuid::Uuid;

use crate::certificates::{common_name, set_validity};
use crate::directory::CertificateAuthority;
use crate::keys::{AsymmetricKeyError, CertificateSigner, RsaKey};

/// A client certificate could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum ClientCertificateError {
    /// A key could not be read.
    #[error("a key could not be read")]
    Key(#[source] AsymmetricKeyError),
    /// The certificate could not be written.
    #[error("a certificate could not be written")]
    Certificate(#[source] rcgen::Error),
}

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateValidityPeriod {
    /// The first valid second.
    pub not_before: Timestamp,
    /// The last valid second.
    pub not_after: Timestamp,
}

/// The fields of an end-entity certificate.
#[derive(Debug, Clone)]
pub struct LeafCertificateSpec<'a> {
    /// The common name.
    pub subject: &'a str,
    /// The serial number.
    pub serial: Uuid,
    /// The validity period.
    pub validity: CertificateValidityPeriod,
    /// The key of the certificate.
    pub key: &'a RsaKey,
}

/// Creates a self-signed certificate authority with the common name `name`.
pub fn create_authority(
    name: &str,
    key: RsaKey,
    serial: Uuid,
    validity: CertificateValidityPeriod,
) -> Result<CertificateAuthority, ClientCertificateError> {
    let mut params = authority_params(name);
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    set_validity(&mut params, validity.not_before, validity.not_after);
    let signer = signer(&key)?;
    let certificate = params.self_signed(&signer).map_err(ClientCertificateError::Certificate)?;
    Ok(CertificateAuthority { certificate: certificate.der().to_vec(), key })
}

/// Issues a client authentication certificate in DER. `name` is the common name of `authority`.
pub(crate) fn issue_leaf_certificate(
    name: &str,
    authority: &CertificateAuthority,
    leaf: &LeafCertificateSpec<'_>,
) -> Result<Vec<u8>, ClientCertificateError> {
    let issuer = Issuer::new(authority_params(name), signer(&authority.key)?);
    let certificate = leaf_params(leaf)
        .signed_by(&signer(leaf.key)?, &issuer)
        .map_err(ClientCertificateError::Certificate)?;
    Ok(certificate.der().to_vec())
}

/// Creates a self-signed certificate for client authentication, in DER.
pub fn self_signed_leaf_certificate(
    leaf: &LeafCertificateSpec<'_>,
) -> Result<Vec<u8>, ClientCertificateError> {
    let certificate = leaf_params(leaf)
        .self_signed(&signer(leaf.key)?)
        .map_err(ClientCertificateError::Certificate)?;
    Ok(certificate.der().to_vec())
}

fn leaf_params(leaf: &LeafCertificateSpec<'_>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(leaf.subject);
    params.serial_number = Some(SerialNumber::from_slice(leaf.serial.as_bytes()));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, leaf.validity.not_before, leaf.validity.not_after);
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn signer(key: &RsaKey) -> Result<CertificateSigner, ClientCertificateError> {
    CertificateSigner::new(key.clone().into()).map_err(ClientCertificateError::Key)
}
