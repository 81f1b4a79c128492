//! `lanyard azure drill`: lists, starts and stops drills of the running local Azure.

use clap::builder::NonEmptyStringValueParser;
use http::Method;
use lanyard_emulator::FaultDrill;
use serde::Serialize;
use serde_json::Value;

use super::control_client::{ControlClient, ControlFlags, item_path};
use super::local_azure_flags::read_drill_file;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{ColumnKind, OutputArgs, TextTable, print_stdout, print_value};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard azure drill`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DrillCommand {
    List(ListArgs),
    Start(StartArgs),
    Stop(StopArgs),
}

const LIST_EXAMPLE: &str = "\
Examples:
  lanyard azure drill list";

/// List the drills
///
/// A drill is a situation of Azure that clients have to survive: settings, fault rules, and steps at emulated
/// times. The table shows what each does, what a client is expected to do, and which drill is running in the
/// local Azure, if there is one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLE)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    control: ControlFlags,
    #[command(flatten)]
    output: OutputArgs,
}

/// Start a drill in the running local Azure
///
/// One drill runs at a time. Its steps follow the time of the local Azure, which you can advance.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  lanyard azure drill start kv-throttled-at-boot")]
pub(crate) struct StartArgs {
    /// The name of a drill, or a file in JSON or YAML
    #[arg(value_name = "NAME|FILE", value_parser = NonEmptyStringValueParser::new())]
    fault_drill: String,
    #[command(flatten)]
    control: ControlFlags,
}

const STOP_EXAMPLE: &str = "\
Examples:
  lanyard azure drill stop";

/// Stop the running drill
///
/// Restores all settings to their values before the drill, and removes its fault rules. What its steps did
/// stays.
#[derive(Debug, clap::Args)]
#[command(after_long_help = STOP_EXAMPLE)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    control: ControlFlags,
}

pub(crate) async fn run(command: DrillCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        DrillCommand::List(args) => {
            let drills = FaultDrill::named_drills();
            let running = find_running_drill(&args.control, &environment).await?;
            let list = DrillList { drills: &drills, running: running.as_ref() };
            print_value(&list, args.output.format, |line_width| list.to_text(line_width))?;
        }
        DrillCommand::Start(args) => {
            let file = read_drill_file(&args.fault_drill)?;
            let client = ControlClient::find(&args.control, &environment)?;
            let path = match &file {
                Some(_) => "drills".to_owned(),
                None => item_path("drills", &args.fault_drill),
            };
            let started = client.send(Method::POST, &path, file.as_ref()).await?;
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

/// The drills, and the one that is running.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DrillList<'a> {
    drills: &'a [FaultDrill],
    /// The running drill, or `null`; `None` if no local Azure is known.
    running: Option<&'a Value>,
}

impl DrillList<'_> {
    fn to_text(&self, line_width: Option<usize>) -> String {
        let table = drill_table(self.drills, line_width);
        let running = self.running.map(running_drill_line);
        std::iter::once(table).chain(running).collect::<Vec<_>>().join("\n\n")
    }
}

/// The running drill, or `null`. `None` if the flags select no local Azure, and none answers or several run.
async fn find_running_drill(
    flags: &ControlFlags,
    environment: &ProcessEnvironment,
) -> Result<Option<Value>, CommandError> {
    let client = match ControlClient::find(flags, environment) {
        Ok(client) => client,
        Err(_) if flags.state().is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    match client.send(Method::GET, "drills", None).await {
        Ok(mut drills) => Ok(Some(drills["running"].take())),
        Err(error) if flags.state().is_none() && error.is_unavailable() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The running drill as a line.
fn running_drill_line(running: &Value) -> String {
    let Some(name) = running["name"].as_str() else { return "no drill is running".to_owned() };
    let started = running["started"].as_str().unwrap_or_default();
    let (performed, steps) = (&running["performedSteps"], &running["steps"]);
    format!("running: {name}, started at {started}, {performed} of {steps} steps performed")
}

fn drill_table(drills: &[FaultDrill], line_width: Option<usize>) -> String {
    let mut table = TextTable::new([
        (ColumnKind::Name, "DRILL"),
        (ColumnKind::Text, "WHAT HAPPENS"),
        (ColumnKind::Text, "WHAT A CLIENT IS EXPECTED TO DO"),
    ]);
    for fault_drill in drills {
        table.add_row([fault_drill.name(), fault_drill.summary(), fault_drill.expectation()]);
    }
    table.render(line_width)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn running_drill_is_shown_with_its_progress() {
        let running = json!({
            "name": "own", "started": "2026-11-21T12:00:00Z", "performedSteps": 1, "steps": 3,
        });
        assert_eq!(
            running_drill_line(&running),
            "running: own, started at 2026-11-21T12:00:00Z, 1 of 3 steps performed"
        );
        assert_eq!(running_drill_line(&Value::Null), "no drill is running");
    }

    #[test]
    fn table_has_a_row_for_each_drill() {
        let table = drill_table(&FaultDrill::named_drills(), None);
        assert!(table.starts_with("DRILL "), "{table}");
        for name in FaultDrill::names() {
            assert!(table.contains(&format!("\n{name} ")), "{table}");
        }
    }
}
