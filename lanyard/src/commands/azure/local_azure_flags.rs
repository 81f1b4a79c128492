//! The flags of the commands that start a local Azure: its state, and what applies from its start.

use std::path::{Path, PathBuf};

use lanyard_emulator::{
    CloudDomain, DrillDefinitionError, EmulatorBuilder, FaultDrill, FaultRule, SettingsChange,
};
use lanyard_emulator_session::{LoginPrincipal, SEED_VARIABLE};
use serde_json::Value;

use super::control_client::read_document;
use crate::exit::CommandError;

/// The state of a local Azure, and the settings, fault rules and drill that apply from its start.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct LocalAzureFlags {
    /// The HostedCluster for which the local Azure is seeded [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Keep the state in this directory, across restarts and crashes
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Sign the Azure CLI in, if it is installed, and export the credentials of the seeded application
    #[arg(
        long,
        value_enum,
        value_name = "PRINCIPAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "user"
    )]
    pub(super) login: Option<LoginPrincipal>,
    /// Derive the ids, keys and test credentials of a new state from this text, instead of random ones
    #[arg(long, env = SEED_VARIABLE, hide_env_values = true, value_name = "TEXT")]
    pub(super) seed: Option<String>,
    /// Also serve a custom cloud at `management.DOMAIN`, `login.DOMAIN` and further names, for clients that have
    /// settings for a cloud instead of a proxy. Register it with `az cloud register --name Local
    /// --endpoint-resource-manager https://management.DOMAIN:PORT`. The names must resolve to the listener.
    /// PORT is that of the listener, unless clients reach it through another one
    #[arg(long, value_name = "DOMAIN[:PORT]")]
    pub(super) cloud_domain: Option<CloudDomain>,
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

impl LocalAzureFlags {
    /// Reads the files of settings, fault rules and drill, and applies them to a local Azure that is about to
    /// start.
    pub(super) fn apply_scenario(
        &self,
        mut builder: EmulatorBuilder,
    ) -> Result<EmulatorBuilder, CommandError> {
        if let Some(path) = &self.settings {
            let change = SettingsChange::from_json(read_document(path)?);
            builder = builder.settings(change.map_err(|error| invalid_file(path, &error))?);
        }
        for path in &self.faults {
            for rule in read_fault_rules(path)? {
                builder = builder.fault_rule(rule);
            }
        }
        match &self.fault_drill {
            Some(name) => Ok(builder.fault_drill(find_drill(name)?)),
            None => Ok(builder),
        }
    }
}

/// The rules of a file: one, or a list.
pub(super) fn read_fault_rules(path: &Path) -> Result<Vec<FaultRule>, CommandError> {
    let rules = match read_document(path)? {
        Value::Array(rules) => rules,
        rule => vec![rule],
    };
    let rules = rules.into_iter().map(FaultRule::from_json);
    rules.collect::<Result<_, _>>().map_err(|error| invalid_file(path, &error))
}

/// The document of a drill in a file; `None` for a name.
pub(super) fn read_drill_file(name: &str) -> Result<Option<Value>, CommandError> {
    let path = Path::new(name);
    let is_file = path.extension().is_some() || path.components().count() > 1;
    if is_file { read_document(path).map(Some) } else { Ok(None) }
}

fn find_drill(name: &str) -> Result<FaultDrill, CommandError> {
    let invalid = |error: DrillDefinitionError| CommandError::invalid_input(error.to_string());
    match read_drill_file(name)? {
        Some(document) => FaultDrill::from_json(document).map_err(invalid),
        None => FaultDrill::named(name).map_err(invalid),
    }
}

fn invalid_file(path: &Path, error: &dyn std::error::Error) -> CommandError {
    let message = error.to_string();
    CommandError::invalid_input(format!("{}: {}", path.display(), message.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use lanyard_emulator::Emulator;

    use super::*;

    fn apply(text: &str, flags: impl FnOnce(PathBuf) -> LocalAzureFlags) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.yaml");
        std::fs::write(&path, text).unwrap();
        let applied = flags(path).apply_scenario(Emulator::builder());
        applied.map(drop).map_err(|error| error.to_string())
    }

    fn settings(path: PathBuf) -> LocalAzureFlags {
        LocalAzureFlags { settings: Some(path), ..LocalAzureFlags::default() }
    }

    fn faults(path: PathBuf) -> LocalAzureFlags {
        LocalAzureFlags { faults: vec![path], ..LocalAzureFlags::default() }
    }

    fn fault_drill(path: PathBuf) -> LocalAzureFlags {
        LocalAzureFlags {
            fault_drill: path.to_str().map(str::to_owned),
            ..LocalAzureFlags::default()
        }
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
    fn path_of_an_unknown_field_is_named_with_its_file() {
        let error = apply("resourceManager: {pagesize: 2}", settings).unwrap_err();
        let expected = "`resourceManager`: unknown field, expected one of `pageSize`";
        assert!(error.contains("file.yaml") && error.contains(expected), "{error}");
        let error = apply("{name: a, effect: {type: explode}}", faults).unwrap_err();
        assert!(error.contains("expected one of") && error.contains("`reset`"), "{error}");
        let rules =
            "- {name: a, effect: {type: reset}}\n- {name: b, every: 0, effect: {type: reset}}";
        let error = apply(rules, faults).unwrap_err();
        assert!(error.ends_with("file.yaml: `every` must be at least 1"), "{error}");
        let named =
            LocalAzureFlags { fault_drill: Some("other".to_owned()), ..LocalAzureFlags::default() };
        let error = named.apply_scenario(Emulator::builder()).unwrap_err().to_string();
        assert!(error.contains("rbac-five-minutes"), "{error}");
    }
}
