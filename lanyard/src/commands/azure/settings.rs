//! `lanyard azure settings`: reads and changes the settings of the running local Azure.

use std::path::PathBuf;

use http::Method;
use lanyard_emulator::{SettingField, setting_fields};
use serde_json::{Map, Value};

use super::control_client::{ControlClient, ControlFlags, read_document};
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _};
use crate::output::{ColumnKind, OutputArgs, TextTable, print_value};
use crate::settings::ProcessEnvironment;

/// The subcommands of `lanyard azure settings`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SettingsCommand {
    Get(GetArgs),
    Set(SetArgs),
}

/// Print the settings of the running local Azure
///
/// The kubeconfig is not printed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{GET_EXAMPLES}", fields_help()))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    control: ControlFlags,
    #[command(flatten)]
    output: OutputArgs,
}

/// Change settings of the running local Azure
///
/// Each argument sets one field, whose value is JSON or a text: `null` resets it to its default, and `@FILE`
/// is the content of a file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{SET_EXAMPLES}", fields_help()))]
pub(crate) struct SetArgs {
    /// The fields to set
    #[arg(value_name = "FIELD=VALUE", required_unless_present = "file")]
    fields: Vec<String>,
    /// Change the settings as this file says, in JSON or YAML
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    control: ControlFlags,
    #[command(flatten)]
    output: OutputArgs,
}

const GET_EXAMPLES: &str = "\
Examples:
  lanyard azure settings get
  lanyard azure settings get -o json";

const SET_EXAMPLES: &str = "\
Examples:
  lanyard azure settings set resourceManager.pageSize=1
  lanyard azure settings set propagation.roleAssignments.dataPlaneSeconds=300
  lanyard azure settings set resourceManager.kubeconfig=@kubeconfig.yaml";

/// The list of all settings.
fn fields_help() -> String {
    let lines = setting_fields()
        .iter()
        .map(|SettingField { path, summary, .. }| format!("  {path}\n          {summary}"));
    format!("Settings:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

pub(crate) async fn run(
    command: SettingsCommand,
    environment: ProcessEnvironment,
) -> CommandResult {
    let (settings, format) = match command {
        SettingsCommand::Get(args) => {
            let client = ControlClient::find(&args.control, &environment)?;
            (client.send(Method::GET, "settings", None).await?, args.output.format)
        }
        SettingsCommand::Set(args) => {
            let mut change = match &args.file {
                Some(path) => read_document(path)?,
                None => Value::Object(Map::new()),
            };
            for field in &args.fields {
                set_field(&mut change, field)?;
            }
            let client = ControlClient::find(&args.control, &environment)?;
            (client.send(Method::PATCH, "settings", Some(&change)).await?, args.output.format)
        }
    };
    print_value(&settings, format, |line_width| settings_text(&settings, line_width))?;
    Ok(CommandExit::Success)
}

/// A row for each field, by its path.
fn settings_text(settings: &Value, line_width: Option<usize>) -> String {
    let mut table = TextTable::new([(ColumnKind::Name, "SETTING"), (ColumnKind::Text, "VALUE")]);
    add_rows(settings, "", &mut table);
    table.render(line_width)
}

fn add_rows(value: &Value, path: &str, table: &mut TextTable) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let separator = if path.is_empty() { "" } else { "." };
                add_rows(value, &format!("{path}{separator}{name}"), table);
            }
        }
        Value::String(text) => table.add_row([path, text.as_str()]),
        other => table.add_row([path, other.to_string().as_str()]),
    }
}

/// Sets a field, such as `resourceManager.pageSize=1`.
fn set_field(document: &mut Value, field: &str) -> Result<(), CommandError> {
    let invalid = |message: String| CommandError::invalid_input(message);
    let (path, text) = field.split_once('=').ok_or_else(|| {
        invalid(format!("`{field}` has no value"))
            .with_hint("for example: resourceManager.pageSize=1")
    })?;
    let value = match text.strip_prefix('@') {
        Some(file) => Value::String(
            std::fs::read_to_string(file).or_invalid(format_args!("{file} cannot be read"))?,
        ),
        None => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    let mut place = document;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { break };
        place = fields.entry(name).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_has_a_row_for_each_field() {
        let settings =
            json!({ "resourceManager": { "pageSize": 1, "regions": ["a"] }, "b": "c d" });
        let text = settings_text(&settings, None);
        let columns: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(columns[0], ["SETTING", "VALUE"]);
        assert!(columns.contains(&vec!["resourceManager.pageSize", "1"]), "{text}");
        assert!(columns.contains(&vec!["b", "c", "d"]), "{text}");
    }

    #[test]
    fn fields_are_set_by_their_paths() {
        let mut document = json!({ "resourceManager": { "pageSize": 1 } });
        for field in ["resourceManager.pageSize=null", "a.b=text", "a.c=[\"x\"]", "d=e=f"] {
            set_field(&mut document, field).unwrap();
        }
        let expected = json!({
            "resourceManager": { "pageSize": null },
            "a": { "b": "text", "c": ["x"] },
            "d": "e=f",
        });
        assert_eq!(document, expected);
        assert!(set_field(&mut document, "resourceManager").is_err());
    }
}
