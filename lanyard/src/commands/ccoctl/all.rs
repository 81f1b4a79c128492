//! `lanyard ccoctl azure create-all`: creates key pair, issuer and identities of a cluster.

use std::path::PathBuf;

use lanyard_clock::SystemClock;

use super::flags::{CreateArgs, IssuerArgs};
use super::managed_identities::IdentityArgs;
use super::oidc_issuer::read_public_key;
use super::report::CcoctlReport;
use crate::commands::issuer::{load_or_create_key, write_key_files, write_output_files};
use crate::exit::{CommandExit, CommandResult};
use crate::output;
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard ccoctl azure create-all --name harbour --region eastus --output-dir harbour \\
    --subscription-id 11111111-2222-3333-4444-555555555555 --tenant-id 66666666-7777-8888-9999-000000000000 \\
    --credentials-requests-dir requests --dnszone-resource-group-name dns";

/// Create key pair, token issuer and managed identities of a cluster
///
/// Runs create-key-pair, unless a public key is given, then create-oidc-issuer and create-managed-identities with
/// the new issuer.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    create: CreateArgs,
    #[command(flatten)]
    issuer: IssuerArgs,
    #[command(flatten)]
    identities: IdentityArgs,
    /// The public key that verifies the tokens [default: a key pair in the output directory]
    #[arg(long, value_name = "FILE")]
    public_key_file: Option<PathBuf>,
}

pub(super) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let Args { create, issuer: issuer_args, identities, public_key_file } = args;
    let issuer = issuer_args.issuer(&create.owner)?;
    let planned = identities.plan(&create, issuer.clone())?;
    let clock = SystemClock::shared();
    let account = create.owner.sign_in(&environment, &clock).await?;
    let stack = create.owner.stack(&account, &environment);
    // Otherwise the issuer would exist when a mistake in the identities is found.
    if !planned.check(&stack, &clock).await? {
        return Ok(CommandExit::Failed);
    }
    let key = if let Some(path) = public_key_file {
        read_public_key(path)?
    } else {
        let pair = load_or_create_key(&create.output_dir)?;
        write_key_files(&create.output_dir, &pair)?;
        pair.public_key().clone()
    };
    write_output_files(&create.output_dir, &issuer_args.files(&issuer, &key)?)?;
    let created = issuer_args.create(&create, &stack, &key, &clock).await?;
    let Some(summary) = created else { return Ok(CommandExit::Failed) };
    let succeeded = summary.succeeded();
    let mut report = CcoctlReport { issuer: Some(summary), ..CcoctlReport::default() };
    if succeeded {
        output::print_stderr(&format!("issuer: {issuer}"));
        if !planned.create(&stack, &mut report, &clock).await? {
            report.print(create.output.format)?;
            return Ok(CommandExit::Failed);
        }
    }
    report.print(create.output.format)
}
