//! `lanyard node`: the node plugin, and what belongs to it.

mod azure_provider;
mod csi_endpoint;
mod flags;
mod kubernetes;
mod memory_quantity;
#[cfg(feature = "crash-points")]
mod offset_clock;
mod policy;
mod run;
mod settings;
mod supervised_tasks;
#[cfg(test)]
mod tests;
mod vault_request_counter;
mod volume_writer_lock;

use self::flags::NodeArgs;
use self::policy::PolicyCommand;
use crate::exit::CommandResult;
use crate::settings::ProcessEnvironment;

/// Mount Key Vault content into the pods of this node
///
/// One process in place of the Secrets Store CSI driver, the Azure Key Vault provider, the
/// registrar and the liveness probe: same driver name, sockets, classes and flags. Runs until
/// SIGTERM; mounted volumes stay.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<NodeArgs>,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

/// What belongs to the node plugin and does not run it.
#[derive(Debug, clap::Subcommand)]
enum NodeCommand {
    /// Look after policies for identities that a node's pods share
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

impl Args {
    /// What is logged unless the person asks for more.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        match self.command {
            None => self.run.logs.log_filter(),
            Some(NodeCommand::Policy { .. }) => "error",
        }
    }

    /// Whether each line of the log is a JSON object.
    pub(crate) const fn logs_json(&self) -> bool {
        self.run.logs.log_format_json.0
    }
}

/// Runs the node plugin, or what belongs to it.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    match args.command {
        None => run::run(*args.run, environment).await,
        Some(NodeCommand::Policy { command }) => policy::run(&command),
    }
}
