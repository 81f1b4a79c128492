//! Lanyard's own components: from a SecretProviderClass to a mounted file, and the credentials whose requests
//! are compared with upstream's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::ClientOptions;
use lanyard_api::{ProviderParameters, VaultObjectEntry};
use lanyard_azure::{AzureTransport, AzureTransportError, AzureTransportSettings};
use lanyard_clock::SystemClock;
use lanyard_credential::{
    FederatedTokenCredential, FederatedTokenSettings, FederatedTokenSettingsError, LoadError,
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentitySettingsError, ReloadingCertificateCredential, ReloadingCertificateOptions,
    TokenTransport, TokenTransportOptions,
};
use lanyard_keyvault::{
    FetchError, KeyVault, MountedFile, VaultReadError, VolumeFileOptions, fetch_files,
};
use lanyard_volume::{
    AtomicVolume, FileEntry, ParseFilePathError, PublishError, PublishOutcome, TmpfsMount,
    TmpfsMountError,
};
use thiserror::Error;

use crate::client_program::ClientInputs;
use crate::recording_proxy::ForwardTarget;

/// A component of lanyard failed.
#[derive(Debug, Error)]
pub(crate) enum LanyardClientError {
    #[error("the transport could not be built")]
    Transport(#[source] AzureTransportError),
    #[error("the managed identity credential could not be built")]
    ManagedIdentity(#[source] ManagedIdentitySettingsError),
    #[error("the federated credential could not be built")]
    Federated(#[source] FederatedTokenSettingsError),
    #[error("the certificate credential could not be opened")]
    Certificate(#[source] LoadError),
    #[error("the token request failed")]
    Token(#[source] azure_core::Error),
    #[error("the request to the vault failed")]
    Vault(#[source] VaultReadError),
    #[error("the files of the volume could not be fetched")]
    Fetch(#[source] Box<FetchError>),
    #[error("a file has an invalid path")]
    FilePath(#[source] ParseFilePathError),
    #[error("the directory of the volume could not be created")]
    Directory(#[source] std::io::Error),
    #[error("the volume is unpublished")]
    Unpublished,
    #[error("the files could not be published")]
    Publish(#[source] PublishError),
}

/// Lanyard's Azure clients with one transport.
#[derive(Debug)]
pub(crate) struct LanyardClients {
    transport: AzureTransport,
    /// The URL of IMDS, because requests to it never go through a proxy.
    imds_url: Option<String>,
}

impl LanyardClients {
    pub(crate) fn new(target: &ForwardTarget) -> Result<Self, LanyardClientError> {
        let settings = AzureTransportSettings {
            https_proxy: target.proxy.clone(),
            trusted_roots_pem: target.roots.clone(),
            ..AzureTransportSettings::default()
        };
        let transport = AzureTransport::new(&settings, SystemClock::shared())
            .map_err(LanyardClientError::Transport)?;
        Ok(Self { transport, imds_url: target.proxy.clone() })
    }

    fn token_transport_options(&self) -> TokenTransportOptions {
        let mut options = TokenTransportOptions::default();
        options.client = ClientOptions {
            transport: Some(self.transport.without_rate_limit()),
            ..ClientOptions::default()
        };
        options
    }

    /// The managed identity of the host.
    pub(crate) fn managed_identity_credential(
        &self,
        client: &str,
    ) -> Result<Arc<ManagedIdentityCredential>, LanyardClientError> {
        let mut settings = ManagedIdentitySettings::default();
        settings.identity = Some(ManagedIdentityId::ClientId(client.to_owned()));
        settings.imds_host.clone_from(&self.imds_url);
        ManagedIdentityCredential::new(settings, self.token_transport_options())
            .map_err(LanyardClientError::ManagedIdentity)
    }

    /// A credential file in the format of msi-dataplane.
    pub(crate) async fn certificate_credential(
        &self,
        document: &Path,
    ) -> Result<Arc<ReloadingCertificateCredential>, LanyardClientError> {
        let options = ReloadingCertificateOptions::with_transport(self.token_transport_options());
        ReloadingCertificateCredential::open(document, options)
            .await
            .map_err(LanyardClientError::Certificate)
    }

    /// A credential from the projected token of a ServiceAccount.
    pub(crate) fn federated_credential(
        &self,
        inputs: &ClientInputs,
    ) -> Result<Arc<FederatedTokenCredential>, LanyardClientError> {
        let mut settings = FederatedTokenSettings::default();
        settings.client_id = Some(inputs.client.clone());
        settings.tenant_id = Some(inputs.tenant.clone());
        settings.token_file = Some(PathBuf::from(&inputs.token_file));
        let transport = TokenTransport::new(self.token_transport_options());
        FederatedTokenCredential::from_settings(settings, transport)
            .map_err(LanyardClientError::Federated)
    }

    /// A vault client that authenticates with the managed identity of the host.
    pub(crate) fn open_vault(
        &self,
        url: &str,
        client: &str,
    ) -> Result<KeyVault, LanyardClientError> {
        let credential = self.managed_identity_credential(client)?;
        KeyVault::new(url, credential, self.transport.client_options())
            .map_err(LanyardClientError::Vault)
    }
}

/// Requests one token and discards it.
pub(crate) async fn request_token(
    credential: &dyn TokenCredential,
    scope: &str,
) -> Result<(), LanyardClientError> {
    credential.get_token(&[scope], None).await.map(drop).map_err(LanyardClientError::Token)
}

/// A component's credential in a volume, as a pod sees it. Dropping it unpublishes the volume.
#[derive(Debug)]
pub(crate) struct MountedCredential {
    parameters: ProviderParameters,
    vault: KeyVault,
    /// `None` after the volume was unpublished.
    volume: Option<AtomicVolume>,
    file: PathBuf,
}

impl MountedCredential {
    /// Opens an empty volume below `directory`.
    pub(crate) fn open(
        parameters: ProviderParameters,
        vault: KeyVault,
        directory: &Path,
    ) -> Result<Self, LanyardClientError> {
        let directory = directory.join("volume");
        fs::create_dir(&directory).map_err(LanyardClientError::Directory)?;
        let volume = Some(open_volume(&directory).map_err(LanyardClientError::Publish)?);
        let name = parameters.objects.first().map(VaultObjectEntry::file_name).unwrap_or_default();
        let file = directory.join(name);
        Ok(Self { parameters, vault, volume, file })
    }

    /// The path of the credential file in the volume.
    pub(crate) fn credential_file(&self) -> &Path {
        &self.file
    }

    /// Fetches the current files from the vault.
    pub(crate) async fn fetch_files(&self) -> Result<Vec<MountedFile>, LanyardClientError> {
        fetch_files(&self.parameters, &self.vault, VolumeFileOptions::default())
            .await
            .map_err(|error| LanyardClientError::Fetch(Box::new(error)))
    }

    /// Replaces the content of the volume.
    pub(crate) fn publish(
        &mut self,
        files: &[MountedFile],
    ) -> Result<PublishOutcome, LanyardClientError> {
        let mut entries = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path.parse().map_err(LanyardClientError::FilePath)?;
            entries.push(FileEntry::new(path, file.content.expose(), file.mode));
        }
        let volume = self.volume.as_mut().ok_or(LanyardClientError::Unpublished)?;
        volume.publish(&entries).map_err(LanyardClientError::Publish)
    }
}

impl Drop for MountedCredential {
    fn drop(&mut self) {
        // Leftovers are in a temporary directory, and the trial has already ended.
        self.volume.take().map_or(Ok(()), AtomicVolume::unpublish).unwrap_or_default();
    }
}

/// Opens a volume on tmpfs, as on a node, if this process may mount; otherwise in the directory itself.
fn open_volume(directory: &Path) -> Result<AtomicVolume, PublishError> {
    const FIRST_SIZE: u64 = 256 * 1024;
    match TmpfsMount::mount_or_adopt(directory, FIRST_SIZE) {
        Ok(mount) => AtomicVolume::open_mounted(mount, SystemClock::shared()),
        Err(TmpfsMountError::SystemCall { source, .. })
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            AtomicVolume::open(directory, SystemClock::shared())
        }
        Err(error) => Err(error.into()),
    }
}
