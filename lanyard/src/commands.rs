//! The commands, one file each: arguments, implementation and output.
//!
//! Each command is compiled with the feature of its group. Helpers of several groups are compiled with any of
//! these features.

#[cfg(feature = "cli")]
pub(crate) mod apply;
#[cfg(feature = "emulator")]
pub(crate) mod azure;
#[cfg(feature = "cli")]
mod azure_account;
#[cfg(feature = "cli")]
mod azure_resources;
#[cfg(any(feature = "node", feature = "kms", feature = "canary", feature = "cli"))]
mod azure_transport;
#[cfg(feature = "canary")]
pub(crate) mod canary;
#[cfg(feature = "cli")]
pub(crate) mod ccoctl;
#[cfg(feature = "cli")]
pub(crate) mod check;
#[cfg(any(feature = "node", feature = "operator", feature = "canary", feature = "cli"))]
mod cluster_access;
#[cfg(feature = "cli")]
mod cluster_objects;
#[cfg(feature = "cli")]
pub(crate) mod completions;
#[cfg(feature = "cli")]
pub(crate) mod create;
#[cfg(feature = "cli")]
pub(crate) mod credential;
#[cfg(feature = "cli")]
pub(crate) mod destroy;
#[cfg(feature = "cli")]
pub(crate) mod fleet;
#[cfg(feature = "cli")]
pub(crate) mod forecast;
#[cfg(any(feature = "node", feature = "operator", feature = "kms", feature = "cli"))]
mod go_bool;
#[cfg(any(
    feature = "node",
    feature = "operator",
    feature = "kms",
    feature = "canary",
    feature = "cli"
))]
mod go_duration;
#[cfg(any(feature = "cli", feature = "up"))]
mod hosted_cluster;
#[cfg(feature = "cli")]
pub(crate) mod identities;
#[cfg(feature = "cli")]
pub(crate) mod import;
#[cfg(feature = "cli")]
mod issuer;
#[cfg(feature = "kms")]
pub(crate) mod kms;
#[cfg(feature = "cli")]
mod kubectl;
#[cfg(feature = "cli")]
mod kubectl_input;
#[cfg(feature = "cli")]
pub(crate) mod man;
#[cfg(feature = "node")]
pub(crate) mod node;
#[cfg(feature = "operator")]
pub(crate) mod operator;
#[cfg(feature = "cli")]
pub(crate) mod plan;
#[cfg(feature = "cli")]
pub(crate) mod platform;
#[cfg(any(feature = "operator", feature = "cli", feature = "up"))]
mod problem_text;
#[cfg(feature = "cli")]
pub(crate) mod render;
#[cfg(feature = "cli")]
pub(crate) mod rotate;
#[cfg(any(feature = "operator", feature = "cli"))]
mod rotation_timing;
#[cfg(feature = "cli")]
mod service_principals;
#[cfg(feature = "cli")]
pub(crate) mod sweep;
#[cfg(feature = "up")]
pub(crate) mod up;
#[cfg(feature = "cli")]
pub(crate) mod version;
#[cfg(any(feature = "operator", feature = "cli"))]
mod workloads;

use std::future::Future;
use std::time::Duration;

#[cfg(feature = "emulator")]
use crate::cli::AzureCommand;
#[cfg(feature = "cli")]
use crate::cli::CredentialCommand;
use crate::cli::{Cli, CliCommand};
use crate::exit::{CommandError, CommandResult};
use crate::settings::ProcessEnvironment;

/// Runs the command of the command line.
pub(crate) fn run(cli: Cli) -> CommandResult {
    let environment = ProcessEnvironment::load();
    match cli.command {
        #[cfg(feature = "up")]
        CliCommand::Up(args) => block_on(up::run(args, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Render(args) => render::run(&args),
        #[cfg(feature = "cli")]
        CliCommand::Forecast(args) => block_on(forecast::run(args, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Identities(args) => block_on(identities::run(args, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Plan(platform) => block_on(plan::run(platform.into_args(), environment)),
        #[cfg(feature = "cli")]
        CliCommand::Apply(platform) => block_on(apply::run(platform.into_args(), environment)),
        #[cfg(feature = "cli")]
        CliCommand::Import(platform) => block_on(import::run(platform.into_args(), environment)),
        #[cfg(feature = "cli")]
        CliCommand::Check(platform) => block_on(check::run(platform.into_args(), environment)),
        #[cfg(feature = "cli")]
        CliCommand::Create(command) => block_on(create::run(command, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Destroy(command) => block_on(destroy::run(command, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Sweep(platform) => block_on(sweep::run(platform.into_args(), environment)),
        #[cfg(feature = "cli")]
        CliCommand::Rotate(command) => block_on(rotate::run_rotate(command, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Refresh(command) => block_on(rotate::run_refresh(command, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Ccoctl(platform) => block_on(ccoctl::run(platform, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Fleet(command) => block_on(fleet::run(command, environment)),
        #[cfg(feature = "cli")]
        CliCommand::Completions(args) => completions::run(&args, crate::cli::command()),
        #[cfg(feature = "cli")]
        CliCommand::Man(args) => man::run(&args, crate::cli::command()),
        #[cfg(feature = "cli")]
        CliCommand::Version(args) => version::run(&args),
        #[cfg(feature = "kms")]
        CliCommand::Kms(args) => {
            run_on_runtime(&mut multi_thread_builder(KMS_THREADS), kms::run(args, environment))
        }
        #[cfg(feature = "canary")]
        CliCommand::Canary(args) => block_on_one_thread(canary::run(*args, environment)),
        #[cfg(feature = "operator")]
        CliCommand::Operator(args) => run_on_runtime(
            &mut multi_thread_builder(OPERATOR_THREADS),
            operator::run(args, environment),
        ),
        #[cfg(feature = "node")]
        CliCommand::Node(args) => run_node(args, environment),
        #[cfg(feature = "cli")]
        CliCommand::Credential(CredentialCommand::Check(args)) => {
            block_on(credential::check::run(args, environment))
        }
        #[cfg(feature = "emulator")]
        CliCommand::Azure(command) => run_azure(command, environment),
    }
}

/// Runs a command of `lanyard azure`.
#[cfg(feature = "emulator")]
fn run_azure(command: AzureCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        AzureCommand::Serve(args) => block_on(azure::serve::run(args, environment)),
        AzureCommand::Env(args) => azure::env::run(&args, &environment),
        AzureCommand::Run(args) => block_on(azure::run::run(args, environment)),
        AzureCommand::Login(args) => block_on(azure::login::run(args, environment)),
        AzureCommand::Snapshot(args) => block_on(azure::snapshot::run(args, environment)),
        AzureCommand::Export(args) => block_on(azure::export::run(args, environment)),
        AzureCommand::Operations(args) => azure::operations::run(&args),
        AzureCommand::Settings(command) => {
            block_on_one_thread(azure::settings::run(command, environment))
        }
        AzureCommand::Fault(command) => {
            block_on_one_thread(azure::fault::run(command, environment))
        }
        AzureCommand::FaultDrill(command) => {
            block_on_one_thread(azure::drills::run(command, environment))
        }
    }
}

/// Runs `lanyard node`.
#[cfg(feature = "node")]
fn run_node(args: node::Args, environment: ProcessEnvironment) -> CommandResult {
    let mut builder = multi_thread_builder(NODE_THREADS);
    run_on_runtime(builder.thread_keep_alive(NODE_THREAD_KEEP_ALIVE), node::run(args, environment))
}

fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    run_on_runtime(tokio::runtime::Builder::new_multi_thread().enable_all(), work)
}

/// Runs `work` on a single-threaded runtime, for short commands that mostly wait for I/O and run very often.
fn block_on_one_thread(work: impl Future<Output = CommandResult>) -> CommandResult {
    run_on_runtime(tokio::runtime::Builder::new_current_thread().enable_all(), work)
}

/// A runtime with at most `most` worker threads, and never more than the number of processors.
fn multi_thread_builder(most: usize) -> tokio::runtime::Builder {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(most);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    builder
}

/// The node plugin mostly waits for I/O, and every thread costs memory on every node.
#[cfg(feature = "node")]
const NODE_THREADS: usize = 2;

/// How long an idle blocking thread of the node plugin is kept. Mounts come in bursts, and a thread keeps its
/// stack and its heap arena.
#[cfg(feature = "node")]
const NODE_THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The operator mostly waits for the API server. Measured with a second thread, it was slower: the threads
/// contend for the heap, and the API server loses a processor.
#[cfg(feature = "operator")]
const OPERATOR_THREADS: usize = 1;

/// The KMS plugin mostly waits for the vault.
#[cfg(feature = "kms")]
const KMS_THREADS: usize = 2;

/// How long blocking work may continue after the command has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

fn run_on_runtime(
    builder: &mut tokio::runtime::Builder,
    work: impl Future<Output = CommandResult>,
) -> CommandResult {
    match builder.build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(work);
            // Blocking work cannot be cancelled. The timeout prevents a hanging disk from delaying the exit.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            outcome
        }
        Err(error) => {
            Err(CommandError::unavailable("the runtime cannot be started").with_cause(&error))
        }
    }
}
