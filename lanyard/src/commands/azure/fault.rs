//! `lanyard azure fault`: lists, adds and removes fault rules of the running local Azure.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use http::Method;
use serde_json::{Value, json};

use super::control_client::{ControlClient, ControlFlags, item_path};
use super::local_azure_flags::read_fault_rules;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{CliOutputFormat, print_stdout, serialize_document};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard azure fault`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FaultCommand {
    List(ListArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// List the fault rules of the running local Azure
///
/// The rules are in their order of precedence, with their remaining counts.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    control: ControlFlags,
    /// The output format
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

/// Add fault rules to the running local Azure
///
/// Each file contains a rule or a list of rules, in JSON or YAML. If one of them is invalid, none is added. A
/// new rule replaces an existing one of the same name.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lanyard azure fault add examples/faults/vault-outage.json")]
pub(crate) struct AddArgs {
    /// The files with the rules
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    control: ControlFlags,
}

/// Remove fault rules of the running local Azure
///
/// Name the rules to remove, or use `--all`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// The names of the rules
    #[arg(
        required_unless_present = "all",
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new()
    )]
    names: Vec<String>,
    /// Remove every rule
    #[arg(long, conflicts_with = "names")]
    all: bool,
    #[command(flatten)]
    control: ControlFlags,
}

pub(crate) async fn run(command: FaultCommand, environment: ProcessEnvironment) -> CommandResult {
    match command {
        FaultCommand::List(args) => {
            let client = ControlClient::find(&args.control, &environment)?;
            let rules = list_rules(&client).await?;
            match args.output {
                CliOutputFormat::Table => print_stdout(&rule_table(&rules))?,
                format => print_stdout(&serialize_document(&rules, format))?,
            }
        }
        FaultCommand::Add(args) => {
            // All files are read first, so that an invalid rule leaves nothing half added.
            let files = args.files.iter().map(|path| read_fault_rules(path));
            let rules = files.collect::<Result<Vec<_>, CommandError>>()?.concat();
            let client = ControlClient::find(&args.control, &environment)?;
            for rule in &rules {
                let added = client.send(Method::POST, "faults", Some(&json!(rule))).await?;
                print_stdout(&format!("added {}", text(&added, "name")))?;
            }
        }
        FaultCommand::Remove(args) => {
            let client = ControlClient::find(&args.control, &environment)?;
            if args.all {
                let rules = list_rules(&client).await?;
                client.send(Method::DELETE, "faults", None).await?;
                for rule in &rules {
                    print_stdout(&format!("removed {}", text(rule, "name")))?;
                }
            }
            for name in &args.names {
                client.send(Method::DELETE, &item_path("faults", name), None).await?;
                print_stdout(&format!("removed {name}"))?;
            }
        }
    }
    Ok(CommandExit::Success)
}

async fn list_rules(client: &ControlClient) -> Result<Vec<Value>, CommandError> {
    let reply = client.send(Method::GET, "faults", None).await?;
    Ok(reply.get("value").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn text<'a>(rule: &'a Value, field: &str) -> &'a str {
    rule.get(field).and_then(Value::as_str).unwrap_or("-")
}

fn rule_table(rules: &[Value]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["name", "service", "host", "path", "times left", "until", "effect"]);
    for rule in rules {
        let times = rule.get("times").and_then(Value::as_u64);
        let effect = rule.get("effect").map(|effect| text(effect, "type")).unwrap_or_default();
        table.add_row([
            text(rule, "name"),
            text(rule, "service"),
            text(rule, "host"),
            text(rule, "path"),
            &times.map_or_else(|| "-".to_owned(), |times| times.to_string()),
            text(rule, "until"),
            effect,
        ]);
    }
    format!("{table}\n{} fault rules", rules.len())
}
