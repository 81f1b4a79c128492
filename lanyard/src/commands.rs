//! One file per command: its arguments, its work, its output.

#[cfg(feature = "emulator")]
pub(crate) mod azure;
mod azure_way;
pub(crate) mod canary;
mod cluster_access;
pub(crate) mod credential;
pub(crate) mod forecast;
mod go_values;
mod hosted_cluster;
pub(crate) mod identities;
pub(crate) mod kms;
mod kubectl;
pub(crate) mod node;
pub(crate) mod operator;
mod reach;
pub(crate) mod render;
#[cfg(feature = "emulator")]
pub(crate) mod up;
mod workloads;

use std::future::Future;
use std::time::Duration;

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
        Command::Forecast(args) => block_on(forecast::run(args, environment)),
        Command::Identities(args) => block_on(identities::run(args, environment)),
        Command::Kms(args) => block_on_threads(KMS_THREADS, kms::run(args, environment)),
        Command::Canary(args) => block_on_one_thread(canary::run(*args, environment)),
        Command::Operator(args) => {
            block_on_threads(OPERATOR_THREADS, operator::run(args, environment))
        }
        Command::Node(args) => block_on_threads(NODE_THREADS, node::run(args, environment)),
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
    run_on(tokio::runtime::Builder::new_multi_thread().enable_all(), work)
}

/// The same on this thread alone: for what waits almost always and runs a thousand times.
fn block_on_one_thread(work: impl Future<Output = CommandResult>) -> CommandResult {
    run_on(tokio::runtime::Builder::new_current_thread().enable_all(), work)
}

/// The same on so many threads at most, whatever the machine has.
fn block_on_threads(most: usize, work: impl Future<Output = CommandResult>) -> CommandResult {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most);
    run_on(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all(), work)
}

/// The node plugin waits for others almost always, and each thread costs memory on every node.
const NODE_THREADS: usize = 4;

/// The operator waits for the API server almost always. A second thread made it slower: they wait for
/// each other at the one heap, and the API server for a processor.
const OPERATOR_THREADS: usize = 1;

/// The KMS plugin waits for the vault almost always.
const KMS_THREADS: usize = 2;

/// How long blocking work may go on after a command has ended.
const LONGEST_REST: Duration = Duration::from_secs(2);

fn run_on(
    builder: &mut tokio::runtime::Builder,
    work: impl Future<Output = CommandResult>,
) -> CommandResult {
    match builder.build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(work);
            // Work that blocks cannot be called off: a disk that hangs keeps no process from its end.
            runtime.shutdown_timeout(LONGEST_REST);
            outcome
        }
        Err(error) => {
            Err(CommandError::unavailable("the runtime cannot be started").because(&error))
        }
    }
}
