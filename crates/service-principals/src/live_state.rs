//! What exists of a service principal, and what is missing. Does no I/O.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_azure::{GraphApplication, GraphKeyCredential};
use lanyard_credential::bundle::{CertificateBundle, Thumbprint};
use lanyard_credential::document::CredentialDocument;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use uuid::Uuid;

use crate::credential_vault::{VaultCertificate, VaultSecret};
use crate::public_certificate::PublicCertificate;

/// The live objects of one service principal.
pub(crate) struct LiveServicePrincipal {
    pub(crate) application: Option<GraphApplication>,
    /// The object id of the service principal.
    pub(crate) object_id: Option<Uuid>,
    pub(crate) certificate: Option<VaultCertificate>,
    pub(crate) secret: Option<StoredDocument>,
}

/// What must be done for a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DueWork {
    /// The credential works and is not due.
    Nothing,
    /// The application does not accept the certificate in the secret, which is otherwise good.
    Registration,
    /// The secret needs another certificate: it is due, cannot be used, or the vault has a newer one.
    Replacement,
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
    pub(crate) certificate: PublicCertificate,
    pub(crate) renew_after: Timestamp,
}

impl StoredDocument {
    pub(crate) fn parse(secret: &VaultSecret) -> Self {
        let credential = parse_credential(secret.value.as_bytes());
        Self { created: secret.created, tags: secret.tags.clone(), credential }
    }

    /// The certificate that a component with this document signs with. `None` if the document is that of another
    /// application, or the certificate has expired.
    pub(crate) fn usable_certificate(
        &self,
        application: &GraphApplication,
        now: Timestamp,
    ) -> Option<&PublicCertificate> {
        let credential = self.credential.as_ref()?;
        let is_usable =
            credential.client_id == application.app_id && credential.certificate.not_after > now;
        is_usable.then_some(&credential.certificate)
    }

    /// Whether the document contains this certificate.
    fn has_certificate(&self, certificate: &VaultCertificate) -> bool {
        self.credential.as_ref().is_some_and(|it| it.certificate.der == certificate.public.der)
    }
}

fn parse_credential(document: &[u8]) -> Option<StoredCredential> {
    let document = CredentialDocument::parse(document).ok()?;
    let bundle = CertificateBundle::parse(document.client_secret()).ok()?;
    let leaf = bundle.leaf();
    let validity = leaf.validity();
    let certificate = PublicCertificate {
        der: leaf.der().to_vec(),
        not_before: validity.not_before,
        not_after: validity.not_after,
    };
    // HyperShift's scripts write no `renew_after`.
    let renew_after = document.timestamps().renew_after.unwrap_or(certificate.times().renew_after);
    Some(StoredCredential {
        client_id: document.client_id().as_str().parse().ok()?,
        tenant: document.tenant_id().as_str().parse().ok()?,
        certificate,
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
            (Some(application), Some(certificate)) => {
                certificate.public.is_accepted_by(application)
            }
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

    /// What must be done so that the component has a credential that works and is not due.
    pub(crate) fn due_work(&self, now: Timestamp) -> DueWork {
        let (Some(application), Some(secret)) = (&self.application, &self.secret) else {
            return DueWork::Replacement;
        };
        let is_due = secret.credential.as_ref().is_none_or(|it| it.renew_after <= now);
        match secret.usable_certificate(application, now) {
            Some(used) if !is_due && !self.has_newer_certificate() => {
                if used.is_accepted_by(application) {
                    DueWork::Nothing
                } else {
                    DueWork::Registration
                }
            }
            _ => DueWork::Replacement,
        }
    }

    /// The certificates of `application` that no component needs any more: earlier versions of the vault's
    /// certificate, if the secret has contained the newest one for longer than `overlap` and the application accepts
    /// that one. `versions` are the SHA-1 thumbprints of all versions.
    ///
    /// Certificates that others added to the application stay.
    pub(crate) fn retired_certificates(
        &self,
        application: &GraphApplication,
        versions: &[Vec<u8>],
        overlap: Duration,
        now: Timestamp,
    ) -> Vec<GraphKeyCredential> {
        let (Some(certificate), Some(secret)) = (&self.certificate, &self.secret) else {
            return Vec::new();
        };
        let is_over = secret.created.checked_add(overlap).is_ok_and(|end| end <= now);
        let is_in_use = secret.has_certificate(certificate)
            && secret.usable_certificate(application, now).is_some()
            && certificate.public.is_accepted_by(application);
        if !is_over || !is_in_use {
            return Vec::new();
        }
        let is_earlier_version = |credential: &&GraphKeyCredential| {
            credential.certificate().is_some_and(|der| {
                let thumbprint = Thumbprint::sha1_of(&der);
                der != certificate.public.der
                    && versions.iter().any(|it| it == thumbprint.as_bytes())
            })
        };
        application.key_credentials.iter().filter(is_earlier_version).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-06-01T00:00:00Z";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn client_id(number: u128) -> EntraClientId {
        Uuid::from_u128(number).to_string().parse().unwrap()
    }

    /// A certificate whose DER is one byte.
    fn certificate(number: u8) -> PublicCertificate {
        let not_after = if number == EXPIRED { NOW } else { "2027-01-01T00:00:00Z" };
        PublicCertificate {
            der: vec![number],
            not_before: time("2026-01-01T00:00:00Z"),
            not_after: time(not_after),
        }
    }

    const EXPIRED: u8 = 99;

    fn application(accepted: &[u8]) -> GraphApplication {
        let name = "cpo-dev".parse().unwrap();
        let credentials = accepted.iter().map(|it| (it, certificate(*it)));
        GraphApplication {
            id: Uuid::from_u128(1),
            app_id: client_id(1),
            display_name: None,
            unique_name: None,
            tags: Vec::new(),
            key_credentials: credentials
                .map(|(number, it)| it.to_key_credential(&name, Uuid::from_u128((*number).into())))
                .collect(),
        }
    }

    /// A service principal whose application accepts some certificates, and whose vault and secret have one each.
    fn live(accepted: &[u8], newest: u8, stored: u8) -> LiveServicePrincipal {
        LiveServicePrincipal {
            application: Some(application(accepted)),
            object_id: Some(Uuid::from_u128(2)),
            certificate: Some(VaultCertificate {
                public: certificate(newest),
                version: newest.to_string(),
                tags: HashMap::new(),
            }),
            secret: Some(StoredDocument {
                created: time("2026-05-31T00:00:00Z"),
                tags: HashMap::new(),
                credential: Some(StoredCredential {
                    client_id: client_id(1),
                    tenant: Uuid::from_u128(3).to_string().parse().unwrap(),
                    certificate: certificate(stored),
                    renew_after: time("2026-10-01T00:00:00Z"),
                }),
            }),
        }
    }

    #[test]
    fn credential_that_the_application_does_not_accept_is_due() {
        let work = |live: &LiveServicePrincipal| live.due_work(time(NOW));
        assert_eq!(work(&live(&[1], 1, 1)), DueWork::Nothing);
        assert_eq!(work(&live(&[1, 2], 2, 1)), DueWork::Replacement);
        for accepted in [&[][..], &[2], &[2, 3]] {
            assert_eq!(work(&live(accepted, 1, 1)), DueWork::Registration, "{accepted:?}");
        }
        assert_eq!(work(&live(&[], EXPIRED, EXPIRED)), DueWork::Replacement);
        let mut other = live(&[1], 1, 1);
        other.application.as_mut().unwrap().app_id = client_id(7);
        assert_eq!(work(&other), DueWork::Replacement);
        let due = live(&[1], 1, 1).due_work(time("2026-10-01T00:00:00Z"));
        assert_eq!(due, DueWork::Replacement);
        assert_eq!(work(&LiveServicePrincipal { secret: None, ..live(&[1], 1, 1) }), due);
    }

    #[test]
    fn certificate_in_the_secret_is_never_retired() {
        let versions = [1, 2, 3].map(|it: u8| Thumbprint::sha1_of(&[it]).as_bytes().to_vec());
        for (accepted, newest, stored, expected) in [
            (&[1, 2, 7][..], 2, 2, &[1][..]),
            (&[1, 2, 3], 3, 3, &[1, 2]),
            // A rotation was interrupted before it wrote the secret.
            (&[1, 2], 2, 1, &[]),
            // The application does not accept the certificate in the secret.
            (&[1], 2, 2, &[]),
            (&[1, 3], 2, 2, &[]),
        ] {
            let live = live(accepted, newest, stored);
            let retired = |hours| {
                let overlap = Duration::from_hours(hours);
                let found = &application(accepted);
                let retired = live.retired_certificates(found, &versions, overlap, time(NOW));
                retired.iter().map(|it| it.certificate().unwrap()[0]).collect::<Vec<_>>()
            };
            assert_eq!(retired(24), expected, "{accepted:?} {newest} {stored}");
            assert_eq!(retired(25), [0; 0], "{accepted:?} {newest} {stored}");
        }
    }
}
