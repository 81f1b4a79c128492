//! Certificates of the world: authorities and what they issue.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose,
    PKCS_RSA_SHA256, PublicKeyData, SerialNumber, SignatureAlgorithm, SigningKey,
};
use uuid::Uuid;

use super::SeedError;
use crate::certificates::{common_name, set_validity};
use crate::directory::CertificateAuthority;
use crate::keys::{KeyError, RsaKey};

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    /// From.
    pub(super) not_before: Timestamp,
    /// To.
    pub(super) not_after: Timestamp,
}

/// What an end-entity certificate says.
#[derive(Debug, Clone)]
pub(super) struct Leaf<'a> {
    /// The common name.
    pub(super) subject: &'a str,
    /// The serial number.
    pub(super) serial: Uuid,
    /// When it is valid.
    pub(super) validity: Validity,
    /// Its key.
    pub(super) key: &'a RsaKey,
}

/// A self-signed authority with `name` as its common name.
pub(super) fn make_authority(
    name: &str,
    key: RsaKey,
    serial: Uuid,
    validity: Validity,
) -> Result<CertificateAuthority, SeedError> {
    let mut params = authority_params(name);
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    set_validity(&mut params, validity.not_before, validity.not_after);
    let signer = Signer::new(&key)?;
    let certificate = params.self_signed(&signer).map_err(SeedError::Certificate)?;
    Ok(CertificateAuthority { certificate: certificate.der().to_vec(), key })
}

/// A certificate for client authentication from the authority `name`, DER.
pub(super) fn issue(
    name: &str,
    authority: &CertificateAuthority,
    leaf: &Leaf<'_>,
) -> Result<Vec<u8>, SeedError> {
    let issuer = Issuer::new(authority_params(name), Signer::new(&authority.key)?);
    let certificate = leaf_params(leaf)
        .signed_by(&Signer::new(leaf.key)?, &issuer)
        .map_err(SeedError::Certificate)?;
    Ok(certificate.der().to_vec())
}

/// A self-signed certificate for client authentication, DER.
pub(super) fn self_signed(leaf: &Leaf<'_>) -> Result<Vec<u8>, SeedError> {
    let certificate =
        leaf_params(leaf).self_signed(&Signer::new(leaf.key)?).map_err(SeedError::Certificate)?;
    Ok(certificate.der().to_vec())
}

fn leaf_params(leaf: &Leaf<'_>) -> CertificateParams {
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

/// A key of the world as rcgen wants it.
struct Signer<'a> {
    key: &'a RsaKey,
    public: Vec<u8>,
}

impl<'a> Signer<'a> {
    fn new(key: &'a RsaKey) -> Result<Self, SeedError> {
        let public = key.public_der().map_err(SeedError::reading)?;
        Ok(Self { key, public })
    }
}

impl PublicKeyData for Signer<'_> {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

impl SigningKey for Signer<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        // rcgen has no room for the cause: it knows only that a key outside of it failed.
        self.key.sign_rs256(message).map_err(|_failed: KeyError| rcgen::Error::RemoteKeyError)
    }
}
