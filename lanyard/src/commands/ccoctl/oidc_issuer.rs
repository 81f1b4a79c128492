//! `lanyard ccoctl azure create-oidc-issuer`: creates the token issuer of a cluster.

use std::path::PathBuf;

use lanyard_clock::SystemClock;
use lanyard_federation::SigningPublicKey;

use super::flags::{CreateArgs, IssuerArgs};
use super::report::{CcoctlReport, print_dry_run};
use crate::commands::go_bool::GoBool;
use crate::commands::issuer::write_output_files;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard ccoctl azure create-key-pair --output-dir harbour
  lanyard ccoctl azure create-oidc-issuer --name harbour --region eastus --output-dir harbour \\
    --subscription-id 11111111-2222-3333-4444-555555555555 --tenant-id 66666666-7777-8888-9999-000000000000";

/// Create the token issuer of a cluster
///
/// Creates a storage account with a public container, and uploads the discovery document and the key set, which
/// Entra ID reads. Writes both documents and the manifests for the installer. Keys that are published already stay
/// published. At the end, the command reads both documents without a credential and compares them with the key.
///
/// The signed-in identity gets Storage Blob Data Contributor at the account.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    issuer: IssuerArgs,
    /// The public key that verifies the tokens [default: `serviceaccount-signer.public` in the output directory]
    #[arg(long, value_name = "FILE")]
    public_key_file: Option<PathBuf>,
    /// Write the files, and send no request to Azure
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    dry_run: GoBool,
}

pub(super) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let Args { create, issuer: issuer_args, .. } = &args;
    let issuer = issuer_args.issuer(&create.owner)?;
    let key = read_public_key(
        args.public_key_file
            .clone()
            .unwrap_or_else(|| create.output_dir.join("serviceaccount-signer.public")),
    )?;
    let files = issuer_args.files(&issuer, &key)?;
    write_output_files(&create.output_dir, &files)?;
    if args.dry_run.0 {
        let paths = files.iter().map(|it| create.output_dir.join(it.path()).display().to_string());
        return print_dry_run(&paths.collect::<Vec<_>>());
    }
    let clock = SystemClock::shared();
    let account = create.owner.sign_in(&environment, &clock).await?;
    let stack = create.owner.stack(&account, &environment);
    let created = issuer_args.create(create, &stack, &key, &clock).await?;
    let Some(summary) = created else { return Ok(CommandExit::Failed) };
    output::print_stderr(&format!("issuer: {issuer}"));
    CcoctlReport { issuer: Some(summary), ..CcoctlReport::default() }.print(create.output.format)
}

/// Reads the public key of a file.
pub(super) fn read_public_key(path: PathBuf) -> Result<SigningPublicKey, CommandError> {
    let invalid = format!("--public-key-file: {}", path.display());
    let text = std::fs::read_to_string(&path)
        .or_invalid(&invalid)
        .hint("create a key pair with `lanyard ccoctl azure create-key-pair`")?;
    SigningPublicKey::parse_pem(&text).context(invalid).mark_invalid()
}
