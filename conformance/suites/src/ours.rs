//! Our own components: the road from a SecretProviderClass to a mounted file, and the credentials
//! whose requests are compared.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::ClientOptions;
use lanyard_api::{ObjectEntry, ProviderParameters};
use lanyard_azure::{Transport, TransportError, TransportSettings};
use lanyard_clock::SystemClock;
use lanyard_credential::{
    FederatedTokenCredential, FederatedTokenSettings, FederatedTokenSettingsError, LoadError,
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentitySettingsError, ReloadingCertificateCredential, ReloadingCertificateOptions,
    TokenTransport, TokenTransportOptions,
};
use lanyard_keyvault::{FetchError, FileOptions, KeyVault, MountedFile, VaultError, fetch_files};
use lanyard_node::{
    FileEntry, Mount, MountError, ParseFilePathError, PublishError, Published, Volume,
};
use thiserror::Error;

use crate::program::Inputs;
use crate::recorder::Upstream;

/// Our side did not do its part.
#[derive(Debug, Error)]
pub(crate) enum OursError {
    #[error("the transport could not be built")]
    Transport(#[source] TransportError),
    #[error("the managed identity credential could not be built")]
    ManagedIdentity(#[source] ManagedIdentitySettingsError),
    #[error("the federated credential could not be built")]
    Federated(#[source] FederatedTokenSettingsError),
    #[error("the certificate credential could not be opened")]
    Certificate(#[source] LoadError),
    #[error("no token was had")]
    Token(#[source] azure_core::Error),
    #[error("the vault could not be asked")]
    Vault(#[source] VaultError),
    #[error("the vault's objects did not become files")]
    Fetch(#[source] Box<FetchError>),
    #[error("a file has a path that no volume takes")]
    FilePath(#[source] ParseFilePathError),
    #[error("the volume has no directory")]
    Directory(#[source] std::io::Error),
    #[error("the volume is unpublished")]
    Unpublished,
    #[error("the files could not be published")]
    Publish(#[source] PublishError),
}

/// Our clients on one way to Azure.
#[derive(Debug)]
pub(crate) struct Ours {
    transport: Transport,
    /// Where IMDS is asked: our requests to it never go through a proxy.
    imds: Option<String>,
}

impl Ours {
    pub(crate) fn new(way: &Upstream) -> Result<Self, OursError> {
        let settings = TransportSettings {
            https_proxy: way.proxy.clone(),
            only_roots: way.roots.clone(),
            ..TransportSettings::default()
        };
        let transport =
            Transport::new(&settings, SystemClock::shared()).map_err(OursError::Transport)?;
        Ok(Self { transport, imds: way.proxy.clone() })
    }

    fn token_transport(&self) -> TokenTransportOptions {
        let mut options = TokenTransportOptions::default();
        options.client =
            ClientOptions { transport: Some(self.transport.unpaced()), ..ClientOptions::default() };
        options
    }

    /// The identity of the host.
    pub(crate) fn managed_identity(
        &self,
        client: &str,
    ) -> Result<Arc<ManagedIdentityCredential>, OursError> {
        let mut settings = ManagedIdentitySettings::default();
        settings.identity = Some(ManagedIdentityId::ClientId(client.to_owned()));
        settings.imds_host.clone_from(&self.imds);
        ManagedIdentityCredential::new(settings, self.token_transport())
            .map_err(OursError::ManagedIdentity)
    }

    /// A certificate file in the form of msi-dataplane.
    pub(crate) async fn certificate(
        &self,
        document: &Path,
    ) -> Result<Arc<ReloadingCertificateCredential>, OursError> {
        let options = ReloadingCertificateOptions::over(self.token_transport());
        ReloadingCertificateCredential::open(document, options)
            .await
            .map_err(OursError::Certificate)
    }

    /// The projected token of a service account.
    pub(crate) fn federated(
        &self,
        inputs: &Inputs,
    ) -> Result<Arc<FederatedTokenCredential>, OursError> {
        let mut settings = FederatedTokenSettings::default();
        settings.client_id = Some(inputs.client.clone());
        settings.tenant_id = Some(inputs.tenant.clone());
        settings.token_file = Some(PathBuf::from(&inputs.token_file));
        let transport = TokenTransport::new(self.token_transport());
        FederatedTokenCredential::from_settings(settings, transport).map_err(OursError::Federated)
    }

    /// A vault, read as the identity of the host.
    pub(crate) fn vault(&self, url: &str, client: &str) -> Result<KeyVault, OursError> {
        let credential = self.managed_identity(client)?;
        KeyVault::new(url, credential, self.transport.client_options()).map_err(OursError::Vault)
    }
}

/// Asks for one token and forgets it.
pub(crate) async fn ask(credential: &dyn TokenCredential, scope: &str) -> Result<(), OursError> {
    credential.get_token(&[scope], None).await.map(drop).map_err(OursError::Token)
}

/// A component's credential in a volume, as a pod sees it; unpublished when this is dropped.
#[derive(Debug)]
pub(crate) struct MountedCredential {
    parameters: ProviderParameters,
    vault: KeyVault,
    /// Nothing once it is unpublished.
    volume: Option<Volume>,
    file: PathBuf,
}

impl MountedCredential {
    /// Opens a volume below `directory`; nothing is in it yet.
    pub(crate) fn open(
        parameters: ProviderParameters,
        vault: KeyVault,
        directory: &Path,
    ) -> Result<Self, OursError> {
        let directory = directory.join("volume");
        fs::create_dir(&directory).map_err(OursError::Directory)?;
        let volume = Some(open_volume(&directory).map_err(OursError::Publish)?);
        let name = parameters.objects.first().map(ObjectEntry::file_name).unwrap_or_default();
        let file = directory.join(name);
        Ok(Self { parameters, vault, volume, file })
    }

    /// The file that the component is told.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads what the vault has now.
    pub(crate) async fn fetch(&self) -> Result<Vec<MountedFile>, OursError> {
        fetch_files(&self.parameters, &self.vault, FileOptions::default())
            .await
            .map_err(|error| OursError::Fetch(Box::new(error)))
    }

    /// Swaps the volume's content.
    pub(crate) fn publish(&mut self, files: &[MountedFile]) -> Result<Published, OursError> {
        let mut entries = Vec::with_capacity(files.len());
        for file in files {
            let path = file.path.parse().map_err(OursError::FilePath)?;
            entries.push(FileEntry::new(path, file.content.expose(), file.mode));
        }
        let volume = self.volume.as_mut().ok_or(OursError::Unpublished)?;
        volume.publish(&entries).map_err(OursError::Publish)
    }
}

impl Drop for MountedCredential {
    fn drop(&mut self) {
        // What stays behind lies in a temporary directory; the trial has its verdict already.
        self.volume.take().map_or(Ok(()), Volume::unpublish).unwrap_or_default();
    }
}

/// In memory as on a node, where this process may mount; else in the directory itself.
fn open_volume(directory: &Path) -> Result<Volume, PublishError> {
    const FIRST_SIZE: u64 = 256 * 1024;
    match Mount::tmpfs(directory, FIRST_SIZE) {
        Ok(mount) => Volume::open_mounted(mount, SystemClock::shared()),
        Err(MountError::Call { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Volume::open(directory, SystemClock::shared())
        }
        Err(error) => Err(error.into()),
    }
}
