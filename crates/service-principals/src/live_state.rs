//! What exists of a service principal, and what is missing. Does no I/O.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_azure::{GraphApplication, GraphKeyCredential};
use lanyard_credential::bundle::{CertificateBundle, Thumbprint};
use lanyard_credential::document::CredentialDocument;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use uuid::Uuid;

use crate::credential_times::CredentialTimes;
use crate::credential_vault::{VaultCertificate, VaultSecret};

/// The live objects of one service principal.
pub(crate) struct LiveServicePrincipal {
    pub(crate) application: Option<GraphApplication>,
    /// The object id of the service principal.
    pub(crate) object_id: Option<Uuid>,
    pub(crate) certificate: Option<VaultCertificate>,
    pub(crate) secret: Option<StoredDocument>,
}

/// The newest version of the secret.
pub(crate) struct StoredDocument {
    pub(crate) created: Timestamp,
    pub(crate) tags: HashMap<String, String>,
    /// The credential in it; `None` if it is not a usable credential document.
    pub(crate) credential: Option<StoredCredential>,
}

/// The credential in a document.
pub(crate) struct StoredCredential {
    pub(crate) client_id: EntraClientId,
    pub(crate) tenant: EntraTenantId,
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) renew_after: Timestamp,
}

impl StoredDocument {
    pub(crate) fn parse(secret: &VaultSecret) -> Self {
        let credential = parse_credential(secret.value.as_bytes());
        Self { created: secret.created, tags: secret.tags.clone(), credential }
    }

    /// Whether the document contains this certificate.
    fn has_certificate(&self, certificate: &VaultCertificate) -> bool {
        self.credential.as_ref().is_some_and(|it| it.certificate == certificate.der)
    }
}

fn parse_credential(document: &[u8]) -> Option<StoredCredential> {
    let document = CredentialDocument::parse(document).ok()?;
    let bundle = CertificateBundle::parse(document.client_secret()).ok()?;
    let leaf = bundle.leaf();
    let validity = leaf.validity();
    let times = CredentialTimes::of_certificate(validity.not_before, validity.not_after);
    // HyperShift's scripts write no `renew_after`.
    let renew_after = document.timestamps().renew_after.unwrap_or(times.renew_after);
    Some(StoredCredential {
        client_id: document.client_id().as_str().parse().ok()?,
        tenant: document.tenant_id().as_str().parse().ok()?,
        certificate: leaf.der().to_vec(),
        renew_after,
    })
}

impl LiveServicePrincipal {
    /// Whether no object of the service principal exists.
    pub(crate) const fn is_empty(&self) -> bool {
        self.application.is_none() && self.certificate.is_none() && self.secret.is_none()
    }

    /// Whether the application accepts the newest certificate.
    pub(crate) fn is_registered(&self) -> bool {
        match (&self.application, &self.certificate) {
            (Some(application), Some(certificate)) => accepts(application, &certificate.der),
            _ => false,
        }
    }

    /// Whether the secret contains the newest certificate with the ids of the application.
    pub(crate) fn is_document_current(&self, tenant: &EntraTenantId) -> bool {
        let (Some(application), Some(certificate), Some(secret)) =
            (&self.application, &self.certificate, &self.secret)
        else {
            return false;
        };
        let same_ids = secret
            .credential
            .as_ref()
            .is_some_and(|it| it.client_id == application.app_id && it.tenant == *tenant);
        same_ids && secret.has_certificate(certificate)
    }

    /// Whether the vault has a newer certificate than the secret, which happens when the vault renewed it or a
    /// rotation was interrupted.
    pub(crate) fn has_newer_certificate(&self) -> bool {
        match (&self.certificate, &self.secret) {
            (Some(certificate), Some(secret)) => !secret.has_certificate(certificate),
            _ => false,
        }
    }

    /// Whether the credential in the secret should be replaced.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let credential = self.secret.as_ref().and_then(|secret| secret.credential.as_ref());
        credential.is_none_or(|it| it.renew_after <= now) || self.has_newer_certificate()
    }

    /// The certificates that the application no longer needs: earlier versions of the vault's certificate, if
    /// the secret has contained the newest one for longer than `overlap`. `versions` are the SHA-1 thumbprints of
    /// all versions.
    ///
    /// Certificates that others added to the application stay.
    pub(crate) fn retired_certificates(
        &self,
        versions: &[Vec<u8>],
        overlap: Duration,
        now: Timestamp,
    ) -> Vec<GraphKeyCredential> {
        let (Some(application), Some(certificate), Some(secret)) =
            (&self.application, &self.certificate, &self.secret)
        else {
            return Vec::new();
        };
        let is_over = secret.created.checked_add(overlap).is_ok_and(|end| end <= now);
        if !is_over || !secret.has_certificate(certificate) || !self.is_registered() {
            return Vec::new();
        }
        let is_earlier_version = |credential: &&GraphKeyCredential| {
            credential.certificate().is_some_and(|der| {
                let thumbprint = Thumbprint::sha1_of(&der);
                der != certificate.der && versions.iter().any(|it| it == thumbprint.as_bytes())
            })
        };
        application.key_credentials.iter().filter(is_earlier_version).cloned().collect()
    }
}

/// Whether the application accepts this certificate (DER).
pub(crate) fn accepts(application: &GraphApplication, certificate: &[u8]) -> bool {
    let mut credentials = application.key_credentials.iter();
    credentials.any(|it| it.certificate().as_deref() == Some(certificate))
}
