//! The certificates of the servers that lanyard is compared with: of the same kind as those of the local
//! Azure, a P-256 key with a certificate of a P-256 authority.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A certificate and its key in files, and the authority that signed it.
#[derive(Debug)]
pub(super) struct ServerCertificate {
    /// The certificate and the authority's certificate, in PEM.
    pub(super) chain_file: PathBuf,
    /// The private key, in PEM.
    pub(super) key_file: PathBuf,
    /// The certificate of the authority, in PEM.
    pub(super) authority_pem: String,
}

impl ServerCertificate {
    /// Issues a certificate for a host and writes the files into `directory`.
    pub(super) fn issue(host: &str, directory: &Path) -> Result<Self, Failed> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new([])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.distinguished_name.push(DnType::CommonName, "benchmark");
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new([host.to_owned()])?.signed_by(&key, &issuer)?;
        let (chain_file, key_file) =
            (directory.join(format!("{host}.crt")), directory.join(format!("{host}.key")));
        fs::write(&chain_file, leaf.pem() + &authority_pem)?;
        fs::write(&key_file, key.serialize_pem())?;
        Ok(Self { chain_file, key_file, authority_pem })
    }
}
