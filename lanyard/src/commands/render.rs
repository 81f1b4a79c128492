//! `lanyard render`: the objects that a HostedCluster asks for.

use std::fs;
use std::path::{Path, PathBuf};

use lanyard_desired::{Names, RenderedFile, desired, render};
use lanyard_vocabulary::ClientId;

use super::hosted_cluster;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::output;

/// Print the objects that a HostedCluster asks for
///
/// Nine SecretProviderClasses, the cloud configurations, what the network controller is told, the
/// AzureClusterIdentity, and for each deployment the patch with its volumes, mounts and variables.
/// The output depends on the HostedCluster alone, so it can be reviewed and compared.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The HostedCluster; `-` reads standard input [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write one file per object into this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// The managed identity of the management cluster's nodes that reads the vault
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<ClientId>,
}

/// Prints or writes the objects.
pub(crate) fn run(args: &Args) -> CommandResult {
    let cluster = hosted_cluster::load(args.file.as_deref())?;
    if args.vault_reader.is_none() {
        output::note(
            "lint: no --vault-reader: the classes name no identity, so the node's own is used",
        );
    }
    let names = Names { vault_reader: args.vault_reader, ..Names::default() };
    let files = render(&desired(&cluster, &names)).map_err(|error| {
        CommandError::invalid("an object cannot be written as YAML").because(&error)
    })?;
    match &args.output_dir {
        None => {
            let documents: Vec<_> = files.iter().map(|file| file.text.as_str()).collect();
            output::print(&documents.join("---\n"));
        }
        Some(directory) => {
            write(directory, &files)?;
            output::note(&format!("{} files in {}", files.len(), directory.display()));
        }
    }
    Ok(Exit::Good)
}

fn write(directory: &Path, files: &[RenderedFile]) -> Result<(), CommandError> {
    let written = fs::create_dir_all(directory).and_then(|()| {
        files.iter().try_for_each(|file| fs::write(directory.join(&file.name), &file.text))
    });
    written.map_err(|error| {
        CommandError::unavailable(format!("cannot write into {}", directory.display()))
            .because(&error)
            .hint("choose another directory with --output-dir")
    })
}
