//! `lanyard ccoctl azure create-key-pair`: creates the key pair that signs service account tokens.

use std::path::PathBuf;

use crate::commands::issuer::{load_or_create_key, write_key_files};
use crate::exit::{CommandExit, CommandResult};

const EXAMPLE: &str = "\
Examples:
  lanyard ccoctl azure create-key-pair --output-dir harbour";

/// Create the key pair that signs service account tokens
///
/// Writes `serviceaccount-signer.private`, `serviceaccount-signer.public` and the copy of the private key that the
/// installer reads. An existing private key is kept, and the other files are written from it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The directory of the files
    #[arg(long, default_value = ".", value_name = "DIR")]
    output_dir: PathBuf,
}

pub(super) fn run(args: &Args) -> CommandResult {
    write_key_files(&args.output_dir, &load_or_create_key(&args.output_dir)?)?;
    Ok(CommandExit::Success)
}
