//! `lanyard azure settings`: reads and changes the settings of the running local Azure.

use std::path::PathBuf;

use http::Method;
use lanyard_emulator::{SettingField, setting_fields};
use serde_json::{Map, Value};

use super::control_client::{ControlClient, ControlFlags, read_document};
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{CliOutputFormat, print_stdout, serialize_document};
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
#[command(after_help = fields_help())]
pub(crate) struct GetArgs {
    #[command(flatten)]
    control: ControlFlags,
    /// The output format; `table` prints YAML
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

/// Change settings of the running local Azure
///
/// Each argument sets one field, whose value is JSON or a text: `null` resets it to its default, and `@FILE`
/// is the content of a file.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", fields_help()))]
pub(crate) struct SetArgs {
    /// The fields to set
    #[arg(value_name = "FIELD=VALUE", required_unless_present = "file")]
    fields: Vec<String>,
    /// Change the settings as this file says, in JSON or YAML
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    control: ControlFlags,
    /// The output format; `table` prints YAML
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: CliOutputFormat,
}

const EXAMPLES: &str = "\
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
            (client.send(Method::GET, "settings", None).await?, args.output)
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
            (client.send(Method::PATCH, "settings", Some(&change)).await?, args.output)
        }
    };
    let format = match format {
        CliOutputFormat::Table => CliOutputFormat::Yaml,
        other => other,
    };
    print_stdout(&serialize_document(&settings, format))?;
    Ok(CommandExit::Success)
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
            std::fs::read_to_string(file)
                .map_err(|error| invalid(format!("{file} cannot be read")).with_cause(&error))?,
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
