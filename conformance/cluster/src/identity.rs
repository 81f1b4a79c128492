//! Keys and certificates: one authority for the cluster, one serving certificate on loopback, one
//! client certificate for each that signs in.

use std::fmt;
use std::net::IpAddr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize, SanType,
};

use crate::error::ClusterError;
use crate::plan::Plan;

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Credential {
    /// The name in the certificate.
    pub(crate) name: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Without the key.
impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credential").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Everybody in the cluster.
#[derive(Debug)]
pub(crate) struct Identities {
    /// The authority's certificate in PEM. Its key is forgotten.
    pub(crate) authority: String,
    /// What the servers on loopback show.
    pub(crate) serving: Credential,
    /// The API server as the kubelet's client.
    pub(crate) api_server: Credential,
    pub(crate) controller_manager: Credential,
    pub(crate) scheduler: Credential,
    pub(crate) kubelet: Credential,
    pub(crate) administrator: Credential,
}

/// How long everything is valid. A test cluster does not live that long.
const DAYS: i32 = 365;

impl Identities {
    /// Makes all of them; they are valid from a day before `now`.
    pub(crate) fn generate(now: Timestamp) -> Result<Self, ClusterError> {
        let authority = Authority::generate(now)?;
        Ok(Self {
            serving: authority.serving()?,
            api_server: authority
                .client("kube-apiserver-kubelet-client", Some("system:masters"))?,
            controller_manager: authority.client("system:kube-controller-manager", None)?,
            scheduler: authority.client("system:kube-scheduler", None)?,
            kubelet: authority
                .client(&format!("system:node:{}", Plan::NODE), Some("system:nodes"))?,
            administrator: authority.client("administrator", Some("system:masters"))?,
            authority: authority.certificate,
        })
    }
}

/// A new RSA key for service account tokens, in PEM (PKCS#8). Entra ID takes no other kind.
pub(crate) fn service_account_key() -> Result<String, ClusterError> {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
        .map(|key| key.serialize_pem())
        .map_err(|source| ClusterError::Identity { what: "key of service accounts", source })
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    today: Date,
}

impl Authority {
    fn generate(now: Timestamp) -> Result<Self, ClusterError> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let made = || {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let mut params = params("lanyard test cluster", None, today);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let certificate = params.self_signed(&key)?.pem();
            Ok(Self { issuer: Issuer::new(params, key), certificate, today })
        };
        made().map_err(|source| ClusterError::Identity { what: "certificate authority", source })
    }

    fn serving(&self) -> Result<Credential, ClusterError> {
        let mut params = params("kube-apiserver", None, self.today);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let made = || {
            for name in ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            {
                params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
            }
            let addresses: [IpAddr; 2] = [Plan::ADDRESS, Plan::FIRST_SERVICE];
            params.subject_alt_names.extend(addresses.map(SanType::IpAddress));
            self.sign("kube-apiserver", params)
        };
        made().map_err(|source| ClusterError::Identity { what: "serving certificate", source })
    }

    fn client(&self, name: &str, group: Option<&str>) -> Result<Credential, ClusterError> {
        let mut params = params(name, group, self.today);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
            .map_err(|source| ClusterError::Identity { what: "client certificate", source })
    }

    fn sign(&self, name: &str, params: CertificateParams) -> Result<Credential, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credential { name: name.to_owned(), certificate, key: key.serialize_pem() })
    }
}

/// Parameters of a certificate for a user (`CN`) in a group (`O`), as the API server reads them.
fn params(name: &str, group: Option<&str>, today: Date) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let stamp = |days: i32| {
        let date = today.saturating_add(Span::new().days(days));
        let part = |value: i8| u8::try_from(value).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    params.not_before = stamp(-1);
    params.not_after = stamp(DAYS);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_print() {
        let identities =
            Identities::generate(Timestamp::from_second(1_767_225_600).expect("a time"))
                .expect("they can be made");
        let printed = format!("{identities:?}");
        assert!(!printed.contains("PRIVATE KEY"), "{printed}");
        assert!(identities.kubelet.key.contains("PRIVATE KEY"));
        assert_eq!(identities.kubelet.name, "system:node:localhost");
    }
}
