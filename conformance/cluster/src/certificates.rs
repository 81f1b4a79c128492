//! Keys and certificates of the cluster: one CA, one serving certificate for loopback, and one client
//! certificate for each user.

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
use crate::plan::LocalClusterPlan;

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub(crate) struct CertificateWithKey {
    /// The common name in the certificate.
    pub(crate) name: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Omits the key.
impl fmt::Debug for CertificateWithKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CertificateWithKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// All certificates of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterCertificates {
    /// The CA certificate in PEM. The key of the CA is not kept.
    pub(crate) authority: String,
    /// The certificate that all servers on loopback present.
    pub(crate) serving: CertificateWithKey,
    /// The client certificate with which the API server calls the kubelet.
    pub(crate) api_server: CertificateWithKey,
    pub(crate) controller_manager: CertificateWithKey,
    pub(crate) scheduler: CertificateWithKey,
    pub(crate) kubelet: CertificateWithKey,
    pub(crate) administrator: CertificateWithKey,
}

/// Validity of all certificates in days, longer than any test cluster lives.
const VALIDITY_DAYS: i32 = 365;

impl ClusterCertificates {
    /// Generates the CA and all certificates, valid from one day before `now`.
    pub(crate) fn generate(now: Timestamp) -> Result<Self, ClusterError> {
        let authority = ClusterCa::generate(now)?;
        Ok(Self {
            serving: authority.issue_serving_certificate()?,
            api_server: authority.issue_client_certificate(
                "kube-apiserver-kubelet-client",
                Some("system:masters"),
            )?,
            controller_manager: authority
                .issue_client_certificate("system:kube-controller-manager", None)?,
            scheduler: authority.issue_client_certificate("system:kube-scheduler", None)?,
            kubelet: authority.issue_client_certificate(
                &format!("system:node:{}", LocalClusterPlan::NODE_NAME),
                Some("system:nodes"),
            )?,
            administrator: authority
                .issue_client_certificate("administrator", Some("system:masters"))?,
            authority: authority.certificate,
        })
    }
}

/// Generates an RSA key for service account tokens, in PEM (PKCS#8). Entra ID accepts only RSA.
pub(crate) fn generate_service_account_key() -> Result<String, ClusterError> {
    KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)
        .map(|key| key.serialize_pem())
        .map_err(|source| ClusterError::CreateCertificate {
            what: "key of service accounts",
            source,
        })
}

struct ClusterCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    today: Date,
}

impl ClusterCa {
    fn generate(now: Timestamp) -> Result<Self, ClusterError> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let create = || {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let mut params = certificate_params("lanyard test cluster", None, today);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let certificate = params.self_signed(&key)?.pem();
            Ok(Self { issuer: Issuer::new(params, key), certificate, today })
        };
        create().map_err(|source| ClusterError::CreateCertificate {
            what: "certificate authority",
            source,
        })
    }

    fn issue_serving_certificate(&self) -> Result<CertificateWithKey, ClusterError> {
        let mut params = certificate_params("kube-apiserver", None, self.today);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let create = || {
            for name in ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            {
                params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
            }
            let addresses: [IpAddr; 2] =
                [LocalClusterPlan::LOOPBACK_ADDRESS, LocalClusterPlan::API_SERVER_SERVICE_IP];
            params.subject_alt_names.extend(addresses.map(SanType::IpAddress));
            self.sign_certificate("kube-apiserver", params)
        };
        create().map_err(|source| ClusterError::CreateCertificate {
            what: "serving certificate",
            source,
        })
    }

    fn issue_client_certificate(
        &self,
        name: &str,
        group: Option<&str>,
    ) -> Result<CertificateWithKey, ClusterError> {
        let mut params = certificate_params(name, group, self.today);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_certificate(name, params).map_err(|source| ClusterError::CreateCertificate {
            what: "client certificate",
            source,
        })
    }

    fn sign_certificate(
        &self,
        name: &str,
        params: CertificateParams,
    ) -> Result<CertificateWithKey, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(CertificateWithKey { name: name.to_owned(), certificate, key: key.serialize_pem() })
    }
}

/// Certificate parameters for a user (`CN`) in a group (`O`), as the API server maps them.
fn certificate_params(name: &str, group: Option<&str>, today: Date) -> CertificateParams {
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
    params.not_after = stamp(VALIDITY_DAYS);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_private_keys() {
        let identities =
            ClusterCertificates::generate(Timestamp::from_second(1_767_225_600).expect("a time"))
                .expect("they can be create");
        let printed = format!("{identities:?}");
        assert!(!printed.contains("PRIVATE KEY"), "{printed}");
        assert!(identities.kubelet.key.contains("PRIVATE KEY"));
        assert_eq!(identities.kubelet.name, "system:node:localhost");
    }
}
