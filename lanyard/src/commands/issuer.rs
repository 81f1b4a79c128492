//! The steps that create a token issuer, for `create oidc azure` and `ccoctl azure`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use lanyard_azure::{AssignedPrincipalType, PropagationWait, ResourceTags};
use lanyard_changes::{PrincipalReference, RunSummary};
use lanyard_clock::SharedClock;
use lanyard_federation::{
    IssuerContainer, IssuerDiscovery, IssuerStorageAccount, IssuerUrl, OutputFile, PublishedKeySet,
    SigningKey, SigningKeySize, SigningPublicKey, StorageNameError, cluster_authentication_file,
    discovery_file, key_set_file, signing_key_files,
};
use lanyard_infra::{IssuerContainerClient, OidcParameters, oidc_resources};
use lanyard_vocabulary::cloud::CloudEndpoints;

use super::azure_resources::output_files::write_file;
use super::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

/// The private key in the output directory.
const PRIVATE_KEY_FILE: &str = "serviceaccount-signer.private";

/// The names of the issuer's storage.
pub(in crate::commands) struct IssuerNames {
    account: IssuerStorageAccount,
    container: IssuerContainer,
}

impl IssuerNames {
    /// Parses the names of the flags; the name of the issuer is the default for both.
    pub(in crate::commands) fn parse(
        name: &str,
        account: Option<&str>,
        container: Option<&str>,
    ) -> Result<Self, CommandError> {
        let invalid = |flag: &str, error: &StorageNameError| {
            CommandError::invalid_input(format!("{flag}: {error}")).with_hint_of(error)
        };
        let (account, container) = (account.unwrap_or(name), container.unwrap_or(name));
        Ok(Self {
            account: account.parse().map_err(|error| invalid("--storage-account-name", &error))?,
            container: container
                .parse()
                .map_err(|error| invalid("--blob-container-name", &error))?,
        })
    }

    /// The URL of the issuer in a cloud.
    pub(in crate::commands) fn issuer(
        &self,
        endpoints: &CloudEndpoints,
    ) -> Result<IssuerUrl, CommandError> {
        IssuerUrl::for_container(&self.account, &self.container, &endpoints.blob_suffix())
            .mark_invalid()
    }
}

/// An issuer to create.
pub(in crate::commands) struct IssuerRequest {
    pub(in crate::commands) location: String,
    pub(in crate::commands) resource_group: String,
    pub(in crate::commands) names: IssuerNames,
    pub(in crate::commands) issuer: IssuerUrl,
    pub(in crate::commands) tags: ResourceTags,
}

/// Creates the storage of an issuer, publishes its documents, and reads them back as Entra ID does. Returns `None` if
/// the plan cannot be applied; nothing was written then. The documents are published only if the run succeeded.
pub(in crate::commands) async fn create_issuer(
    stack: &SharedStack<'_>,
    request: IssuerRequest,
    key: &SigningPublicKey,
    run: &SharedRunArgs,
    clock: &SharedClock,
) -> Result<Option<RunSummary>, CommandError> {
    let account = stack.account;
    let caller = account.caller().await?;
    let parameters = OidcParameters {
        subscription: account.subscription.clone(),
        name: stack.name.to_owned(),
        location: request.location,
        resource_group: request.resource_group,
        account: request.names.account,
        container: request.names.container,
        tags: request.tags,
        uploader: match caller.principal_type {
            AssignedPrincipalType::User => PrincipalReference::User(caller.object_id),
            _ => PrincipalReference::ObjectId(caller.object_id),
        },
    };
    let applied = stack.apply(oidc_resources(&parameters), run, clock).await?;
    let Some((target, report)) = applied else { return Ok(None) };
    if report.succeeded() {
        let container = IssuerContainerClient {
            issuer: request.issuer,
            credential: Arc::clone(&account.credential),
            client_options: account.transport.client_options(),
            propagation: PropagationWait {
                clock: SharedClock::clone(clock),
                timeout: run.run.options().retry_timeout,
            },
        };
        container.publish(key).await?;
    }
    Ok(Some(RunSummary::new(&report, &target)))
}

/// Reads the private key of the directory, or creates a key pair if there is none. The public key follows from
/// the private one, so a missing public file does no harm.
pub(in crate::commands) fn load_or_create_key(
    directory: &Path,
) -> Result<SigningKey, CommandError> {
    let path = directory.join(PRIVATE_KEY_FILE);
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => SigningKey::parse_pem(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            SigningKey::generate(SigningKeySize::default())
        }
        Err(error) => {
            return Err(CommandError::invalid_input(format!("{} cannot be read", path.display()))
                .with_cause(&error));
        }
    };
    key.context(path.display()).mark_invalid()
}

/// Writes the key pair, and the copy of the private key that the installer reads.
pub(in crate::commands) fn write_key_files(
    directory: &Path,
    key: &SigningKey,
) -> Result<(), CommandError> {
    write_output_files(directory, &signing_key_files(key))
}

/// The documents and the manifest of an issuer.
pub(in crate::commands) fn issuer_documents(
    issuer: &IssuerUrl,
    key: &SigningPublicKey,
) -> Result<Vec<OutputFile>, CommandError> {
    let unavailable = |error: &dyn std::error::Error| {
        CommandError::unavailable("the documents of the issuer cannot be written").with_cause(error)
    };
    let discovery = discovery_file(&IssuerDiscovery::of_issuer(issuer));
    let key_set = key_set_file(&PublishedKeySet::of_key(key));
    Ok(vec![
        discovery.map_err(|error| unavailable(&error))?,
        key_set.map_err(|error| unavailable(&error))?,
        cluster_authentication_file(issuer),
    ])
}

/// Writes files below a directory, which is created.
pub(in crate::commands) fn write_output_files(
    directory: &Path,
    files: &[OutputFile],
) -> Result<(), CommandError> {
    files.iter().try_for_each(|file| {
        let path = directory.join(file.path());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .or_unavailable(format_args!("{} cannot be created", parent.display()))?;
        }
        write_file(&path, file.content(), std::fs::Permissions::from_mode(file.mode()))
    })
}
