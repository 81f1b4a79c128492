//! Certificates of etcd and the API server, and the CA that their clients trust.
//!
//! Every user of the machine can reach etcd's ports. etcd answers only clients that present a certificate of
//! this CA: the API server, and etcd's own gateway.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use zeroize::Zeroizing;

use crate::error::ControlPlaneError;
use crate::private_files;

/// The CA certificate, in PEM.
pub(crate) const CA_FILE: &str = "ca.crt";
/// Serving certificate of the API server.
pub(crate) const API_SERVER_FILES: CertificateFiles =
    CertificateFiles { certificate: "apiserver.crt", key: "apiserver.key" };
/// Certificate of etcd.
pub(crate) const ETCD_FILES: CertificateFiles =
    CertificateFiles { certificate: "etcd.crt", key: "etcd.key" };
/// Client certificate that the API server presents to etcd.
pub(crate) const ETCD_CLIENT_FILES: CertificateFiles =
    CertificateFiles { certificate: "etcd-client.crt", key: "etcd-client.key" };

/// File names of a certificate and its key, both in PEM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: &'static str,
    pub(crate) key: &'static str,
}

/// Writes all certificates and keys. The key of the CA stays in memory and is never written.
pub(crate) fn write_certificates(place: &Path) -> Result<(), ControlPlaneError> {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

    let authority_key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut authority = certificate_params("lanyard API server authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = authority.self_signed(&authority_key)?;
    private_files::write_private_file(&place.join(CA_FILE), &certificate.pem())?;
    let issuer = Issuer::new(authority, authority_key);
    for (pair, name, usages) in [
        (API_SERVER_FILES, "kube-apiserver", vec![ServerAuth]),
        // etcd's JSON gateway is itself a client of etcd.
        (ETCD_FILES, "etcd", vec![ServerAuth, ClientAuth]),
        (ETCD_CLIENT_FILES, "kube-apiserver-etcd-client", vec![ClientAuth]),
    ] {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let mut params = certificate_params(name);
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let certificate = params.signed_by(&key, &issuer)?;
        private_files::write_private_file(&place.join(pair.certificate), &certificate.pem())?;
        let key = Zeroizing::new(key.serialize_pem());
        private_files::write_private_file(&place.join(pair.key), &key)?;
    }
    Ok(())
}

fn certificate_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
