//! Creates the Azure credential for the configured identity.

use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use lanyard_azure::AzureTransport;
use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_credential::identity::ParseAuthorityError;
use lanyard_credential::{
    ClientSecretCredential, FederatedTokenCredential, FederatedTokenSettings,
    FederatedTokenSettingsError, LoadError, ManagedIdentityCredential, ManagedIdentitySettings,
    ManagedIdentitySettingsError, ManagedIdentityTransport, ReloadingCertificateCredential,
    ReloadingCertificateOptions, TokenTransport, TokenTransportOptions,
};
use lanyard_vocabulary::cloud::CloudEndpoints;
use tokio::sync::OnceCell;

use crate::configuration::{KmsConfiguration, VaultIdentity};

/// The transports to token endpoints, and the pod's identity settings from the environment.
#[derive(Debug)]
pub struct IdentitySources {
    /// The transport to Entra.
    pub entra: TokenTransport,
    /// The transport to the instance metadata service; it never uses a proxy.
    pub managed_identity: ManagedIdentityTransport,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: the URL of a replacement for the metadata service.
    pub managed_identity_host: Option<String>,
    /// The environment variables that a workload identity webhook sets.
    pub workload: FederatedTokenSettings,
}

impl IdentitySources {
    /// Builds the transports: that to Entra uses `transport`.
    ///
    /// # Errors
    ///
    /// [`ManagedIdentitySettingsError`] if the client of the metadata service cannot be built.
    pub fn new(
        transport: &AzureTransport,
        managed_identity_host: Option<String>,
        workload: FederatedTokenSettings,
        clock: &SharedClock,
    ) -> Result<Self, ManagedIdentitySettingsError> {
        let options = |transport| TokenTransportOptions::new(transport, clock);
        Ok(Self {
            entra: TokenTransport::new(options(Some(transport.without_rate_limit()))),
            managed_identity: ManagedIdentityTransport::new(options(None))?,
            managed_identity_host,
            workload,
        })
    }
}

/// The credential for the configured identity cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultIdentityError {
    /// `useWorkloadIdentityExtension` is set, but the environment variables are missing or invalid.
    #[error("`useWorkloadIdentityExtension` is set, but the environment names no identity")]
    Workload(#[from] FederatedTokenSettingsError),
    /// `useManagedIdentityExtension` is set, but the metadata service cannot be called.
    #[error("`useManagedIdentityExtension` is set, but the metadata service cannot be called")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// The authority URL of the cloud is invalid.
    #[error("the authority URL of the cloud is invalid")]
    Authority(#[from] ParseAuthorityError),
}

impl ErrorHint for VaultIdentityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Workload(error) => error.hint(),
            Self::ManagedIdentity(error) => error.hint(),
            Self::Authority(error) => error.hint(),
        }
    }
}

/// Creates the credential for the configured identity. Makes no request.
///
/// # Errors
///
/// [`VaultIdentityError`] if settings are missing or malformed. A credential file that cannot be
/// read yet is not an error: each token request reads it again until it can be loaded.
pub async fn build_credential(
    configuration: KmsConfiguration,
    sources: IdentitySources,
) -> Result<Arc<dyn TokenCredential>, VaultIdentityError> {
    let KmsConfiguration { endpoints, identity } = configuration;
    Ok(match identity {
        VaultIdentity::Workload => {
            let settings = with_cloud_authority(sources.workload, endpoints);
            FederatedTokenCredential::from_settings(settings, sources.entra)?
        }
        VaultIdentity::ManagedIdentity(id) => {
            let mut settings = ManagedIdentitySettings::default();
            settings.identity = id;
            settings.imds_host = sources.managed_identity_host;
            ManagedIdentityCredential::with_shared_transport(settings, &sources.managed_identity)?
        }
        VaultIdentity::ClientSecret { tenant, client, secret } => {
            let authority = endpoints.authority_url().parse()?;
            ClientSecretCredential::new(&tenant, client, &authority, secret, &sources.entra)
        }
        VaultIdentity::CredentialFile(path) => {
            let file = LazyFileCredential { path, entra: sources.entra, opened: OnceCell::new() };
            if let Err(error) = file.open().await {
                let hint = error.hint();
                let error: &dyn Error = &error;
                tracing::warn!(
                    error,
                    hint = hint.as_deref(),
                    "cannot load the credential file yet; the next token request reads it again"
                );
            }
            Arc::new(file)
        }
    })
}

/// Sets the authority to that of the cloud if the environment names none.
fn with_cloud_authority(
    mut settings: FederatedTokenSettings,
    endpoints: &CloudEndpoints,
) -> FederatedTokenSettings {
    settings.authority_host.get_or_insert_with(|| endpoints.authority_url());
    settings
}

/// A credential file that may not be readable when the process starts. Exiting would not help: a
/// restart would take longer than the file. Once the file has been loaded, its changes are
/// followed.
#[derive(Debug)]
struct LazyFileCredential {
    path: PathBuf,
    entra: TokenTransport,
    opened: OnceCell<Arc<ReloadingCertificateCredential>>,
}

impl LazyFileCredential {
    async fn open(&self) -> Result<&Arc<ReloadingCertificateCredential>, LoadError> {
        self.opened
            .get_or_try_init(|| {
                let mut options = ReloadingCertificateOptions::default();
                options.transport = self.entra.clone();
                ReloadingCertificateCredential::open(&self.path, options)
            })
            .await
    }
}

#[async_trait]
impl TokenCredential for LazyFileCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let credential = self.open().await;
        let credential =
            credential.map_err(|error| azure_core::Error::new(ErrorKind::Credential, error))?;
        credential.get_token(scopes, options).await
    }
}

/// The hint for a token error that the credential file caused.
pub(crate) fn credential_file_hint(error: &azure_core::Error) -> Option<Cow<'static, str>> {
    error.downcast_ref::<LoadError>()?.hint()
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::{Cloud, format_error_chain};

    use super::*;

    fn identity_sources() -> IdentitySources {
        IdentitySources {
            entra: TokenTransport::default(),
            managed_identity: ManagedIdentityTransport::new(TokenTransportOptions::default())
                .unwrap(),
            managed_identity_host: None,
            workload: FederatedTokenSettings::default(),
        }
    }

    fn configuration(identity: VaultIdentity) -> KmsConfiguration {
        KmsConfiguration { endpoints: Cloud::China.endpoints().unwrap(), identity }
    }

    #[tokio::test]
    async fn missing_credential_file_is_retried_per_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kms.json");
        let identity = VaultIdentity::CredentialFile(path.clone());
        let credential =
            build_credential(configuration(identity), identity_sources()).await.unwrap();
        let error = credential.get_token(&["https://vault.azure.cn/.default"], None).await;
        let error = error.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Credential);
        assert!(credential_file_hint(&error).is_some(), "{error:?}");
        std::fs::write(&path, "{}").unwrap();
        let other = credential.get_token(&["https://vault.azure.cn/.default"], None).await;
        assert_ne!(other.unwrap_err().to_string(), error.to_string(), "the file is read again");
    }

    #[tokio::test]
    async fn missing_environment_variables_are_named() {
        let error = build_credential(configuration(VaultIdentity::Workload), identity_sources())
            .await
            .unwrap_err();
        let text = format_error_chain(&error);
        for part in
            ["useWorkloadIdentityExtension", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert!(error.hint().is_some());
    }

    #[test]
    fn authority_comes_from_environment_or_cloud() {
        let endpoints = Cloud::China.endpoints().unwrap();
        let settings = with_cloud_authority(FederatedTokenSettings::default(), endpoints);
        assert_eq!(settings.authority_host.as_deref(), Some("https://login.chinacloudapi.cn/"));
        let mut configured = FederatedTokenSettings::default();
        configured.authority_host = Some("https://login.example/".to_owned());
        assert_eq!(with_cloud_authority(configured.clone(), endpoints), configured);
    }
}
