//! `lanyard azure export`: prints the state of the running local Azure.

use http::Method;

use super::control_client::{ControlClient, ControlFlags};
use crate::exit::{CommandExit, CommandResult};
use crate::output::{CliOutputFormat, print_stdout, serialize_document};
use crate::settings::ProcessEnvironment;

/// Print the state of the running local Azure
///
/// Prints resources, tenants, users, groups, applications, service principals, role assignments, and the names
/// of vault objects and blobs. To restore a state, use `lanyard azure snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanyard azure export | jq '.roleAssignments[] | {role, scope}'")]
pub(crate) struct Args {
    #[command(flatten)]
    control: ControlFlags,
    /// Print the values of vault secrets and client secrets, too
    #[arg(long)]
    secrets: bool,
    /// The output format; `table` prints JSON
    #[arg(long, short, value_enum, default_value = "json", value_name = "FORMAT")]
    output: CliOutputFormat,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    let client = ControlClient::find(&args.control, &environment)?;
    let path = format!("export?secrets={}", args.secrets);
    let export = client.send(Method::GET, &path, None).await?;
    print_stdout(&serialize_document(&export, args.output))?;
    Ok(CommandExit::Success)
}
