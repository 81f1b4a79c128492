//! `lanyard azure snapshot`: saves and restores the state of the running local Azure.

use std::fs;
use std::path::PathBuf;

use http::Method;
use lanyard_emulator_session::{LocalTestCredentials, replace_file};

use super::control_client::{ControlClient, ControlFlags};
use super::find_session;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _};
use crate::settings::ProcessEnvironment;

/// Save or restore the state of the running local Azure
///
/// A snapshot is a file with the complete state: resources, directory, role assignments, vaults and blobs with
/// their secrets and private keys, the clock, and fault rules. Only you can read it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SnapshotCommand {
    /// Write the state to a file
    ///
    /// Replaces an existing file. Only the owner of the file can read it, because it contains every secret and
    /// private key.
    #[command(after_long_help = "Examples:\n  lanyard azure snapshot save before-upgrade.json")]
    Save(FileArgs),
    /// Replace the state with that of a file
    ///
    /// The replacement is atomic, and also applies to the state directory. The certificate authority and the
    /// request log stay as they are.
    #[command(after_long_help = "Examples:\n  lanyard azure snapshot restore before-upgrade.json")]
    Restore(FileArgs),
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// The snapshot
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    control: ControlFlags,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    match args.command {
        SnapshotCommand::Save(args) => save(&args, &environment).await?,
        SnapshotCommand::Restore(args) => restore(&args, &environment).await?,
    }
    Ok(CommandExit::Success)
}

async fn save(args: &FileArgs, environment: &ProcessEnvironment) -> Result<(), CommandError> {
    let client = ControlClient::find(&args.control, environment)?;
    let snapshot = client.send_text(Method::GET, "snapshot", Vec::new()).await?;
    // Temporary files are readable by their owner only.
    replace_file(&args.file, &snapshot)
        .or_invalid(format_args!("{} cannot be written", args.file.display()))
}

async fn restore(args: &FileArgs, environment: &ProcessEnvironment) -> Result<(), CommandError> {
    let client = ControlClient::find(&args.control, environment)?;
    let snapshot =
        fs::read(&args.file).or_invalid(format_args!("{} cannot be read", args.file.display()))?;
    client.send_text(Method::PUT, "snapshot", snapshot).await?;
    // The saved credentials belong to the replaced state. `lanyard azure run` saves none.
    let Ok(session) = find_session(args.control.state(), environment) else { return Ok(()) };
    let directory = session.directory();
    let is_exported = LocalTestCredentials::load(directory).is_some_and(|it| it.is_exported());
    let test_clients = client.read_if_exists("test-clients", "NoTestClients").await?;
    let credentials = match &test_clients {
        Some(json) => Some(LocalTestCredentials::of_control_api(json, is_exported)?),
        None => None,
    };
    Ok(LocalTestCredentials::write(credentials.as_ref(), directory)?)
}
