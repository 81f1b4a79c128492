//! A certificate without its private key.

use jiff::Timestamp;
use lanyard_azure::{GraphApplication, GraphKeyCredential};
use lanyard_vocabulary::SecretName;
use uuid::Uuid;

use crate::credential_times::CredentialTimes;

/// A certificate without its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicCertificate {
    pub(crate) der: Vec<u8>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl PublicCertificate {
    pub(crate) fn times(&self) -> CredentialTimes {
        CredentialTimes::of_certificate(self.not_before, self.not_after)
    }

    /// Whether the application accepts the certificate.
    pub(crate) fn is_accepted_by(&self, application: &GraphApplication) -> bool {
        let mut credentials = application.key_credentials.iter();
        credentials.any(|it| it.certificate().as_deref() == Some(self.der.as_slice()))
    }

    /// The certificate as an application named `name` registers it.
    pub(crate) fn to_key_credential(&self, name: &SecretName, id: Uuid) -> GraphKeyCredential {
        let validity = (self.not_before, self.not_after);
        GraphKeyCredential::of_certificate(&self.der, id, format!("CN={name}"), validity)
    }
}
