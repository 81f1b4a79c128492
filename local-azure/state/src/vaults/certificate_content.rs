//! The content of stored certificates.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::bundle_form::BundleForm;
use super::certificate_operation::CertificateOperation;
use super::certificate_policy::CertificatePolicy;
use super::der_certificate::DerCertificate;
use super::object_store::{StoredVaultObject, VersionContent};

/// The content of a certificate version; its secret and its key have the same name and version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CertificateContent {
    /// The certificate with its issuers, in the order of the secret. Empty until the certificate is issued.
    pub chain: Vec<DerCertificate>,
    /// The position of the certificate in the chain.
    pub leaf: usize,
    pub form: BundleForm,
    /// Whether the secret contains the private key.
    pub is_exportable: bool,
}

/// What the versions of a certificate share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CertificateDetails {
    /// The policy of the next version.
    pub policy: Option<CertificatePolicy>,
    /// The operation that creates the latest version, until a client deletes the operation.
    pub operation: Option<CertificateOperation>,
    /// Whether the secret keeps the order of imported certificates.
    pub preserve_order: bool,
}

impl CertificateContent {
    /// The content of a version that a policy created. The certificate is at the position `leaf` of the chain.
    pub const fn of_policy(
        policy: &CertificatePolicy,
        chain: Vec<DerCertificate>,
        leaf: usize,
    ) -> Self {
        Self { chain, leaf, form: policy.form, is_exportable: policy.key.exportable }
    }

    /// The certificate itself; `None` until it is issued.
    pub fn certificate(&self) -> Option<&DerCertificate> {
        self.chain.get(self.leaf)
    }
}

impl VersionContent for CertificateContent {
    type Details = CertificateDetails;

    fn next_renewal(object: &StoredVaultObject<Self>) -> Option<Timestamp> {
        let latest = object.latest().filter(|version| version.attributes.enabled)?;
        latest.content.certificate()?;
        let (from, until) = (latest.attributes.not_before?, latest.attributes.expires?);
        object.details.policy.as_ref()?.renewal_time(from, until)
    }
}
