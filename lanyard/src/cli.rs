//! The command line: its documentation is the help.

use clap::{Parser, Subcommand};

use crate::commands;
use crate::logging::LogArgs;

/// Azure identities for the components that need them
///
/// Lanyard follows an identity from the HostedCluster that names it to the Azure request that it
/// authorizes: SecretProviderClass, node, vault, file, certificate, token, call.
#[derive(Debug, Parser)]
#[command(
    name = "lanyard",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 good, 1 something is not good, 2 invalid input, 3 the surroundings do not allow it."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Walk the whole road on this machine, on a local Azure
    #[cfg(feature = "emulator")]
    Up(commands::up::Args),
    /// Print the objects that a HostedCluster asks for
    Render(commands::render::Args),
    /// Look at credentials
    Credential {
        #[command(subcommand)]
        command: CredentialCommand,
    },
    /// Run a strict local Azure
    #[cfg(feature = "emulator")]
    Azure {
        #[command(subcommand)]
        command: AzureCommand,
    },
}

impl Command {
    /// What is logged unless the person asks for more: a command that reports by itself has said
    /// everything below an error already.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        match self {
            #[cfg(feature = "emulator")]
            Self::Azure { .. } => "warn",
            _ => "error",
        }
    }
}

/// The commands about credentials.
#[derive(Debug, Subcommand)]
pub(crate) enum CredentialCommand {
    /// Say what is in a credential file, and whether it works
    Check(commands::credential::check::Args),
}

/// The commands about the local Azure.
#[cfg(feature = "emulator")]
#[derive(Debug, Subcommand)]
pub(crate) enum AzureCommand {
    /// Serve the local Azure until interrupted
    Serve(commands::azure::serve::Args),
    /// Print the exports that send other people's clients to the running local Azure
    Env(commands::azure::env::Args),
    /// Run a command inside a local Azure of its own, and print what it asked for
    Run(commands::azure::run::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
