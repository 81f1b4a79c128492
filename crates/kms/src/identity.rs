//! The credential of the identity that the configuration names.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use lanyard_credential::identity::ParseAuthorityError;
use lanyard_credential::{
    ClientSecretCredential, FederatedTokenCredential, FederatedTokenSettings,
    FederatedTokenSettingsError, LoadError, ManagedIdentityCredential, ManagedIdentitySettings,
    ManagedIdentitySettingsError, ManagedIdentityTransport, ReloadingCertificateCredential,
    ReloadingCertificateOptions, TokenTransport,
};
use lanyard_vocabulary::cloud::CloudEndpoints;
use tokio::sync::OnceCell;

use crate::configuration::{KmsConfiguration, VaultIdentity};

/// How token endpoints are reached, and what the environment says about the pod's identity.
#[derive(Debug)]
pub struct IdentitySources {
    /// The way to Entra.
    pub entra: TokenTransport,
    /// The way to the metadata service: never through a proxy.
    pub managed_identity: ManagedIdentityTransport,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`: a stand-in for the metadata service.
    pub managed_identity_host: Option<String>,
    /// The variables that a workload identity webhook sets.
    pub workload: FederatedTokenSettings,
}

/// There can be no credential for the identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultIdentityError {
    /// `useWorkloadIdentityExtension`, and the environment does not fit.
    #[error("`useWorkloadIdentityExtension` is set, but there is no identity in the environment")]
    Workload(#[from] FederatedTokenSettingsError),
    /// `useManagedIdentityExtension`, and there is no way to ask for it.
    #[error("`useManagedIdentityExtension` is set, but the host's identity cannot be asked for")]
    ManagedIdentity(#[from] ManagedIdentitySettingsError),
    /// The cloud's token service has no usable name.
    #[error("the cloud's token service cannot be used")]
    Authority(#[from] ParseAuthorityError),
}

impl VaultIdentityError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Workload(error) => Some(error.hint().to_owned()),
            Self::ManagedIdentity(error) => error.hint().map(str::to_owned),
            Self::Authority(error) => Some(error.hint().to_owned()),
        }
    }
}

/// The credential of a configuration's identity. No request is made.
///
/// # Errors
///
/// [`VaultIdentityError`] where settings are missing or malformed. A credential file that cannot be read
/// yet is no error: it is read again with each request for a token, until it can be.
pub async fn build_credential(
    configuration: KmsConfiguration,
    ways: IdentitySources,
) -> Result<Arc<dyn TokenCredential>, VaultIdentityError> {
    let KmsConfiguration { endpoints, identity } = configuration;
    Ok(match identity {
        VaultIdentity::Workload => {
            let settings = with_cloud_authority(ways.workload, endpoints);
            FederatedTokenCredential::from_settings(settings, ways.entra)?
        }
        VaultIdentity::ManagedIdentity(id) => {
            let mut settings = ManagedIdentitySettings::default();
            settings.identity = id;
            settings.imds_host = ways.managed_identity_host;
            ManagedIdentityCredential::with_shared_transport(settings, &ways.managed_identity)?
        }
        VaultIdentity::ClientSecret { tenant, client, secret } => {
            let authority = endpoints.authority_url().parse()?;
            ClientSecretCredential::new(&tenant, client, &authority, secret, &ways.entra)
        }
        VaultIdentity::CredentialFile(path) => {
            let file = LazyFileCredential { path, entra: ways.entra, opened: OnceCell::new() };
            if let Err(error) = file.open().await {
                let hint = error.hint();
                let error: &dyn Error = &error;
                tracing::warn!(error, hint, "there is no credential yet; looking again when asked");
            }
            Arc::new(file)
        }
    })
}

/// The environment's authority, or that of the cloud.
fn with_cloud_authority(
    mut settings: FederatedTokenSettings,
    endpoints: &CloudEndpoints,
) -> FederatedTokenSettings {
    settings.authority_host.get_or_insert_with(|| endpoints.authority_url());
    settings
}

/// A credential file that may be unreadable when the process starts. Nothing is won by ending then:
/// the API server would wait longer for a restart than for the file. From its first good version on
/// it is followed as ever.
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

/// What to do about a token that could not be had because of the file.
pub(crate) fn credential_file_hint(error: &azure_core::Error) -> Option<String> {
    error.downcast_ref::<LoadError>().map(LoadError::hint)
}

#[cfg(test)]
mod tests {
    use lanyard_credential::TokenTransportOptions;
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
        let told = format_error_chain(&error);
        for part in
            ["useWorkloadIdentityExtension", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"]
        {
            assert!(told.contains(part), "{told}");
        }
        assert!(error.hint().is_some());
    }

    #[test]
    fn authority_comes_from_environment_or_cloud() {
        let endpoints = Cloud::China.endpoints().unwrap();
        let settings = with_cloud_authority(FederatedTokenSettings::default(), endpoints);
        assert_eq!(settings.authority_host.as_deref(), Some("https://login.chinacloudapi.cn/"));
        let mut told = FederatedTokenSettings::default();
        told.authority_host = Some("https://login.example/".to_owned());
        assert_eq!(with_cloud_authority(told.clone(), endpoints), told);
    }
}
