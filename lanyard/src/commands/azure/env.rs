//! `lanyard azure env`: the exports for a running local Azure.

use std::path::PathBuf;

use super::session::{self, Session};
use crate::exit::{CommandResult, Exit};
use crate::output::{self, Format};
use crate::settings::Environment;

/// Print the exports that send other people's clients to the running local Azure
///
/// Use it as `eval "$(lanyard azure env)"`. The Azure CLI, the Azure SDKs and curl then reach the
/// local Azure under the real public names, and nothing else on the network.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The state directory of the local Azure, if it was started with one
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The form of the exports; `table` prints shell lines
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

/// Prints the exports.
pub(crate) fn run(args: &Args, environment: &Environment) -> CommandResult {
    let directory = session::directory(args.state.as_deref(), environment);
    let exports = Session::load(&directory)?.exports();
    output::print(&match args.output {
        Format::Table => exports.shell(),
        format => {
            let set: std::collections::BTreeMap<_, _> = exports.set().collect();
            let variables = serde_json::json!({ "set": set, "unset": exports.unset() });
            output::document(&variables, format)
        }
    })?;
    Ok(Exit::Good)
}
