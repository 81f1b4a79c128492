//! `lanyard azure fault`: lists, adds and removes fault rules of the running local Azure.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use http::Method;
use serde_json::{Value, json};

use super::control_client::{ControlClient, ControlFlags, item_path};
use super::local_azure_flags::read_fault_rules;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{ColumnKind, OutputArgs, TextTable, counted, print_stdout, print_value};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard azure fault`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FaultCommand {
    List(ListArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
}

const LIST_EXAMPLE: &str = "\
Examples:
  lanyard azure fault list -o yaml";

/// List the fault rules of the running local Azure
///
/// The rules are in their order of precedence, with their remaining counts.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLE)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    control: ControlFlags,
    #[command(flatten)]
    output: OutputArgs,
}

/// Add fault rules to the running local Azure
///
/// Each file contains a rule or a list of rules, in JSON or YAML. If one of them is invalid, none is added. A
/// new rule replaces an existing one of the same name.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  lanyard azure fault add examples/faults/vault-outage.json")]
pub(crate) struct AddArgs {
    /// The files with the rules
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    control: ControlFlags,
}

const REMOVE_EXAMPLE: &str = "\
Examples:
  lanyard azure fault remove vault-outage
  lanyard azure fault remove --all";

/// Remove fault rules of the running local Azure
///
/// Name the rules to remove, or use `--all`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = REMOVE_EXAMPLE)]
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
            print_value(&rules, args.output.format, |line_width| rule_table(&rules, line_width))?;
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

fn rule_table(rules: &[Value], line_width: Option<usize>) -> String {
    let mut table = TextTable::new([
        (ColumnKind::Name, "NAME"),
        (ColumnKind::Name, "SERVICE"),
        (ColumnKind::Identifier, "HOST"),
        (ColumnKind::Identifier, "PATH"),
        (ColumnKind::Number, "TIMES LEFT"),
        (ColumnKind::Name, "UNTIL"),
        (ColumnKind::Name, "EFFECT"),
    ]);
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
    format!("{}\n\n{}", table.render(line_width), counted(rules.len(), "fault rule"))
}
