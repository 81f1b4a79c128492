//! One file per command: its arguments, its work, its output.

#[cfg(feature = "emulator")]
pub(crate) mod azure;
pub(crate) mod credential;
mod hosted_cluster;
pub(crate) mod node;
pub(crate) mod render;
#[cfg(feature = "emulator")]
pub(crate) mod up;

use std::future::Future;

#[cfg(feature = "emulator")]
use crate::cli::AzureCommand;
use crate::cli::{Cli, Command, CredentialCommand};
use crate::exit::{CommandError, CommandResult};
use crate::settings::Environment;

/// Runs the command that the person asked for.
pub(crate) fn run(cli: Cli) -> CommandResult {
    let environment = Environment::load();
    match cli.command {
        #[cfg(feature = "emulator")]
        Command::Up(args) => block_on(up::run(args, environment)),
        Command::Render(args) => render::run(&args),
        Command::Node(args) => block_on(node::run(args, environment)),
        Command::Credential { command: CredentialCommand::Check(args) } => {
            block_on(credential::check::run(args, environment))
        }
        #[cfg(feature = "emulator")]
        Command::Azure { command } => match command {
            AzureCommand::Serve(args) => block_on(azure::serve::run(args, environment)),
            AzureCommand::Env(args) => azure::env::run(&args, &environment),
            AzureCommand::Run(args) => block_on(azure::run::run(args, environment)),
        },
    }
}

fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            Err(CommandError::unavailable("the runtime cannot be started").because(&error))
        }
    }
}
