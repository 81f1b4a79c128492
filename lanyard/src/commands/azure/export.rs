//! `lanyard azure export`: prints the state of the running local Azure.

use http::Method;
use serde_json::Value;

use super::control_client::{ControlClient, ControlFlags};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{ColumnKind, OutputArgs, TextTable, print_value};
use crate::settings::ProcessEnvironment;

/// Print the state of the running local Azure
///
/// Prints resources, tenants, users, groups, applications, service principals, role assignments, and the names
/// of vault objects and blobs. The output format `table` contains only their numbers. To restore a state, use
/// `lanyard azure snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  lanyard azure export
  lanyard azure export -o json | jq '.roleAssignments[] | {role, scope}'")]
pub(crate) struct Args {
    #[command(flatten)]
    control: ControlFlags,
    /// Print the values of vault secrets and client secrets, too
    #[arg(long)]
    secrets: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let client = ControlClient::find(&args.control, &environment)?;
    let path = format!("export?secrets={}", args.secrets);
    let export = client.send(Method::GET, &path, None).await?;
    print_value(&export, args.output.format, |line_width| export_text(&export, line_width))?;
    Ok(CommandExit::Success)
}

/// The number of objects of each kind.
fn export_text(export: &Value, line_width: Option<usize>) -> String {
    let mut table = TextTable::new([(ColumnKind::Name, "KIND"), (ColumnKind::Number, "COUNT")]);
    for (kind, objects) in export.as_object().into_iter().flatten() {
        if let Value::Array(objects) = objects {
            table.add_row([kind.clone(), objects.len().to_string()]);
        }
    }
    table.render(line_width)
}
