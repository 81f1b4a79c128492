//! Creates, rotates and deletes service principals.

mod registration;
mod removal;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use lanyard_azure::{AzureCallError, GraphApplication, GraphClient, PropagationWait};
use lanyard_clock::SharedClock;
use lanyard_credential::identity::Authority;
use lanyard_vocabulary::{Component, EntraClientId, EntraTenantId, SecretName};
use uuid::Uuid;

pub use self::removal::{CreatedObjects, Deletion, VaultObjectState};
use crate::credential_json::{CredentialOwner, credential_json};
use crate::credential_vault::{CredentialVault, VaultCertificate};
use crate::error::ServicePrincipalError;
use crate::live_state::{DueWork, LiveServicePrincipal, StoredDocument};
use crate::names::{EnvironmentPrefix, ServicePrincipalNames, is_optional};
use crate::token_proof::TokenProof;

/// The tag of certificates and secrets that lanyard created, with the prefix of their environment.
const PREFIX_TAG: &str = "lanyard-prefix";

/// Creates, rotates and deletes the service principals of one environment. Every call starts from the live
/// state, so an interrupted one is continued by the next.
///
/// Neither Microsoft Graph nor the vault has conditional writes, so two calls that write must not run at the same time
/// for the same service principal. The caller holds a lock of the environment.
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

/// Receives the changes of a service principal as they happen, each as a clause such as `deleted the application`.
pub type ChangeObserver<'a> = &'a (dyn Fn(&'static str) + Sync);

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
    /// The version of the certificate in the vault.
    pub certificate_version: String,
}

/// When certificates are replaced and retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationOptions {
    /// Whether a certificate is replaced only if it is due: at its `renew_after`, or if the vault has a newer one.
    /// A certificate that is not due, and that the application does not accept, is added to the application again.
    pub only_due: bool,
    /// How long the application accepts the earlier certificate after the secret has the new one. Every component
    /// must read the new secret in this time. The first call after it retires the earlier certificate.
    pub overlap: Duration,
}

/// The objects of a service principal that all exist.
struct CompleteServicePrincipal {
    application: GraphApplication,
    object_id: Uuid,
    certificate: VaultCertificate,
    /// The secret, which may be missing or outdated.
    secret: Option<StoredDocument>,
}

impl CompleteServicePrincipal {
    fn result(&self, names: &ServicePrincipalNames) -> CreatedServicePrincipal {
        let times = self.certificate.public.times();
        CreatedServicePrincipal {
            component: names.component,
            client_id: self.application.app_id,
            object_id: self.object_id,
            name: names.name.clone(),
            secret: names.secret.clone(),
            renew_after: times.renew_after,
            not_after: times.not_after,
            certificate_version: self.certificate.version.clone(),
        }
    }
}

type StepResult<T> = Result<T, ServicePrincipalError>;

impl ServicePrincipalClient {
    /// Creates the credential of an application with a service principal. Writes nothing if it is complete.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first step that fails. What was created stays, and the next call
    /// continues.
    pub async fn create(
        &self,
        names: &ServicePrincipalNames,
        observer: ChangeObserver<'_>,
    ) -> StepResult<CreatedServicePrincipal> {
        let read = || async {
            let live = self.read(names).await?;
            if live.object_id.is_some() {
                return Ok(live);
            }
            // The engine does not know the applications of HyperShift's script.
            let script = live.application.filter(|it| it.unique_name.is_none());
            if let Some(application) = script {
                let created = self.graph.upsert_service_principal(application.app_id).await;
                created.map_err(|source| {
                    graph_error("creating the service principal", names, source)
                })?;
                observer("created the service principal");
            }
            Err(incomplete(names, "complete application"))
        };
        // Graph does not know a new application everywhere yet.
        let is_incomplete = |error: &_| matches!(error, ServicePrincipalError::Incomplete { .. });
        let mut live = self.propagation.repeat(read, is_incomplete).await?;
        let is_current = live.is_registered() && live.is_document_current(&self.tenant);
        if live.certificate.is_none() {
            let created = self.create_certificate(names, self.tags(None), observer).await?;
            live.certificate = Some(created);
        }
        let complete = complete(names, live)?;
        if !is_current {
            self.deploy(names, &complete, observer).await?;
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
        observer: ChangeObserver<'_>,
    ) -> StepResult<CreatedServicePrincipal> {
        let mut live = self.read(names).await?;
        let due = live.due_work(self.clock.now());
        let work = if options.only_due { due } else { DueWork::Replacement };
        match work {
            DueWork::Nothing => {}
            DueWork::Registration => {
                self.register_used_certificate(names, &live, observer).await?;
                live = self.read(names).await?;
            }
            DueWork::Replacement => {
                self.replace_certificate(names, live, observer).await?;
                live = self.read(names).await?;
            }
        }
        self.retire(names, &live, options.overlap, observer).await?;
        Ok(complete(names, live)?.result(names))
    }

    /// Ends a rotation when its overlap has passed: the application drops the certificates before that of `rotated`.
    /// If another call has replaced the certificate since, the overlap of that one counts.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] of the first step that fails; both certificates keep working.
    pub async fn finish_rotation(
        &self,
        names: &ServicePrincipalNames,
        rotated: &CreatedServicePrincipal,
        overlap: Duration,
        observer: ChangeObserver<'_>,
    ) -> StepResult<CreatedServicePrincipal> {
        let live = self.read(names).await?;
        let version = live.certificate.as_ref().map(|it| it.version.as_str());
        let is_newest = version == Some(rotated.certificate_version.as_str());
        let overlap = if is_newest { Duration::ZERO } else { overlap };
        self.retire(names, &live, overlap, observer).await?;
        Ok(complete(names, live)?.result(names))
    }

    /// Makes the application and the secret use a certificate that the secret does not have.
    async fn replace_certificate(
        &self,
        names: &ServicePrincipalNames,
        live: LiveServicePrincipal,
        observer: ChangeObserver<'_>,
    ) -> StepResult<()> {
        let has_newer = live.has_newer_certificate();
        let mut complete = complete(names, live)?;
        if !has_newer {
            let tags = self.tags(Some(&complete.certificate.tags));
            complete.certificate = self.create_certificate(names, tags, observer).await?;
        }
        self.deploy(names, &complete, observer).await
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

    /// Whether the application has its unique name, or does not exist. An application that HyperShift's script created
    /// only has the display name.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`] if the application cannot be read.
    pub async fn uses_unique_name(&self, names: &ServicePrincipalNames) -> StepResult<bool> {
        let found = self.find_application(names).await?;
        Ok(found.is_none_or(|it| it.unique_name.is_some()))
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

    async fn create_certificate(
        &self,
        names: &ServicePrincipalNames,
        tags: HashMap<String, String>,
        observer: ChangeObserver<'_>,
    ) -> StepResult<VaultCertificate> {
        let certificate = self.vault.create_certificate(&names.name, tags).await?;
        observer("created a certificate in the vault");
        Ok(certificate)
    }

    /// Adds the certificate to the application, proves it by a token, writes the secret, and checks that the
    /// application still accepts the certificate.
    async fn deploy(
        &self,
        names: &ServicePrincipalNames,
        complete: &CompleteServicePrincipal,
        observer: ChangeObserver<'_>,
    ) -> StepResult<()> {
        let CompleteServicePrincipal { application, object_id, certificate, secret } = complete;
        // Components use the earlier certificate until they read the new secret. A certificate that the application does
        // not accept is not added again, because an operator may have revoked it.
        let now = self.clock.now();
        let used = secret.as_ref().and_then(|it| it.usable_certificate(application, now));
        let used = used.filter(|it| it.is_accepted_by(application));
        let wanted: Vec<_> = [Some(&certificate.public), used].into_iter().flatten().collect();
        if self.register(names, application.id, &wanted).await? {
            observer("added the certificate to the application");
        }
        let key = self.vault.certificate_secret(&names.name, &certificate.version).await?;
        let owner = CredentialOwner {
            client_id: application.app_id,
            object_id: *object_id,
            tenant: &self.tenant,
            authority: self.authority.as_url().as_str(),
        };
        let times = certificate.public.times();
        let document = credential_json(owner, &key, times);
        self.proof.request_token(names.name.as_str(), &document).await?;
        observer("got a token with the certificate");
        let tags = self.tags(secret.as_ref().map(|it| &it.tags));
        self.vault.write_document(&names.secret, &document, times, tags).await?;
        observer("wrote the credential to the vault");
        self.prove_registration(names, application.id, &[&certificate.public]).await
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
    let incomplete = |missing| incomplete(names, missing);
    Ok(CompleteServicePrincipal {
        application: live.application.ok_or_else(|| incomplete("application"))?,
        object_id: live.object_id.ok_or_else(|| incomplete("service principal"))?,
        certificate: live.certificate.ok_or_else(|| incomplete("certificate in the vault"))?,
        secret: live.secret,
    })
}

fn incomplete(names: &ServicePrincipalNames, missing: &'static str) -> ServicePrincipalError {
    ServicePrincipalError::Incomplete { name: names.name.to_string(), missing }
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
