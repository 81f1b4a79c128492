//! `lanyard azure env`: prints the environment variables for a running local Azure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanyard_emulator_session::{ShellExports, ShellSyntax};

use super::find_session;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  eval \"$(lanyard azure env)\"
  eval \"$(lanyard azure env --unset)\"
  lanyard azure env --shell fish | source
  lanyard azure env --shell dotenv > azure.env";

/// Print the variables that send the requests of Azure clients to the running local Azure
///
/// The local Azure is that of `lanyard azure serve` or of `lanyard up`. With the variables, the Azure CLI, the Azure
/// SDKs and curl reach it under the real public names, and no other host on the network. The command writes no file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The state directory of the local Azure, if it was started with one [default: that of
    /// `LANYARD_AZURE_CONTROL`, or else the running `lanyard azure serve` or `lanyard up`]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The node of the metadata service, which was created with `PUT /lanyard/v1/nodes/NAME`
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print the lines that unset the variables; no local Azure needs to run
    #[arg(long, conflicts_with_all = ["state", "node"])]
    unset: bool,
    /// The syntax of the lines, for the output format `table`
    #[arg(long, value_enum, default_value = "bash", value_name = "SHELL")]
    shell: ShellSyntax,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &Args, environment: &ProcessEnvironment) -> CommandResult {
    if args.unset && args.shell == ShellSyntax::Dotenv {
        return Err(CommandError::invalid_input("--unset: a dotenv file cannot unset variables")
            .with_hint("choose the shell in which the variables are set"));
    }
    let exports = match &args.node {
        _ if args.unset => ShellExports::undo(&environment.session_environment()),
        None => find_session(args.state.as_deref(), environment)?.exports(),
        Some(node) => find_session(args.state.as_deref(), environment)?.exports().for_node(node),
    };
    output::print_stdout(&match args.output.format {
        CliOutputFormat::Table => exports.to_shell(args.shell),
        format => {
            let set: BTreeMap<_, _> = exports.variables_to_set().collect();
            let variables =
                serde_json::json!({ "set": set, "unset": exports.variables_to_unset() });
            output::serialize_document(&variables, format)
        }
    })?;
    Ok(CommandExit::Success)
}
