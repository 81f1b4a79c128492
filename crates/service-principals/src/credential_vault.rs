//! The certificates and secrets of an environment in its Key Vault.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::poller::PollerOptions;
use azure_core::http::{ClientOptions, StatusCode};
use azure_core::time::{Duration, OffsetDateTime};
use azure_security_keyvault_certificates::models::{
    Certificate, CertificateClientCreateCertificateOptions,
};
use azure_security_keyvault_certificates::{CertificateClient, CertificateClientOptions};
use azure_security_keyvault_secrets::models::{
    SecretAttributes, SecretClientGetSecretOptions, SetSecretParameters,
};
use azure_security_keyvault_secrets::{SecretClient, SecretClientOptions};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use lanyard_azure::PropagationWait;
use lanyard_azure::error_codes::{KEY_VAULT, is_missing_permission};
use lanyard_vocabulary::SecretName;
use zeroize::Zeroizing;

use crate::credential_json::CertificateSecret;
use crate::credential_times::CredentialTimes;
use crate::error::ServicePrincipalError;
use crate::public_certificate::PublicCertificate;

/// A Key Vault with the certificates and secrets of an environment.
#[derive(Clone)]
pub struct CredentialVault {
    certificates: Arc<CertificateClient>,
    secrets: Arc<SecretClient>,
    propagation: PropagationWait,
}

/// The data actions at the vault that [`create`](crate::ServicePrincipalClient::create) and
/// [`rotate`](crate::ServicePrincipalClient::rotate) need.
pub const VAULT_WRITE_ACTIONS: &[&str] = &[
    "Microsoft.KeyVault/vaults/certificates/create/action",
    "Microsoft.KeyVault/vaults/certificates/read",
    "Microsoft.KeyVault/vaults/certificates/recover/action",
    "Microsoft.KeyVault/vaults/secrets/getSecret/action",
    "Microsoft.KeyVault/vaults/secrets/recover/action",
    "Microsoft.KeyVault/vaults/secrets/setSecret/action",
];

/// The data actions at the vault that [`delete`](crate::ServicePrincipalClient::delete) needs.
pub const VAULT_REMOVAL_ACTIONS: &[&str] = &[
    "Microsoft.KeyVault/vaults/certificates/delete",
    "Microsoft.KeyVault/vaults/certificates/read",
    "Microsoft.KeyVault/vaults/secrets/delete",
    "Microsoft.KeyVault/vaults/secrets/getSecret/action",
];

/// The data actions at the vault that a permanent [`delete`](crate::ServicePrincipalClient::delete) needs.
pub const VAULT_PURGE_ACTIONS: &[&str] = &[
    "Microsoft.KeyVault/vaults/certificates/delete",
    "Microsoft.KeyVault/vaults/certificates/purge/action",
    "Microsoft.KeyVault/vaults/certificates/read",
    "Microsoft.KeyVault/vaults/secrets/delete",
    "Microsoft.KeyVault/vaults/secrets/getSecret/action",
    "Microsoft.KeyVault/vaults/secrets/purge/action",
    "Microsoft.KeyVault/vaults/secrets/readMetadata/action",
];

/// A version of a certificate.
#[derive(Debug, Clone)]
pub(crate) struct VaultCertificate {
    pub(crate) public: PublicCertificate,
    pub(crate) version: String,
    pub(crate) tags: HashMap<String, String>,
}

/// The newest version of a secret.
pub(crate) struct VaultSecret {
    pub(crate) value: Zeroizing<String>,
    pub(crate) created: Timestamp,
    pub(crate) tags: HashMap<String, String>,
}

/// How often the vault is asked whether a certificate is issued.
const POLL_INTERVAL: Duration = Duration::seconds(2);

impl fmt::Debug for CredentialVault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.secrets.endpoint().as_str();
        formatter.debug_struct("CredentialVault").field("url", &url).finish_non_exhaustive()
    }
}

type VaultResult<T> = Result<T, ServicePrincipalError>;

impl CredentialVault {
    /// A client of the vault at `url`. Requests that the vault rejects with 403 are repeated for the time of
    /// `propagation`, because a new role may not have taken effect yet.
    ///
    /// # Errors
    ///
    /// `url` is not the URL of a vault.
    pub fn new(
        url: &str,
        credential: &Arc<dyn TokenCredential>,
        client_options: &ClientOptions,
        propagation: PropagationWait,
    ) -> VaultResult<Self> {
        let failed = |error| vault_error("opening", url, error);
        let options = CertificateClientOptions {
            client_options: client_options.clone(),
            ..CertificateClientOptions::default()
        };
        let certificates = CertificateClient::new(url, Arc::clone(credential), Some(options));
        let options = SecretClientOptions {
            client_options: client_options.clone(),
            ..SecretClientOptions::default()
        };
        let secrets = SecretClient::new(url, Arc::clone(credential), Some(options));
        Ok(Self {
            certificates: Arc::new(certificates.map_err(failed)?),
            secrets: Arc::new(secrets.map_err(failed)?),
            propagation,
        })
    }

    /// The newest version of a certificate; `None` if it does not exist or is not issued yet.
    pub(crate) async fn certificate(
        &self,
        name: &SecretName,
    ) -> VaultResult<Option<VaultCertificate>> {
        let read =
            || async { self.certificates.get_certificate(name.as_str(), None).await?.into_model() };
        match found(self.repeat(read).await) {
            Ok(None) => Ok(None),
            Ok(Some(certificate)) if certificate.cer.is_none() => Ok(None),
            Ok(Some(certificate)) => parse_certificate(name, certificate).map(Some),
            Err(error) => Err(vault_error("reading the certificate", name.as_str(), error)),
        }
    }

    /// The SHA-1 thumbprints of all versions of a certificate.
    pub(crate) async fn certificate_thumbprints(
        &self,
        name: &SecretName,
    ) -> VaultResult<Vec<Vec<u8>>> {
        let read = || async {
            let pages =
                self.certificates.list_certificate_properties_versions(name.as_str(), None)?;
            pages.try_filter_map(async |item| Ok(item.x509_thumbprint)).try_collect().await
        };
        let failed = |error| vault_error("listing the versions of", name.as_str(), error);
        self.repeat(read).await.map_err(failed)
    }

    /// Creates a version of a certificate and waits until it is issued. A deleted certificate is restored first.
    pub(crate) async fn create_certificate(
        &self,
        name: &SecretName,
        tags: HashMap<String, String>,
    ) -> VaultResult<VaultCertificate> {
        let request = crate::certificate_policy::certificate_request(name, tags);
        let failed = |error| vault_error("creating the certificate", name.as_str(), error);
        let create = || async {
            let poll = PollerOptions { frequency: POLL_INTERVAL, ..PollerOptions::default() };
            let options = CertificateClientCreateCertificateOptions { method_options: poll };
            let body = request.clone().try_into()?;
            let poller =
                self.certificates.begin_create_certificate(name.as_str(), body, Some(options))?;
            poller.await?.into_model()
        };
        let created = match self.repeat(create).await {
            Err(error) if is_conflict(&error) && self.restore_certificate(name).await? => {
                self.repeat(create).await
            }
            result => result,
        };
        created.map_err(failed)?;
        let certificate = self.certificate(name).await?;
        certificate.ok_or_else(|| missing(name, "a certificate"))
    }

    /// Restores a deleted certificate; returns whether there was one.
    async fn restore_certificate(&self, name: &SecretName) -> VaultResult<bool> {
        let failed = |error| vault_error("restoring the certificate", name.as_str(), error);
        let restore = || self.certificates.recover_deleted_certificate(name.as_str(), None);
        if found(self.repeat(restore).await.map(drop)).map_err(failed)?.is_none() {
            return Ok(false);
        }
        let read = || self.certificates.get_certificate(name.as_str(), None);
        let read = self.propagation.repeat(read, is_not_found).await.map(drop);
        read.map(|()| true).map_err(failed)
    }

    /// The private key of a version of a certificate with the certificate.
    pub(crate) async fn certificate_secret(
        &self,
        name: &SecretName,
        version: &str,
    ) -> VaultResult<CertificateSecret> {
        let read = || async {
            let secret_version = Some(version.to_owned());
            let options = SecretClientGetSecretOptions {
                secret_version,
                ..SecretClientGetSecretOptions::default()
            };
            self.secrets.get_secret(name.as_str(), Some(options)).await?.into_model()
        };
        let failed = |error| vault_error("reading the key of", name.as_str(), error);
        let secret = self.repeat(read).await.map_err(failed)?;
        let value = secret.value.ok_or_else(|| missing(name, "a value"))?;
        Ok(CertificateSecret { value: Zeroizing::new(value), content_type: secret.content_type })
    }

    /// The newest version of a secret; `None` if it does not exist.
    pub(crate) async fn secret(&self, name: &SecretName) -> VaultResult<Option<VaultSecret>> {
        let read = || async { self.secrets.get_secret(name.as_str(), None).await?.into_model() };
        let failed = |error| vault_error("reading the secret", name.as_str(), error);
        let Some(secret) = found(self.repeat(read).await).map_err(failed)? else {
            return Ok(None);
        };
        let created = secret.attributes.as_ref().and_then(|it| it.created).and_then(timestamp);
        Ok(Some(VaultSecret {
            value: Zeroizing::new(secret.value.ok_or_else(|| missing(name, "a value"))?),
            created: created.ok_or_else(|| missing(name, "a creation time"))?,
            tags: secret.tags.unwrap_or_default(),
        }))
    }

    /// Writes a version of the secret with a credential document. A deleted secret is restored first.
    pub(crate) async fn write_document(
        &self,
        name: &SecretName,
        document: &str,
        times: CredentialTimes,
        mut tags: HashMap<String, String>,
    ) -> VaultResult<()> {
        tags.insert("renew_after".to_owned(), times.renew_after.to_string());
        tags.insert("cannot_renew_after".to_owned(), times.not_after.to_string());
        let attributes = SecretAttributes {
            not_before: date_time(times.not_before),
            expires: date_time(times.not_after),
            ..SecretAttributes::default()
        };
        let write = || async {
            let body = SetSecretParameters {
                value: Some(document.to_owned()),
                content_type: Some("application/json".to_owned()),
                secret_attributes: Some(attributes.clone()),
                tags: Some(tags.clone()),
            };
            self.secrets.set_secret(name.as_str(), body.try_into()?, None).await
        };
        let failed = |error| vault_error("writing the secret", name.as_str(), error);
        let written = match self.repeat(write).await {
            Err(error) if is_conflict(&error) && self.restore_secret(name).await? => {
                self.repeat(write).await
            }
            result => result,
        };
        written.map(drop).map_err(failed)
    }

    /// Restores a deleted secret; returns whether there was one.
    async fn restore_secret(&self, name: &SecretName) -> VaultResult<bool> {
        let failed = |error| vault_error("restoring the secret", name.as_str(), error);
        let restore = || self.secrets.recover_deleted_secret(name.as_str(), None);
        if found(self.repeat(restore).await.map(drop)).map_err(failed)?.is_none() {
            return Ok(false);
        }
        let read = || self.secrets.get_secret(name.as_str(), None);
        let read = self.propagation.repeat(read, is_not_found).await.map(drop);
        read.map(|()| true).map_err(failed)
    }

    /// Deletes a certificate with its key. One that does not exist is deleted already.
    pub(crate) async fn delete_certificate(&self, name: &SecretName) -> VaultResult<()> {
        let delete = || self.certificates.delete_certificate(name.as_str(), None);
        let deleted = found(self.repeat(delete).await.map(drop)).map(drop);
        deleted.map_err(|error| vault_error("deleting the certificate", name.as_str(), error))
    }

    /// Deletes a secret. One that does not exist is deleted already.
    pub(crate) async fn delete_secret(&self, name: &SecretName) -> VaultResult<()> {
        let delete = || self.secrets.delete_secret(name.as_str(), None);
        let deleted = found(self.repeat(delete).await.map(drop)).map(drop);
        deleted.map_err(|error| vault_error("deleting the secret", name.as_str(), error))
    }

    /// The tags of a deleted certificate; `None` if there is none.
    pub(crate) async fn deleted_certificate_tags(
        &self,
        name: &SecretName,
    ) -> VaultResult<Option<HashMap<String, String>>> {
        let read = || async {
            self.certificates.get_deleted_certificate(name.as_str(), None).await?.into_model()
        };
        let failed = |error| vault_error("reading the deleted certificate", name.as_str(), error);
        let deleted = found(self.repeat(read).await).map_err(failed)?;
        Ok(deleted.map(|it| it.tags.unwrap_or_default()))
    }

    /// The tags of a deleted secret; `None` if there is none.
    pub(crate) async fn deleted_secret_tags(
        &self,
        name: &SecretName,
    ) -> VaultResult<Option<HashMap<String, String>>> {
        let read =
            || async { self.secrets.get_deleted_secret(name.as_str(), None).await?.into_model() };
        let failed = |error| vault_error("reading the deleted secret", name.as_str(), error);
        let deleted = found(self.repeat(read).await).map_err(failed)?;
        Ok(deleted.map(|it| it.tags.unwrap_or_default()))
    }

    /// Deletes a deleted certificate permanently. `wait` says whether the vault may not know the deletion yet.
    pub(crate) async fn purge_certificate(&self, name: &SecretName, wait: bool) -> VaultResult<()> {
        let read =
            async || self.certificates.get_deleted_certificate(name.as_str(), None).await.map(drop);
        let purge = || async {
            self.certificates.purge_deleted_certificate(name.as_str(), None).await.map(drop)
        };
        let purged = self.purge(read, purge, wait).await;
        purged.map_err(|error| error.into_error("purging the certificate", name))
    }

    /// Deletes a deleted secret permanently. `wait` says whether the vault may not know the deletion yet.
    pub(crate) async fn purge_secret(&self, name: &SecretName, wait: bool) -> VaultResult<()> {
        let read =
            || async { self.secrets.get_deleted_secret(name.as_str(), None).await.map(drop) };
        let purge =
            || async { self.secrets.purge_deleted_secret(name.as_str(), None).await.map(drop) };
        let purged = self.purge(read, purge, wait).await;
        purged.map_err(|error| error.into_error("purging the secret", name))
    }

    /// Purges a deleted object until the vault does not have it any more. Right after a deletion, the vault may not
    /// have the deleted object yet: then `wait` is set.
    async fn purge<R, P>(
        &self,
        read: impl Fn() -> R,
        purge: impl Fn() -> P,
        wait: bool,
    ) -> Result<(), PurgeError>
    where
        R: Future<Output = azure_core::Result<()>>,
        P: Future<Output = azure_core::Result<()>>,
    {
        if wait {
            self.propagation.repeat(&read, is_not_found).await.map_err(PurgeError::Failed)?;
        }
        let attempt = || async {
            match self.repeat(&purge).await {
                Ok(()) => {}
                Err(error) if is_not_found(&error) => {}
                Err(error) if is_conflict(&error) => return Err(PurgeError::InProgress(error)),
                Err(error) => return Err(PurgeError::Failed(error)),
            }
            match found(read().await) {
                Ok(None) => Ok(()),
                Ok(Some(())) => Err(PurgeError::StillDeleted),
                Err(error) => Err(PurgeError::Failed(error)),
            }
        };
        let is_temporary = |error: &PurgeError| !matches!(error, PurgeError::Failed(_));
        self.propagation.repeat(attempt, is_temporary).await
    }

    /// Repeats a request while the identity lacks a permission, as until a new role takes effect.
    async fn repeat<T, F: Future<Output = azure_core::Result<T>>>(
        &self,
        request: impl Fn() -> F,
    ) -> azure_core::Result<T> {
        let is_forbidden = |error: &azure_core::Error| is_missing_permission(&KEY_VAULT, error);
        self.propagation.repeat(request, is_forbidden).await
    }
}

/// Why an attempt to purge did not succeed.
enum PurgeError {
    Failed(azure_core::Error),
    /// The vault is deleting or purging the object (409).
    InProgress(azure_core::Error),
    /// The vault still has the deleted object.
    StillDeleted,
}

impl PurgeError {
    fn into_error(self, operation: &'static str, name: &SecretName) -> ServicePrincipalError {
        match self {
            Self::Failed(error) | Self::InProgress(error) => {
                vault_error(operation, name.as_str(), error)
            }
            Self::StillDeleted => ServicePrincipalError::StillDeleted { name: name.clone() },
        }
    }
}

/// `None` instead of the error that an object does not exist.
fn found<T>(result: azure_core::Result<T>) -> azure_core::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the vault exists and the object does not.
fn is_not_found(error: &azure_core::Error) -> bool {
    let ErrorKind::HttpResponse { status: StatusCode::NotFound, error_code, .. } = error.kind()
    else {
        return false;
    };
    matches!(error_code.as_deref(), Some("CertificateNotFound" | "SecretNotFound"))
}

fn is_conflict(error: &azure_core::Error) -> bool {
    error.http_status() == Some(StatusCode::Conflict)
}

fn parse_certificate(
    name: &SecretName,
    certificate: Certificate,
) -> Result<VaultCertificate, ServicePrincipalError> {
    let attributes = certificate.attributes.unwrap_or_default();
    let version = certificate.id.as_deref().and_then(|id| id.rsplit('/').next());
    let not_before = attributes.not_before.and_then(timestamp);
    let not_after = attributes.expires.and_then(timestamp);
    let public = PublicCertificate {
        der: certificate.cer.ok_or_else(|| missing(name, "a certificate"))?,
        not_before: not_before.ok_or_else(|| missing(name, "a begin of the validity"))?,
        not_after: not_after.ok_or_else(|| missing(name, "an end of the validity"))?,
    };
    Ok(VaultCertificate {
        public,
        version: version.ok_or_else(|| missing(name, "a version"))?.to_owned(),
        tags: certificate.tags.unwrap_or_default(),
    })
}

fn timestamp(time: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_second(time.unix_timestamp()).ok()
}

fn date_time(time: Timestamp) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(time.as_second()).ok()
}

fn missing(name: &SecretName, property: &'static str) -> ServicePrincipalError {
    ServicePrincipalError::MissingProperty { name: name.clone(), property }
}

fn vault_error(
    operation: &'static str,
    name: &str,
    source: azure_core::Error,
) -> ServicePrincipalError {
    ServicePrincipalError::Vault { operation, name: name.to_owned(), source: Box::new(source) }
}
