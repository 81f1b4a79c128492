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
use lanyard_vocabulary::cloud::Endpoints;
use tokio::sync::OnceCell;

use crate::configuration::{Configuration, Identity};

/// How token endpoints are reached, and what the environment says about the pod's identity.
#[derive(Debug)]
pub struct IdentityWays {
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
pub enum IdentityError {
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

impl IdentityError {
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
/// [`IdentityError`] where settings are missing or malformed. A credential file that cannot be read
/// yet is no error: it is read again with each request for a token, until it can be.
pub async fn credential(
    configuration: Configuration,
    ways: IdentityWays,
) -> Result<Arc<dyn TokenCredential>, IdentityError> {
    let Configuration { endpoints, identity } = configuration;
    Ok(match identity {
        Identity::Workload => {
            let settings = in_cloud(ways.workload, endpoints);
            FederatedTokenCredential::from_settings(settings, ways.entra)?
        }
        Identity::ManagedIdentity(id) => {
            let mut settings = ManagedIdentitySettings::default();
            settings.identity = id;
            settings.imds_host = ways.managed_identity_host;
            ManagedIdentityCredential::sharing(settings, &ways.managed_identity)?
        }
        Identity::ClientSecret { tenant, client, secret } => {
            let authority = endpoints.authority_url().parse()?;
            ClientSecretCredential::new(&tenant, client, &authority, secret, &ways.entra)
        }
        Identity::CredentialFile(path) => {
            let file = LateFile { path, entra: ways.entra, opened: OnceCell::new() };
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
fn in_cloud(mut settings: FederatedTokenSettings, endpoints: &Endpoints) -> FederatedTokenSettings {
    settings.authority_host.get_or_insert_with(|| endpoints.authority_url());
    settings
}

/// A credential file that may be unreadable when the process starts. Nothing is won by ending then:
/// the API server would wait longer for a restart than for the file. From its first good version on
/// it is followed as ever.
#[derive(Debug)]
struct LateFile {
    path: PathBuf,
    entra: TokenTransport,
    opened: OnceCell<Arc<ReloadingCertificateCredential>>,
}

impl LateFile {
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
impl TokenCredential for LateFile {
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
pub(crate) fn file_hint(error: &azure_core::Error) -> Option<String> {
    error.downcast_ref::<LoadError>().map(LoadError::hint)
}

#[cfg(test)]
mod tests {
    use lanyard_credential::TokenTransportOptions;
    use lanyard_vocabulary::{Cloud, causes};

    use super::*;

    fn ways() -> IdentityWays {
        IdentityWays {
            entra: TokenTransport::default(),
            managed_identity: ManagedIdentityTransport::new(TokenTransportOptions::default())
                .unwrap(),
            managed_identity_host: None,
            workload: FederatedTokenSettings::default(),
        }
    }

    fn configuration(identity: Identity) -> Configuration {
        Configuration { endpoints: Cloud::China.endpoints().unwrap(), identity }
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_yet_is_told_with_each_request() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kms.json");
        let identity = Identity::CredentialFile(path.clone());
        let credential = credential(configuration(identity), ways()).await.unwrap();
        let error = credential.get_token(&["https://vault.azure.cn/.default"], None).await;
        let error = error.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Credential);
        assert!(file_hint(&error).is_some(), "{error:?}");
        std::fs::write(&path, "{}").unwrap();
        let other = credential.get_token(&["https://vault.azure.cn/.default"], None).await;
        assert_ne!(other.unwrap_err().to_string(), error.to_string(), "the file is read again");
    }

    #[tokio::test]
    async fn what_the_environment_lacks_is_named_with_its_key() {
        let error = credential(configuration(Identity::Workload), ways()).await.unwrap_err();
        let told = causes(&error);
        for part in
            ["useWorkloadIdentityExtension", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"]
        {
            assert!(told.contains(part), "{told}");
        }
        assert!(error.hint().is_some());
    }

    #[test]
    fn the_authority_is_the_environments_or_the_clouds() {
        let endpoints = Cloud::China.endpoints().unwrap();
        let settings = in_cloud(FederatedTokenSettings::default(), endpoints);
        assert_eq!(settings.authority_host.as_deref(), Some("https://login.chinacloudapi.cn/"));
        let mut told = FederatedTokenSettings::default();
        told.authority_host = Some("https://login.example/".to_owned());
        assert_eq!(in_cloud(told.clone(), endpoints), told);
    }
}
