//! `lanyard azure drill`: lists, starts and stops drills of the running local Azure.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{ContentArrangement, Table};
use http::Method;
use lanyard_emulator::FaultDrill;

use super::control_client::{ControlClient, ControlFlags};
use super::local_azure_flags::read_drill_file;
use crate::exit::{CommandExit, CommandResult};
use crate::output::{CliOutputFormat, print_stdout, serialize_document};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard azure drill`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DrillCommand {
    List(ListArgs),
    Start(StartArgs),
    Stop(StopArgs),
}

/// List the drills
///
/// A drill is a situation of Azure that clients have to survive: settings, fault rules, and steps at emulated
/// times. The list shows what each does, and what a client is expected to do.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The output format
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

/// Start a drill in the running local Azure
///
/// One drill runs at a time. Its steps follow the time of the local Azure, which you can advance.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanyard azure fault_drill start kv-throttled-at-boot")]
pub(crate) struct StartArgs {
    /// The name of a drill, or a file in JSON or YAML
    #[arg(value_name = "NAME|FILE")]
    fault_drill: String,
    #[command(flatten)]
    control: ControlFlags,
}

/// Stop the running drill
///
/// Restores the settings and removes the fault rules of the drill. What its steps did stays.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    control: ControlFlags,
}

pub(crate) async fn run(command: DrillCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        DrillCommand::List(args) => match args.output {
            CliOutputFormat::Table => print_stdout(&drill_table(&FaultDrill::named_drills()))?,
            format => print_stdout(&serialize_document(&FaultDrill::named_drills(), format))?,
        },
        DrillCommand::Start(args) => {
            let file = read_drill_file(&args.fault_drill)?;
            let client = ControlClient::find(&args.control, &environment)?;
            let started = match &file {
                Some(document) => client.send(Method::POST, "drills", Some(document)).await?,
                None => {
                    client.send(Method::POST, &format!("drills/{}", args.fault_drill), None).await?
                }
            };
            let name = started["name"].as_str().unwrap_or(&args.fault_drill);
            print_stdout(&format!("started {name}"))?;
        }
        DrillCommand::Stop(args) => {
            let client = ControlClient::find(&args.control, &environment)?;
            let stopped = client.send(Method::DELETE, "drills", None).await?;
            print_stdout(&format!("stopped {}", stopped["stopped"].as_str().unwrap_or_default()))?;
        }
    }
    Ok(CommandExit::Success)
}

fn drill_table(drills: &[FaultDrill]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["fault_drill", "what happens", "what a client is expected to do"]);
    for fault_drill in drills {
        table.add_row([fault_drill.name(), fault_drill.summary(), fault_drill.expectation()]);
    }
    table.to_string()
}
