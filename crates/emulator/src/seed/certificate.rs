//! Issues certificates from emulated authorities.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
    SerialNumber,
};
use uuid::Uuid;

use super::SeedError;
use crate::certificates::{common_name, set_validity};
use crate::directory::CertificateAuthority;
use crate::keys::{CertificateSigner, RsaKey};

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CertificateValidityPeriod {
    /// The first valid second.
    pub(super) not_before: Timestamp,
    /// The last valid second.
    pub(super) not_after: Timestamp,
}

/// The fields of an end-entity certificate.
#[derive(Debug, Clone)]
pub(super) struct LeafCertificateSpec<'a> {
    /// The common name.
    pub(super) subject: &'a str,
    /// The serial number.
    pub(super) serial: Uuid,
    /// The validity period.
    pub(super) validity: CertificateValidityPeriod,
    /// The key of the certificate.
    pub(super) key: &'a RsaKey,
}

/// Creates a self-signed authority with the common name `name`.
pub(super) fn create_authority(
    name: &str,
    key: RsaKey,
    serial: Uuid,
    validity: CertificateValidityPeriod,
) -> Result<CertificateAuthority, SeedError> {
    let mut params = authority_params(name);
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    set_validity(&mut params, validity.not_before, validity.not_after);
    let signer = signer(&key)?;
    let certificate = params.self_signed(&signer).map_err(SeedError::Certificate)?;
    Ok(CertificateAuthority { certificate: certificate.der().to_vec(), key })
}

/// Issues a certificate for client authentication by the authority `name`, in DER.
pub(super) fn issue_leaf_certificate(
    name: &str,
    authority: &CertificateAuthority,
    leaf: &LeafCertificateSpec<'_>,
) -> Result<Vec<u8>, SeedError> {
    let issuer = Issuer::new(authority_params(name), signer(&authority.key)?);
    let certificate =
        leaf_params(leaf).signed_by(&signer(leaf.key)?, &issuer).map_err(SeedError::Certificate)?;
    Ok(certificate.der().to_vec())
}

/// Creates a self-signed certificate for client authentication, in DER.
pub(super) fn self_signed_leaf_certificate(
    leaf: &LeafCertificateSpec<'_>,
) -> Result<Vec<u8>, SeedError> {
    let certificate =
        leaf_params(leaf).self_signed(&signer(leaf.key)?).map_err(SeedError::Certificate)?;
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

fn signer(key: &RsaKey) -> Result<CertificateSigner, SeedError> {
    CertificateSigner::new(key.clone().into()).map_err(SeedError::key_read_error)
}
