//! `lanyard node`: the node plugin and its tools.

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

const EXAMPLE: &str = "\
Examples:
  lanyard node --nodeid worker-1 --metrics-addr :8080
  lanyard node --nodeid worker-1 --classes classes.yaml";

/// Mount Key Vault content into the pods of this node
///
/// One process replaces the Secrets Store CSI driver, the Azure Key Vault provider, the registrar and the
/// liveness probe, with the same driver name, sockets, classes and flags. Runs until SIGTERM; mounted volumes
/// stay.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Box<NodeArgs>,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

/// The subcommands of `lanyard node`. Without one, the command runs the plugin.
#[derive(Debug, clap::Subcommand)]
enum NodeCommand {
    /// Manage policies for identities that the pods of a node share
    Policy {
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

impl Args {
    /// The default log filter.
    pub(crate) const fn default_log_filter(&self) -> &'static str {
        match self.command {
            None => self.run.logs.log_filter(),
            Some(NodeCommand::Policy { .. }) => "error",
        }
    }

    /// Whether log lines are JSON objects.
    pub(crate) const fn logs_json(&self) -> bool {
        self.run.logs.log_format_json.0
    }
}

/// Runs the node plugin or a subcommand.
pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    match args.command {
        None => run::run(*args.run, environment).await,
        Some(NodeCommand::Policy { command }) => policy::run(&command),
    }
}
