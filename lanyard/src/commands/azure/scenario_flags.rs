//! The flags for settings, fault rules and a drill that apply from the start of a local Azure.

use std::path::{Path, PathBuf};

use lanyard_emulator::{DrillError, EmulatorBuilder, FaultDrill, FaultRule, SettingsChange};
use serde_json::Value;

use super::control_client::read_document;
use crate::exit::CommandError;

/// Settings, fault rules and a drill that apply from the start.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ScenarioFlags {
    /// Change the settings as this file says, in JSON or YAML
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Add the fault rule or the list of fault rules in this file, in JSON or YAML; can be repeated
    #[arg(long = "fault", value_name = "FILE")]
    faults: Vec<PathBuf>,
    /// Start a drill: a name of `lanyard azure drill list`, or a file in JSON or YAML
    #[arg(long = "drill", value_name = "NAME|FILE")]
    fault_drill: Option<String>,
}

impl ScenarioFlags {
    /// Reads the files, and applies them to a local Azure that is about to start.
    pub(super) fn apply(
        &self,
        mut builder: EmulatorBuilder,
    ) -> Result<EmulatorBuilder, CommandError> {
        if let Some(path) = &self.settings {
            let change = SettingsChange::from_json(read_document(path)?);
            builder = builder.settings(change.map_err(|error| invalid_file(path, &error))?);
        }
        for path in &self.faults {
            for rule in read_fault_rules(path)? {
                let rule = FaultRule::from_json(rule);
                builder = builder.fault_rule(rule.map_err(|error| invalid_file(path, &error))?);
            }
        }
        match &self.fault_drill {
            Some(name) => Ok(builder.fault_drill(find_drill(name)?)),
            None => Ok(builder),
        }
    }
}

/// The rules of a file: one, or a list.
pub(super) fn read_fault_rules(path: &Path) -> Result<Vec<Value>, CommandError> {
    Ok(match read_document(path)? {
        Value::Array(rules) => rules,
        rule => vec![rule],
    })
}

/// The document of a drill in a file; `None` for a name.
pub(super) fn read_drill_file(name: &str) -> Result<Option<Value>, CommandError> {
    let path = Path::new(name);
    let is_file = path.extension().is_some() || path.components().count() > 1;
    if is_file { read_document(path).map(Some) } else { Ok(None) }
}

fn find_drill(name: &str) -> Result<FaultDrill, CommandError> {
    let invalid = |error: DrillError| CommandError::invalid_input(error.to_string());
    match read_drill_file(name)? {
        Some(document) => FaultDrill::from_json(document).map_err(invalid),
        None => FaultDrill::named(name).map_err(invalid),
    }
}

fn invalid_file(path: &Path, error: &dyn std::error::Error) -> CommandError {
    CommandError::invalid_input(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use lanyard_emulator::Emulator;

    use super::*;

    fn apply(text: &str, flags: impl FnOnce(PathBuf) -> ScenarioFlags) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.yaml");
        std::fs::write(&path, text).unwrap();
        let applied = flags(path).apply(Emulator::builder());
        applied.map(drop).map_err(|error| error.to_string())
    }

    fn settings(path: PathBuf) -> ScenarioFlags {
        ScenarioFlags { settings: Some(path), ..ScenarioFlags::default() }
    }

    fn faults(path: PathBuf) -> ScenarioFlags {
        ScenarioFlags { faults: vec![path], ..ScenarioFlags::default() }
    }

    fn fault_drill(path: PathBuf) -> ScenarioFlags {
        ScenarioFlags { fault_drill: path.to_str().map(str::to_owned), ..ScenarioFlags::default() }
    }

    #[test]
    fn files_in_json_and_yaml_are_read() {
        assert_eq!(apply("resourceManager: {pageSize: 2}", settings), Ok(()));
        assert_eq!(apply(r#"{"name": "a", "effect": {"type": "reset"}}"#, faults), Ok(()));
        let rules =
            "- {name: a, effect: {type: reset}}\n- {name: b, effect: {type: next-link-loop}}";
        assert_eq!(apply(rules, faults), Ok(()));
        assert_eq!(apply("name: own\nsteps: [{action: rotate-credentials}]", fault_drill), Ok(()));
    }

    #[test]
    fn unknown_field_is_named_with_its_file() {
        let error = apply("resourceManager: {pagesize: 2}", settings).unwrap_err();
        assert!(error.contains("file.yaml") && error.contains("pagesize"), "{error}");
        let error = apply("{name: a, effect: {type: explode}}", faults).unwrap_err();
        assert!(error.contains("explode"), "{error}");
        let named =
            ScenarioFlags { fault_drill: Some("other".to_owned()), ..ScenarioFlags::default() };
        let error = named.apply(Emulator::builder()).unwrap_err().to_string();
        assert!(error.contains("rbac-five-minutes"), "{error}");
    }
}
