//! The local certificate authority for TLS interception.
//!
//! It can sign only names of Azure and of the custom cloud, so that trusting it is safe. Clients check these
//! certificates against their own clock: the validity follows the system clock, whatever clock the emulator
//! uses.

use lanyard_clock::ErrorHint;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use lanyard_clock::{Clock as _, SystemClock};
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::certificates::{common_name, days_after, set_validity};
use lanyard_emulator_state::identity_binding::is_proxy_server_name;
use lanyard_emulator_state::keys::RedactedText;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData as _,
    SanType,
};
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// Apple's platforms reject leaf certificates with a validity of more than 398 days.
const LEAF_DAYS: i64 = 396;
/// The maximum number of cached leaves: vault names are unbounded, and creating a leaf is fast.
const MAX_CACHED_LEAVES: usize = 1_000;
const AUTHORITY_DAYS: i64 = 3_650;
const AUTHORITY_COMMON_NAME: &str = "lanyard local Azure, name-constrained";

/// The authority in the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAuthority {
    certificate_pem: String,
    key_pem: RedactedText,
}

/// The local certificate authority, or a certificate that it issues, could not be created, loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A key or a certificate could not be created.
    #[error("a certificate of the local authority could not be made")]
    Certificate(#[source] rcgen::Error),
    /// The certificate or its private key is not PEM.
    #[error("the certificate or the key of the local authority is not PEM")]
    Pem(#[source] rustls_pki_types::pem::Error),
    /// The certificate or its private key could not be parsed.
    #[error("the certificate or the key of the local authority could not be parsed")]
    Parse(#[source] rcgen::Error),
    /// The certificate is not a CA certificate.
    #[error("the certificate is not that of a certificate authority")]
    NotACertificateAuthority,
    /// The private key does not match the certificate.
    #[error("the private key does not belong to the certificate of the local authority")]
    KeyMismatch,
    /// TLS does not support the certificate's key.
    #[error("TLS does not take the key of a certificate of the local authority")]
    UnsupportedKey(#[source] rustls::Error),
}

impl ErrorHint for AuthorityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Pem(_) | Self::Parse(_) | Self::NotACertificateAuthority | Self::KeyMismatch => {
                Some(
                    "give the certificate of an authority (basic constraint CA) and its own private \
                 key, both in PEM; the key is PKCS#8, SEC1 or PKCS#1",
                )
            }
            Self::Certificate(_) | Self::UnsupportedKey(_) => None,
        };
        hint.map(Cow::Borrowed)
    }
}

impl AuthorityError {
    /// Whether the certificate or the key that the caller passed is invalid.
    pub const fn is_invalid_input(&self) -> bool {
        !matches!(self, Self::Certificate(_) | Self::UnsupportedKey(_))
    }
}

impl From<rcgen::Error> for AuthorityError {
    fn from(source: rcgen::Error) -> Self {
        Self::Certificate(source)
    }
}

/// The local certificate authority, with its cached leaf certificates.
pub struct LocalAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    stored: StoredAuthority,
    clock: SystemClock,
    cached_leaves: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

lanyard_vocabulary::debug_fields!(LocalAuthority);

impl LocalAuthority {
    /// Generates an authority with a new key, constrained to the names of the clouds.
    pub fn generate(clouds: &AzureClouds) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Self::certify(AUTHORITY_COMMON_NAME, key, clouds)
    }

    /// Generates an authority with a name that no client trusts.
    pub(crate) fn generate_untrusted(clouds: &AzureClouds) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Self::certify("lanyard local Azure, untrusted", key, clouds)
    }

    /// Issues the certificate of an authority with a name and a key.
    fn certify(name: &str, key: KeyPair, clouds: &AzureClouds) -> Result<Self, AuthorityError> {
        let clock = SystemClock::new();
        let mut params = constrained_authority_params(name, clouds);
        let now = clock.now();
        set_validity(&mut params, days_after(now, -1), days_after(now, AUTHORITY_DAYS));
        let certificate = params.self_signed(&key)?;
        let stored = StoredAuthority {
            certificate_pem: certificate.pem(),
            key_pem: RedactedText::new(key.serialize_pem()),
        };
        let certificate = certificate.der().clone();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate, stored, clock, cached_leaves: Mutex::default() })
    }

    /// Loads an authority from a certificate and its private key in PEM. The certificate may lack name
    /// constraints; leaves are still issued for names of Azure only.
    pub fn from_pem(
        certificate_pem: String,
        key_pem: RedactedText,
    ) -> Result<Self, AuthorityError> {
        Self::from_stored(StoredAuthority { certificate_pem, key_pem })
    }

    /// Loads the authority of a state file.
    pub fn from_stored(stored: StoredAuthority) -> Result<Self, AuthorityError> {
        let certificate = CertificateDer::from_pem_slice(stored.certificate_pem.as_bytes())
            .map_err(AuthorityError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(stored.key_pem.expose().as_bytes())
            .map_err(AuthorityError::Pem)?;
        let key = KeyPair::try_from(&key).map_err(AuthorityError::Parse)?;
        check_authority_key_pair(&certificate, &key)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(AuthorityError::Parse)?;
        let clock = SystemClock::new();
        Ok(Self { issuer, certificate, stored, clock, cached_leaves: Mutex::default() })
    }

    /// Ensures that an authority that this program generated may sign the names of the clouds. If
    /// names are missing, the result has a new certificate with the same name and key. The old
    /// certificate remains valid for its own names.
    pub fn extended_to(self, clouds: &AzureClouds) -> Result<Self, AuthorityError> {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&self.certificate) else {
            return Err(AuthorityError::Parse(rcgen::Error::CouldNotParseCertificate));
        };
        let is_generated = parsed
            .subject()
            .iter_common_name()
            .any(|name| name.as_str() == Ok(AUTHORITY_COMMON_NAME));
        let permitted = permitted_dns_names(&parsed);
        let needed = clouds.signable_suffixes();
        if !is_generated || needed.iter().all(|name| permitted.contains(&name.as_str())) {
            return Ok(self);
        }
        let key = PrivateKeyDer::from_pem_slice(self.stored.key_pem.expose().as_bytes())
            .map_err(AuthorityError::Pem)?;
        let key = KeyPair::try_from(&key).map_err(AuthorityError::Parse)?;
        Self::certify(AUTHORITY_COMMON_NAME, key, clouds)
    }

    /// The authority in the form of the state file.
    pub fn stored_form(&self) -> &StoredAuthority {
        &self.stored
    }

    /// The certificate that clients have to trust, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.stored.certificate_pem
    }

    fn leaf_for_host(&self, host: &str) -> Result<Arc<CertifiedKey>, AuthorityError> {
        if let Some(leaf) = self.cached_leaves.lock().get(host) {
            return Ok(Arc::clone(leaf));
        }
        let leaf = self.issue_leaf(host, (-1, LEAF_DAYS))?;
        let mut leaves = self.cached_leaves.lock();
        if leaves.len() >= MAX_CACHED_LEAVES {
            leaves.clear();
        }
        leaves.insert(host.to_owned(), Arc::clone(&leaf));
        drop(leaves);
        Ok(leaf)
    }

    /// A leaf certificate for a host; the certificate expired a day ago.
    pub(crate) fn expired_leaf(&self, host: &str) -> Result<Arc<CertifiedKey>, AuthorityError> {
        self.issue_leaf(host, (-LEAF_DAYS, -1))
    }

    /// A leaf certificate for a host, which is not cached. `(from, until)` is its validity in days
    /// from now.
    pub(crate) fn issue_leaf(
        &self,
        host: &str,
        (from, until): (i64, i64),
    ) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let (certificate, signer) = self.sign_leaf(host, (from, until), &self.issuer)?;
        Ok(Arc::new(CertifiedKey::new(vec![certificate, self.certificate.clone()], signer)))
    }

    /// A leaf for a host, signed by an intermediate authority whose certificate is not in the chain.
    pub(crate) fn leaf_of_intermediate(
        &self,
        clouds: &AzureClouds,
        host: &str,
        days: (i64, i64),
    ) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let params = constrained_authority_params("lanyard local Azure, intermediate", clouds);
        let intermediate = Issuer::new(params, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?);
        let (certificate, signer) = self.sign_leaf(host, days, &intermediate)?;
        Ok(Arc::new(CertifiedKey::new(vec![certificate], signer)))
    }

    /// Signs a certificate with a new key for a host. The validity is in days from now.
    fn sign_leaf(
        &self,
        host: &str,
        (from, until): (i64, i64),
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<(CertificateDer<'static>, Arc<dyn SigningKey>), AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("lanyard local Azure");
        params.subject_alt_names = vec![SanType::DnsName(host.try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = self.clock.now();
        set_validity(&mut params, days_after(now, from), days_after(now, until));
        let certificate = params.signed_by(&key, issuer)?.der().clone();
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signer = any_ecdsa_type(&der).map_err(AuthorityError::UnsupportedKey)?;
        Ok((certificate, signer))
    }

    /// The leaf for a server name, if it is a name of a cloud or of a cluster's token proxy.
    pub(crate) fn leaf_for_server_name(
        &self,
        clouds: &AzureClouds,
        host: &str,
    ) -> Option<Arc<CertifiedKey>> {
        let is_ours = clouds.endpoint_of_host(host).is_some() || is_proxy_server_name(host);
        if is_ours { self.leaf_for_host(host).ok() } else { None }
    }
}

/// Checks that the certificate is a CA certificate and matches the key.
fn check_authority_key_pair(
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
) -> Result<(), AuthorityError> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return Err(AuthorityError::Parse(rcgen::Error::CouldNotParseCertificate));
    };
    if !parsed.is_ca() {
        return Err(AuthorityError::NotACertificateAuthority);
    }
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(AuthorityError::KeyMismatch);
    }
    Ok(())
}

/// The names that a certificate authority may sign.
fn permitted_dns_names<'c>(certificate: &'c X509Certificate<'_>) -> Vec<&'c str> {
    let constraints = certificate.name_constraints().ok().flatten();
    let permitted = constraints.and_then(|it| it.value.permitted_subtrees.as_deref());
    let names = permitted.unwrap_or_default().iter().filter_map(|subtree| match subtree.base {
        GeneralName::DNSName(name) => Some(name),
        _ => None,
    });
    names.collect()
}

fn constrained_authority_params(name: &str, clouds: &AzureClouds) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: clouds
            .signable_suffixes()
            .into_iter()
            .map(GeneralSubtree::DnsName)
            .collect(),
        // Permitted DNS names do not restrict names of other types.
        excluded_subtrees: vec![
            GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
            GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
        ],
    });
    params
}

#[cfg(test)]
mod tests {
    use rcgen::{DistinguishedName, DnType, DnValue};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls_pki_types::{ServerName, UnixTime};

    use super::*;

    fn azure_clouds() -> AzureClouds {
        AzureClouds::new(None, 0)
    }

    fn verify_leaf_of_host(authority: &LocalAuthority, host: &str) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let leaf = authority.leaf_for_host(host).unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let seconds = u64::try_from(SystemClock::new().now().as_second()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        verifier.verify_server_cert(&leaf.cert[0], &leaf.cert[1..], &name, &[], now).map(|_| ())
    }

    #[test]
    fn leaf_verifies_for_azure_names_only() {
        let authority = LocalAuthority::generate(&azure_clouds()).unwrap();
        for host in [
            "login.microsoftonline.com",
            "westeurope.login.microsoft.com",
            "kv.vault.azure.net",
            "management.chinacloudapi.cn",
        ] {
            assert_eq!(verify_leaf_of_host(&authority, host), Ok(()), "{host}");
        }
        for host in ["example.com", "azure.net", "evilvault.azure.net.example.com"] {
            assert!(verify_leaf_of_host(&authority, host).is_err(), "{host}");
        }
    }

    /// An authority as Helm's `genCA` creates it: without name constraints.
    fn unconstrained_authority_pem() -> (String, RedactedText) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        let name = DnValue::PrintableString("local Azure of a cluster".try_into().unwrap());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), RedactedText::new(key.serialize_pem()))
    }

    #[test]
    fn provided_authority_signs_leaves_with_its_own_issuer_name() {
        let (certificate, key) = unconstrained_authority_pem();
        let authority = LocalAuthority::from_pem(certificate.clone(), key).unwrap();
        assert_eq!(authority.certificate_pem(), certificate);
        assert_eq!(verify_leaf_of_host(&authority, "kv.vault.azure.net"), Ok(()));
    }

    #[test]
    fn mismatched_key_and_leaf_certificate_are_rejected() {
        let [one, other] = [(); 2].map(|()| LocalAuthority::generate(&azure_clouds()).unwrap());
        let (certificate, key) = (one.stored.certificate_pem, other.stored.key_pem);
        let refused = LocalAuthority::from_pem(certificate, key).unwrap_err();
        assert!(matches!(refused, AuthorityError::KeyMismatch), "{refused}");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let leaf = CertificateParams::default().self_signed(&key).unwrap();
        let key = RedactedText::new(key.serialize_pem());
        let refused = LocalAuthority::from_pem(leaf.pem(), key).unwrap_err();
        assert!(matches!(refused, AuthorityError::NotACertificateAuthority), "{refused}");
        assert!(refused.is_invalid_input());
    }

    #[test]
    fn restored_authority_signs_leaves_trusted_by_the_original_certificate() {
        let first = LocalAuthority::generate(&azure_clouds()).unwrap();
        let text = serde_json::to_string(first.stored_form()).unwrap();
        let second = LocalAuthority::from_stored(serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        assert_eq!(verify_leaf_of_host(&second, "kv.vault.azure.net"), Ok(()));
    }

    #[test]
    fn restored_authority_is_extended_to_a_custom_cloud_with_the_same_key() {
        let first = LocalAuthority::generate(&azure_clouds()).unwrap();
        let original = first.certificate_pem().to_owned();
        let custom = AzureClouds::new(Some(&"azure.test".parse().unwrap()), 7750);
        let second = first.extended_to(&custom).unwrap();
        for host in ["kv.vault.azure.test", "login.azure.test", "kv.vault.azure.net"] {
            assert_eq!(verify_leaf_of_host(&second, host), Ok(()), "{host}");
        }
        for host in ["azure.test", "other.azure.test"] {
            assert!(verify_leaf_of_host(&second, host).is_err(), "{host}");
        }
        // A client that still trusts the first certificate accepts the names of Azure.
        let mut roots = LocalAuthority::generate(&azure_clouds()).unwrap();
        roots.certificate = CertificateDer::from_pem_slice(original.as_bytes()).unwrap();
        roots.issuer = second.issuer;
        assert_eq!(verify_leaf_of_host(&roots, "kv.vault.azure.net"), Ok(()));
        assert!(verify_leaf_of_host(&roots, "kv.vault.azure.test").is_err());
        let pem = second.stored.certificate_pem.clone();
        let third = LocalAuthority::from_stored(second.stored).unwrap();
        let third = third.extended_to(&custom).unwrap().extended_to(&azure_clouds()).unwrap();
        assert_eq!(third.certificate_pem(), pem);
    }

    #[test]
    fn provided_authority_stays_as_it_is() {
        let (certificate, key) = unconstrained_authority_pem();
        let authority = LocalAuthority::from_pem(certificate.clone(), key).unwrap();
        let custom = AzureClouds::new(Some(&"azure.test".parse().unwrap()), 7750);
        assert_eq!(authority.extended_to(&custom).unwrap().certificate_pem(), certificate);
    }
}
