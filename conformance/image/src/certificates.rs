//! Certificates for the image tests: two CAs, and the client certificate of a component.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;

use crate::ImageSetupError;

pub(crate) struct ImageTestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl ImageTestCa {
    pub(crate) fn generate(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// TLS configuration of a server for `host`, with a certificate that this CA signed.
    pub(crate) fn tls_server_config(
        &self,
        host: &str,
    ) -> Result<Arc<ServerConfig>, ImageSetupError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = CertificateParams::new([host.to_owned()])?;
        let certificate = params.signed_by(&key, &self.issuer)?.der().clone();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A new key and certificate of a component, as the `client_secret` of a credential document.
pub(crate) fn generate_client_secret() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    let certificate = CertificateParams::new(["component".to_owned()])?.self_signed(&key)?;
    Ok(STANDARD.encode(key.serialize_pem() + &certificate.pem()))
}
