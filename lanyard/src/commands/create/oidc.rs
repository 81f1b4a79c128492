//! `lanyard create oidc azure`: creates a token issuer.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lanyard_azure::{AssignedPrincipalType, PropagationWait, ResourceTags};
use lanyard_clock::SystemClock;
use lanyard_federation::{
    IssuerContainer, IssuerDiscovery, IssuerStorageAccount, IssuerUrl, OutputFile, PublishedKeySet,
    SigningKey, SigningKeySize, cluster_authentication_file, discovery_file, key_set_file,
    signing_key_files,
};
use lanyard_infra::{
    IssuerContainerClient, OidcParameters, PrincipalReference, ResourceStack, oidc_resources,
};
use lanyard_vocabulary::format_error_chain;

use super::infra::parse_tag;
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::cluster_configuration::DEFAULT_LOCATION;
use crate::commands::azure_resources::output_files::write_file;
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Example:

  lanyard create oidc azure --name harbourdev --output-dir issuer";

/// Create a token issuer for hosted clusters in Azure
///
/// Creates a key pair, a storage account with a public container, and the two documents that Entra ID reads. An
/// existing private key in the output directory is used again, and keys that are published already stay published.
/// At the end, the command reads both documents without a credential and compares them with the key.
///
/// The command uploads with the signed-in identity, which gets Storage Blob Data Contributor at the account. Azure
/// may need 10 minutes until the role takes effect.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The name of the issuer
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The region
    #[arg(long, alias = "region", default_value = DEFAULT_LOCATION, value_name = "REGION")]
    location: String,
    /// The resource group [default: NAME-oidc]
    #[arg(long, value_name = "NAME")]
    oidc_resource_group_name: Option<String>,
    /// The storage account: 3 to 24 lower-case letters and digits, unique in the cloud [default: the name]
    #[arg(long, value_name = "NAME")]
    storage_account_name: Option<String>,
    /// The blob container [default: the name]
    #[arg(long, value_name = "NAME")]
    blob_container_name: Option<String>,
    /// Tags of the group and the account; may be repeated or separated by commas
    #[arg(long, value_delimiter = ',', value_parser = parse_tag, value_name = "KEY=VALUE")]
    user_tags: Vec<(String, String)>,
    /// The directory of the key pair, the documents and the manifests
    #[arg(long, default_value = ".", value_name = "DIR")]
    output_dir: PathBuf,
    /// The output format of the result
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

/// The names of the issuer's storage.
struct IssuerNames {
    account: IssuerStorageAccount,
    container: IssuerContainer,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let names = IssuerNames::of(&args)?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: &args.name,
        stack: ResourceStack::Oidc,
        environment: &environment,
    };
    if args.roll_back.roll_back {
        return stack.roll_back(&args.run, args.output, &clock).await;
    }
    let suffix = account.endpoints.blob_suffix();
    let issuer = IssuerUrl::for_container(&names.account, &names.container, &suffix)
        .map_err(|error| CommandError::invalid_input(error.to_string()).with_hint(error.hint()))?;
    let key = load_or_create_key(&args.output_dir)?;
    write_issuer_files(&args.output_dir, &issuer, &key)?;
    let caller = account.caller().await?;
    let parameters = OidcParameters {
        subscription: account.subscription.clone(),
        name: args.name.clone(),
        location: args.location.clone(),
        resource_group: args.group(),
        account: names.account,
        container: names.container,
        tags: args.user_tags.iter().cloned().collect::<ResourceTags>(),
        uploader: match caller.principal_type {
            AssignedPrincipalType::User => PrincipalReference::User(caller.object_id),
            _ => PrincipalReference::ObjectId(caller.object_id),
        },
    };
    let resources = oidc_resources(&parameters);
    if stack.create(resources, &args.run, args.output, &clock).await?.is_none() {
        return Ok(CommandExit::Failed);
    }
    let container = IssuerContainerClient {
        issuer: issuer.clone(),
        credential: account.credential,
        client_options: account.transport.client_options(),
        propagation: PropagationWait { clock, timeout: args.run.run.options().retry_timeout },
    };
    container.publish(key.public_key()).await.map_err(|error| {
        CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
    })?;
    output::print_stderr(&format!("issuer: {issuer}"));
    Ok(CommandExit::Success)
}

impl Args {
    fn group(&self) -> String {
        let name = self.oidc_resource_group_name.clone();
        name.unwrap_or_else(|| format!("{}-oidc", self.name))
    }
}

impl IssuerNames {
    fn of(args: &Args) -> Result<Self, CommandError> {
        let account = args.storage_account_name.as_deref().unwrap_or(&args.name);
        let container = args.blob_container_name.as_deref().unwrap_or(&args.name);
        let invalid = |flag: &str, error: &lanyard_federation::StorageNameError| {
            CommandError::invalid_input(format!("{flag}: {error}")).with_hint(error.hint())
        };
        Ok(Self {
            account: account.parse().map_err(|error| invalid("--storage-account-name", &error))?,
            container: container
                .parse()
                .map_err(|error| invalid("--blob-container-name", &error))?,
        })
    }
}

/// Reads the private key of the directory, or creates a key pair if there is none. The public key follows from
/// the private one, so a missing public file does no harm.
pub(in crate::commands) fn load_or_create_key(
    directory: &Path,
) -> Result<SigningKey, CommandError> {
    let path = directory.join("serviceaccount-signer.private");
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
    key.map_err(|error| {
        CommandError::invalid_input(path.display().to_string())
            .with_cause(&error)
            .with_hint(error.hint())
    })
}

/// Writes the key pair, the documents and the manifest of the issuer.
fn write_issuer_files(
    directory: &Path,
    issuer: &IssuerUrl,
    key: &SigningKey,
) -> Result<(), CommandError> {
    let unavailable = |error: &dyn std::error::Error| {
        CommandError::unavailable("the documents of the issuer cannot be written").with_cause(error)
    };
    let discovery = discovery_file(&IssuerDiscovery::of_issuer(issuer));
    let key_set = key_set_file(&PublishedKeySet::of_key(key.public_key()));
    let mut files: Vec<OutputFile> = signing_key_files(key).into();
    files.push(discovery.map_err(|error| unavailable(&error))?);
    files.push(key_set.map_err(|error| unavailable(&error))?);
    files.push(cluster_authentication_file(issuer));
    files.iter().try_for_each(|file| write_issuer_file(directory, file))
}

fn write_issuer_file(directory: &Path, file: &OutputFile) -> Result<(), CommandError> {
    let path = directory.join(file.path());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| {
            CommandError::unavailable(format!("{} cannot be created", parent.display()))
                .with_cause(&error)
        })?;
    }
    write_file(&path, file.content(), std::fs::Permissions::from_mode(file.mode()))
}
