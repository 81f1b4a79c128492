//! The certificate of the API server, and the authority that people who reach it trust.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::control_plane::write as write_file;
use crate::error::ControlPlaneError;

/// The authority, in PEM.
pub(crate) const AUTHORITY: &str = "ca.crt";
/// The certificate, in PEM.
pub(crate) const CERTIFICATE: &str = "apiserver.crt";
/// Its key, in PEM.
pub(crate) const KEY: &str = "apiserver.key";

/// Writes the three files. The key of the authority is written nowhere.
pub(crate) fn write(place: &Path) -> Result<(), ControlPlaneError> {
    let authority_key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut authority = named("lanyard API server authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = authority.self_signed(&authority_key)?;
    write_file(&place.join(AUTHORITY), &certificate.pem())?;

    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut server = named("kube-apiserver");
    server.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let issuer = Issuer::new(authority, authority_key);
    let certificate = server.signed_by(&key, &issuer)?;
    write_file(&place.join(CERTIFICATE), &certificate.pem())?;
    write_file(&place.join(KEY), &key.serialize_pem())
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
