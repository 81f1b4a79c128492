//! `lanyard azure env`: prints the environment variables for a running local Azure.

use std::path::PathBuf;

use super::session::ServeSession;
use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};
use crate::settings::ProcessEnvironment;

/// Print the exports that send the requests of Azure clients to the running local Azure
///
/// Use it as `eval "$(lanyard azure env)"`. The Azure CLI, the Azure SDKs and curl then reach the local Azure
/// under the real public names, and no other host on the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The state directory of the local Azure, if it was started with one [default: that of
    /// `LANYARD_AZURE_CONTROL`, or else the one without a state directory]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The node of the metadata service, which was created with `PUT /lanyard/v1/nodes/NAME`
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The format of the exports; `table` prints shell lines
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

pub(crate) fn run(args: &Args, environment: &ProcessEnvironment) -> CommandResult {
    let mut exports = ServeSession::find(args.state.as_deref(), environment)?.exports();
    if let Some(node) = &args.node {
        exports = exports.for_node(node);
    }
    output::print_stdout(&match args.output {
        CliOutputFormat::Table => exports.to_shell(),
        format => {
            let set: std::collections::BTreeMap<_, _> = exports.variables_to_set().collect();
            let variables =
                serde_json::json!({ "set": set, "unset": exports.variables_to_unset() });
            output::serialize_document(&variables, format)
        }
    })?;
    Ok(CommandExit::Success)
}
