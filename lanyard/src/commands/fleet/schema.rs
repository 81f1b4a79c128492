//! `lanyard fleet schema`: the JSON Schema of a `fleet.yaml`.

use lanyard_fleet::fleet_schema;

use crate::exit::{CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat};

/// Print the JSON Schema of a fleet file
///
/// Editors complete and check a `fleet.yaml` by its schema.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  lanyard fleet schema > fleet.schema.json")]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> CommandResult {
    output::print_stdout(&output::serialize_document(&fleet_schema(), CliOutputFormat::Json))?;
    Ok(CommandExit::Success)
}
