//! Creates, rotates and deletes service principals.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_azure::{
    AzureCallError, GraphApplication, GraphApplicationBody, GraphClient, GraphKeyCredential,
    PropagationWait,
};
use lanyard_clock::SharedClock;
use lanyard_credential::identity::Authority;
use lanyard_vocabulary::{Component, EntraClientId, EntraTenantId, SecretName};
use uuid::Uuid;

use crate::credential_json::{CredentialOwner, credential_json};
use crate::credential_times::CredentialTimes;
use crate::credential_vault::{CredentialVault, Deletion, VaultCertificate};
use crate::error::ServicePrincipalError;
use crate::live_state::{LiveServicePrincipal, StoredDocument, accepts};
use crate::names::{EnvironmentPrefix, ServicePrincipalNames, is_optional};
use crate::token_proof::TokenProof;

/// The tag of certificates and secrets that lanyard created, with the prefix of their environment.
const PREFIX_TAG: &str = "lanyard-prefix";

/// Creates, rotates and deletes the service principals of one environment. Every call starts from the live
/// state, so an interrupted one is continued by the next.
#[derive(Debug, Clone)]
pub struct ServicePrincipalClient {
    /// The client of Microsoft Graph.
    pub graph: GraphClient,
    /// The vault.
    pub vault: CredentialVault,
    /// Requests tokens with new certificates.
    pub proof: TokenProof,
    /// The environment.
    pub prefix: EnvironmentPrefix,
    /// The tenant.
    pub tenant: EntraTenantId,
    /// The token service of the tenant.
    pub authority: Authority,
    /// The clock.
    pub clock: SharedClock,
    /// How long requests are repeated until Microsoft Graph knows a new object everywhere.
    pub propagation: PropagationWait,
}

/// A change of one service principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServicePrincipalEvent<'a> {
    /// The name of the service principal.
    pub name: &'a SecretName,
    /// What was changed.
    pub step: ServicePrincipalStep,
}

/// What was changed. Displays as a clause, such as `created the application`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServicePrincipalStep {
    /// The application was created.
    ApplicationCreated,
    /// The service principal of the application was created.
    PrincipalCreated,
    /// The vault issued a certificate.
    CertificateCreated,
    /// The application accepts the certificate.
    CertificateRegistered,
    /// Entra ID issued a token for the certificate.
    TokenIssued,
    /// The secret contains the certificate.
    DocumentWritten,
    /// The application no longer accepts earlier certificates.
    CertificatesRetired,
    /// The application was deleted.
    ApplicationDeleted,
    /// The certificate was deleted.
    CertificateDeleted,
    /// The secret was deleted.
    DocumentDeleted,
}

impl std::fmt::Display for ServicePrincipalStep {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::ApplicationCreated => "created the application",
            Self::PrincipalCreated => "created the service principal",
            Self::CertificateCreated => "created a certificate in the vault",
            Self::CertificateRegistered => "added the certificate to the application",
            Self::TokenIssued => "got a token with the certificate",
            Self::DocumentWritten => "wrote the credential to the vault",
            Self::CertificatesRetired => "removed earlier certificates from the application",
            Self::ApplicationDeleted => "deleted the application",
            Self::CertificateDeleted => "deleted the certificate in the vault",
            Self::DocumentDeleted => "deleted the credential in the vault",
        })
    }
}

/// Receives the changes as they happen.
type Observer<'a> = &'a (dyn Fn(ServicePrincipalEvent<'_>) + Sync);

/// A complete service principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedServicePrincipal {
    /// The component.
    pub component: Component,
    /// The client id.
    pub client_id: EntraClientId,
    /// The object id of the service principal, which role assignments name.
    pub object_id: Uuid,
    /// The name of the certificate, which is that of the service principal.
    pub name: SecretName,
    /// The name of the secret with the credential document.
    pub secret: SecretName,
    /// The time from which the credential should be replaced.
    pub renew_after: Timestamp,
    /// The end of the credential's validity.
    pub not_after: Timestamp,
}

/// When certificates are replaced and retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationOptions {
    /// Whether a certificate is replaced only if it is due: at its `renew_after`, or if the vault has a newer one.
    pub only_due: bool,
    /// How long the application accepts the earlier certificate after the secret has the new one. Every component
    /// must read the new secret in this time.
    pub overlap: Duration,
    /// Whether the call waits for the overlap and then retires the earlier certificate. If not, the next call
    /// after the overlap retires it.
    pub wait: bool,
}

/// What lanyard created of a service principal and exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedObjects {
    /// The object id of the application.
    pub application: Option<Uuid>,
    /// Whether there is a certificate.
    pub certificate: bool,
    /// Whether there is a secret.
    pub secret: bool,
}

/// The objects of a service principal that all exist.
struct CompleteServicePrincipal {
    application: GraphApplication,
    object_id: Uuid,
    certificate: VaultCertificate,
}

impl CompleteServicePrincipal {
    fn times(&self) -> CredentialTimes {
        CredentialTimes::of_certificate(self.certificate.not_before, self.certificate.not_after)
    }

    fn result(&self, names: &ServicePrincipalNames) -> CreatedServicePrincipal {
        let times = self.times();
        CreatedServicePrincipal {
            component: names.component,
            client_id: self.application.app_id,
            object_id: self.object_id,
            name: names.name.clone(),
            secret: names.secret.clone(),
            renew_after: times.renew_after,
            not_after: times.not_after,
        }
    }
}

type StepResult<T> = Result<T, ServicePrincipalError>;

impl ServicePrincipalClient {
    /// Creates what is missing of a service principal. Writes nothing if it is complete.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first step that fails. What was created stays, and the next call
    /// continues.
    pub async fn create(
        &self,
        names: &ServicePrincipalNames,
        observer: Observer<'_>,
    ) -> StepResult<CreatedServicePrincipal> {
        let live = self.read(names).await?;
        let is_current = live.is_registered() && live.is_document_current(&self.tenant);
        let secret_tags = self.tags(live.secret.as_ref().map(|secret| &secret.tags));
        let application = match live.application {
            Some(application) => application,
            None => self.create_application(names, observer).await?,
        };
        let object_id = match live.object_id {
            Some(object_id) => object_id,
            None => self.create_principal(names, application.app_id, observer).await?,
        };
        let certificate = match live.certificate {
            Some(certificate) => certificate,
            None => self.create_certificate(names, self.tags(None), observer).await?,
        };
        let complete = CompleteServicePrincipal { application, object_id, certificate };
        if !is_current {
            self.deploy(names, &complete, secret_tags, observer).await?;
        }
        Ok(complete.result(names))
    }

    /// Replaces the certificate of a service principal: new certificate, application, proof by a token, secret,
    /// and after the overlap the application drops the earlier certificate. At every moment, the application
    /// accepts the certificate in the secret.
    ///
    /// A certificate that the vault renewed, or an interrupted rotation left, is used instead of a new one.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first step that fails; the earlier certificate keeps working.
    pub async fn rotate(
        &self,
        names: &ServicePrincipalNames,
        options: RotationOptions,
        observer: Observer<'_>,
    ) -> StepResult<CreatedServicePrincipal> {
        let mut live = self.read(names).await?;
        let mut overlap = options.overlap;
        if !options.only_due || live.is_due(self.clock.now()) {
            self.replace_certificate(names, live, observer).await?;
            if options.wait {
                self.clock.sleep(overlap).await;
                overlap = Duration::ZERO;
            }
            live = self.read(names).await?;
        }
        self.retire(names, &live, overlap, observer).await?;
        Ok(complete(names, live)?.result(names))
    }

    /// Makes the application and the secret use a certificate that the secret does not have.
    async fn replace_certificate(
        &self,
        names: &ServicePrincipalNames,
        live: LiveServicePrincipal,
        observer: Observer<'_>,
    ) -> StepResult<()> {
        let has_newer = live.has_newer_certificate();
        let secret_tags = self.tags(live.secret.as_ref().map(|secret| &secret.tags));
        let mut complete = complete(names, live)?;
        if !has_newer {
            let tags = self.tags(Some(&complete.certificate.tags));
            complete.certificate = self.create_certificate(names, tags, observer).await?;
        }
        self.deploy(names, &complete, secret_tags, observer).await
    }

    /// The service principals without the optional ones of which nothing exists. An optional one that cannot be
    /// read stays.
    pub async fn existing(&self, names: &[ServicePrincipalNames]) -> Vec<ServicePrincipalNames> {
        let mut existing = Vec::with_capacity(names.len());
        for names in names {
            let is_missing = is_optional(names.component)
                && self.read(names).await.is_ok_and(|live| live.is_empty());
            if !is_missing {
                existing.push(names.clone());
            }
        }
        existing
    }

    /// What lanyard created of a service principal: the application with the unique name, and the certificate and
    /// the secret with lanyard's tag. Sends GET requests only.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first request that fails.
    pub async fn find_created(&self, names: &ServicePrincipalNames) -> StepResult<CreatedObjects> {
        let application = self.graph.application_by_unique_name(names.name.as_str()).await;
        let application =
            application.map_err(|source| graph_error("reading the application", names, source))?;
        let is_ours = |tags: &HashMap<String, String>| {
            tags.get(PREFIX_TAG).is_some_and(|prefix| *prefix == self.prefix.to_string())
        };
        let certificate = self.vault.certificate(&names.name).await?;
        let secret = self.vault.secret(&names.secret).await?;
        Ok(CreatedObjects {
            application: application.map(|it| it.id),
            certificate: certificate.is_some_and(|it| is_ours(&it.tags)),
            secret: secret.is_some_and(|it| is_ours(&it.tags)),
        })
    }

    /// Deletes what [`find_created`](Self::find_created) found. `purge` deletes it permanently; otherwise Entra ID
    /// keeps the application for 30 days, and the vault its objects for its retention.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first deletion that fails; the next call continues.
    pub async fn delete(
        &self,
        names: &ServicePrincipalNames,
        objects: CreatedObjects,
        purge: bool,
        observer: Observer<'_>,
    ) -> StepResult<()> {
        let deletion = if purge { Deletion::Permanent } else { Deletion::Recoverable };
        let report = |step| observer(ServicePrincipalEvent { name: &names.name, step });
        if let Some(application) = objects.application {
            let failed = |source| graph_error("deleting the application", names, source);
            self.graph.delete_application(application).await.map_err(failed)?;
            if purge {
                self.graph.purge_deleted_object(application).await.map_err(failed)?;
            }
            report(ServicePrincipalStep::ApplicationDeleted);
        }
        if objects.secret {
            self.vault.delete_secret(&names.secret, deletion).await?;
            report(ServicePrincipalStep::DocumentDeleted);
        }
        if objects.certificate {
            self.vault.delete_certificate(&names.name, deletion).await?;
            report(ServicePrincipalStep::CertificateDeleted);
        }
        Ok(())
    }

    async fn read(&self, names: &ServicePrincipalNames) -> StepResult<LiveServicePrincipal> {
        let application = self.find_application(names).await?;
        let object_id = match &application {
            None => None,
            Some(application) => {
                let found = self.graph.service_principal_object_id(application.app_id).await;
                found
                    .map_err(|source| graph_error("reading the service principal", names, source))?
            }
        };
        Ok(LiveServicePrincipal {
            application,
            object_id,
            certificate: self.vault.certificate(&names.name).await?,
            secret: self.vault.secret(&names.secret).await?.as_ref().map(StoredDocument::parse),
        })
    }

    /// The application with the unique name, or the only one with the display name, as HyperShift's script
    /// created it.
    async fn find_application(
        &self,
        names: &ServicePrincipalNames,
    ) -> StepResult<Option<GraphApplication>> {
        let failed = |source| graph_error("reading the application", names, source);
        let name = names.name.as_str();
        if let Some(found) = self.graph.application_by_unique_name(name).await.map_err(failed)? {
            return Ok(Some(found));
        }
        let same_name = self.graph.applications_by_display_name(name).await.map_err(failed)?;
        match same_name.as_slice() {
            [] => Ok(None),
            // Lists do not contain the certificates.
            [one] => self.graph.application(one.id).await.map_err(failed),
            several => Err(ServicePrincipalError::SeveralApplications {
                name: name.to_owned(),
                count: several.len(),
            }),
        }
    }

    async fn create_application(
        &self,
        names: &ServicePrincipalNames,
        observer: Observer<'_>,
    ) -> StepResult<GraphApplication> {
        let name = names.name.as_str();
        let body = GraphApplicationBody::new(name);
        let create = || self.graph.upsert_application(name, &body);
        let created = self.propagation.repeat(create, is_unknown_object).await;
        let application =
            created.map_err(|source| graph_error("creating the application", names, source))?;
        let step = ServicePrincipalStep::ApplicationCreated;
        observer(ServicePrincipalEvent { name: &names.name, step });
        Ok(application)
    }

    async fn create_principal(
        &self,
        names: &ServicePrincipalNames,
        app_id: EntraClientId,
        observer: Observer<'_>,
    ) -> StepResult<Uuid> {
        let create = || self.graph.upsert_service_principal(app_id);
        // Graph answers so until it knows the new application everywhere.
        let is_temporary = |error: &AzureCallError| matches!(error.status(), Some(400 | 403 | 404));
        let created = self.propagation.repeat(create, is_temporary).await;
        let principal = created
            .map_err(|source| graph_error("creating the service principal", names, source))?;
        let step = ServicePrincipalStep::PrincipalCreated;
        observer(ServicePrincipalEvent { name: &names.name, step });
        Ok(principal.id)
    }

    async fn create_certificate(
        &self,
        names: &ServicePrincipalNames,
        tags: HashMap<String, String>,
        observer: Observer<'_>,
    ) -> StepResult<VaultCertificate> {
        let certificate = self.vault.create_certificate(&names.name, tags).await?;
        let step = ServicePrincipalStep::CertificateCreated;
        observer(ServicePrincipalEvent { name: &names.name, step });
        Ok(certificate)
    }

    /// Adds the certificate to the application, proves it by a token, and writes the secret.
    async fn deploy(
        &self,
        names: &ServicePrincipalNames,
        complete: &CompleteServicePrincipal,
        tags: HashMap<String, String>,
        observer: Observer<'_>,
    ) -> StepResult<()> {
        let report = |step| observer(ServicePrincipalEvent { name: &names.name, step });
        let CompleteServicePrincipal { application, object_id, certificate } = complete;
        if !accepts(application, &certificate.der) {
            self.register(names, application, certificate).await?;
            report(ServicePrincipalStep::CertificateRegistered);
        }
        let secret = self.vault.certificate_secret(&names.name, &certificate.version).await?;
        let owner = CredentialOwner {
            client_id: application.app_id,
            object_id: *object_id,
            tenant: &self.tenant,
            authority: self.authority.as_url().as_str(),
        };
        let document = credential_json(owner, &secret, complete.times());
        self.proof.request_token(names.name.as_str(), &document).await?;
        report(ServicePrincipalStep::TokenIssued);
        self.vault.write_document(&names.secret, &document, complete.times(), tags).await?;
        report(ServicePrincipalStep::DocumentWritten);
        Ok(())
    }

    /// Adds the certificate to the application, and reads it back.
    async fn register(
        &self,
        names: &ServicePrincipalNames,
        application: &GraphApplication,
        certificate: &VaultCertificate,
    ) -> StepResult<()> {
        let credential = GraphKeyCredential::of_certificate(
            &certificate.der,
            Uuid::new_v4(),
            format!("CN={}", names.name),
            (certificate.not_before, certificate.not_after),
        );
        let mut credentials = application.key_credentials.clone();
        credentials.push(credential);
        let failed = |source| graph_error("adding the certificate", names, source);
        let replace = || self.graph.replace_key_credentials(application.id, &credentials);
        self.propagation.repeat(replace, is_unknown_object).await.map_err(failed)?;
        let read = || async {
            let found = self.graph.application(application.id).await.map_err(failed)?;
            match found {
                Some(found) if accepts(&found, &certificate.der) => Ok(()),
                _ => Err(ServicePrincipalError::NotRegistered { name: names.name.to_string() }),
            }
        };
        let is_temporary = |error: &ServicePrincipalError| {
            matches!(error, ServicePrincipalError::NotRegistered { .. })
        };
        self.propagation.repeat(read, is_temporary).await
    }

    /// Removes earlier certificates from the application.
    async fn retire(
        &self,
        names: &ServicePrincipalNames,
        live: &LiveServicePrincipal,
        overlap: Duration,
        observer: Observer<'_>,
    ) -> StepResult<()> {
        let Some(application) = &live.application else { return Ok(()) };
        if application.key_credentials.len() < 2 {
            return Ok(());
        }
        let versions = self.vault.certificate_thumbprints(&names.name).await?;
        let retired = live.retired_certificates(&versions, overlap, self.clock.now());
        if retired.is_empty() {
            return Ok(());
        }
        let all = application.key_credentials.iter();
        let remaining: Vec<_> = all.filter(|it| !retired.contains(it)).cloned().collect();
        let replaced = self.graph.replace_key_credentials(application.id, &remaining).await;
        replaced.map_err(|source| graph_error("removing earlier certificates", names, source))?;
        let step = ServicePrincipalStep::CertificatesRetired;
        observer(ServicePrincipalEvent { name: &names.name, step });
        Ok(())
    }

    /// The tags of a new version: those of the earlier version, or that of lanyard for a new object. So the tag
    /// shows who created the object.
    fn tags(&self, existing: Option<&HashMap<String, String>>) -> HashMap<String, String> {
        let new = || HashMap::from([(PREFIX_TAG.to_owned(), self.prefix.to_string())]);
        existing.cloned().unwrap_or_else(new)
    }
}

/// The service principal with everything that a rotation needs.
fn complete(
    names: &ServicePrincipalNames,
    live: LiveServicePrincipal,
) -> StepResult<CompleteServicePrincipal> {
    let incomplete = |missing| {
        let name = names.name.to_string();
        ServicePrincipalError::Incomplete { name, missing }
    };
    Ok(CompleteServicePrincipal {
        application: live.application.ok_or_else(|| incomplete("application"))?,
        object_id: live.object_id.ok_or_else(|| incomplete("service principal"))?,
        certificate: live.certificate.ok_or_else(|| incomplete("certificate in the vault"))?,
    })
}

fn is_unknown_object(error: &AzureCallError) -> bool {
    error.status() == Some(404)
}

fn graph_error(
    operation: &'static str,
    names: &ServicePrincipalNames,
    source: AzureCallError,
) -> ServicePrincipalError {
    let name = names.name.to_string();
    ServicePrincipalError::Graph { operation, name, source: Box::new(source) }
}
