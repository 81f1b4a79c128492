//! `lanyard create oidc azure`: creates a token issuer.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_infra::{DEFAULT_LOCATION, stacks};

use super::infra::parse_tag;
use crate::commands::azure_account::{AccountArgs, AzureAccount};
use crate::commands::azure_resources::roll_back::RollBackArgs;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::commands::issuer::{
    IssuerNames, IssuerRequest, create_issuer, issuer_documents, load_or_create_key,
    write_key_files, write_output_files,
};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create oidc azure --name harbourdev --output-dir issuer";

/// Create or change a token issuer for hosted clusters in Azure
///
/// Creates a key pair, a storage account with a public container, and the two documents that Entra ID reads. An
/// existing private key in the output directory is used again, and keys that are published already stay published.
/// At the end, the command reads both documents without a credential and compares them with the key.
///
/// The command uploads with the signed-in identity, which gets Storage Blob Data Contributor at the account. Azure
/// may need 10 minutes until the role takes effect.
///
/// A later run changes resources that differ from the flags. Each identity that runs the command gets a role of its
/// own, which stays when another identity runs the command.
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
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: SharedRunArgs,
    #[command(flatten)]
    roll_back: RollBackArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let (account, container) = (&args.storage_account_name, &args.blob_container_name);
    let names = IssuerNames::parse(&args.name, account.as_deref(), container.as_deref())?;
    let clock = SystemClock::shared();
    let account = AzureAccount::sign_in(&args.account, &environment, &clock).await?;
    let stack = SharedStack {
        account: &account,
        name: &args.name,
        stack: stacks::OIDC,
        environment: &environment,
    };
    if args.roll_back.roll_back {
        return stack.roll_back(&args.run, args.output.format, &clock).await;
    }
    let issuer = names.issuer(account.endpoints)?;
    let key = load_or_create_key(&args.output_dir)?;
    write_key_files(&args.output_dir, &key)?;
    write_output_files(&args.output_dir, &issuer_documents(&issuer, key.public_key())?)?;
    let request = IssuerRequest {
        location: args.location.clone(),
        resource_group: args.group(),
        names,
        issuer: issuer.clone(),
        tags: args.user_tags.iter().cloned().collect(),
    };
    let created = create_issuer(&stack, request, key.public_key(), &args.run, &clock).await?;
    let Some(summary) = created else { return Ok(CommandExit::Failed) };
    output::print_value(&summary, args.output.format, |_| summary.to_string())?;
    if !summary.succeeded() {
        return Ok(CommandExit::Failed);
    }
    output::print_stderr(&format!("issuer: {issuer}"));
    Ok(CommandExit::Success)
}

impl Args {
    fn group(&self) -> String {
        let name = self.oidc_resource_group_name.clone();
        name.unwrap_or_else(|| format!("{}-oidc", self.name))
    }
}
