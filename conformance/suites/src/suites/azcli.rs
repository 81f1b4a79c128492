//! Commands of the Azure CLI and of lanyard: every command of `conformance/azcli/cases` or `conformance/infra` is a
//! trial. One process runs all commands of a file in their order, because commands use the results of earlier ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use libtest_mimic::Trial;
use serde::Deserialize;
use thiserror::Error;
use tokio::runtime::Runtime;

use self::areas::AreaRuns;
use self::runner_process::RunnerProcess;
use crate::azure_target::{AzureTargetError, HostedClusterNames, LocalAzureTarget};
use crate::custom_cloud::write_custom_hosts_launcher;
use crate::file_error::FileError;
use crate::local_azure::LocalAzureError;
use crate::operation_clients::SuiteRequestLog;

mod areas;
mod runner_process;

/// The longest time for one command. Clusters and deployments take seconds, everything else less.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// The area whose commands use the custom cloud, without a proxy.
const CUSTOM_CLOUD_AREA: &str = "custom-cloud";

/// The longest trial name, in characters.
const LONGEST_NAME: usize = 120;

/// Settings of the CLI: no telemetry, no prompts, no colours, no downloads of extensions.
pub(super) const CLI_SETTINGS: [(&str, &str); 8] = [
    ("AZURE_CORE_COLLECT_TELEMETRY", "false"),
    ("AZURE_CORE_DISABLE_CONFIRM_PROMPT", "true"),
    ("AZURE_CORE_LOGIN_EXPERIENCE_V2", "false"),
    ("AZURE_CORE_NO_COLOR", "true"),
    ("AZURE_CORE_OUTPUT", "json"),
    ("AZURE_CORE_SURVEY_MESSAGE", "false"),
    ("AZURE_EXTENSION_USE_DYNAMIC_INSTALL", "no"),
    ("PYTHONWARNINGS", "ignore"),
];

/// The commands of the Azure CLI could not be run.
#[derive(Debug, Error)]
pub(crate) enum AzureCliError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the command files could not be listed: {message}")]
    Listing { message: String },
    #[error("the runner printed no JSON: {line}")]
    InvalidAnswer {
        line: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("a request could not be sent to the runner")]
    Request(#[source] std::io::Error),
    #[error("the runner printed no answer within {} s, or exited", COMMAND_TIMEOUT.as_secs())]
    NoAnswer(#[from] mpsc::RecvTimeoutError),
    #[error(transparent)]
    ControlApi(#[from] LocalAzureError),
    #[error("the local Azure of the area could not be prepared")]
    Azure(#[from] AzureTargetError),
}

/// The Python interpreter with the CLI, and the runner with its command files.
#[derive(Debug, Clone)]
pub(crate) struct AzureCliProgram {
    pub(crate) python: PathBuf,
    /// `conformance/azcli/runner.py`
    pub(crate) runner: PathBuf,
    /// The directory of the command files.
    pub(crate) cases: PathBuf,
}

/// A suite of command files.
pub(crate) struct AzureCliSuite {
    /// The beginning of the trials' names.
    pub(crate) name: &'static str,
    pub(crate) program: AzureCliProgram,
    /// The program of lanyard: it serves the local Azure of each area.
    pub(crate) lanyard: PathBuf,
    /// Whether the files contain commands of lanyard.
    pub(crate) has_lanyard_commands: bool,
    /// The HostedCluster, in YAML, for which each local Azure is seeded.
    pub(crate) hosted_cluster: String,
    pub(crate) names: HostedClusterNames,
    pub(crate) request_log: Arc<SuiteRequestLog>,
    pub(crate) runtime: Arc<Runtime>,
}

/// A command file.
#[derive(Debug, Deserialize)]
struct CommandArea {
    name: String,
    commands: Vec<String>,
}

/// The commands of an area to run: the first ones, up to the last trial that the filter includes.
struct AreaCommands {
    name: String,
    count: usize,
}

/// Returns a trial for each command. The areas of trials that `filter` excludes do not start.
pub(crate) fn trials(
    suite: AzureCliSuite,
    filter: Option<&str>,
) -> Result<Vec<Trial>, AzureCliError> {
    let areas = suite.program.list_areas()?;
    let names: Vec<Vec<String>> = areas
        .iter()
        .map(|it| it.commands.iter().map(|text| trial_name(suite.name, &it.name, text)).collect())
        .collect();
    let queued = areas.iter().zip(&names).filter_map(|(area, names)| {
        let count = count_to_run(names, filter);
        (count > 0).then(|| (area.name.clone(), count))
    });
    let queued: Vec<_> = queued.collect();
    let commands =
        queued.iter().map(|(name, count)| AreaCommands { name: name.clone(), count: *count });
    let (runs, outcomes) = AreaRuns::new(Arc::new(suite), commands);
    let mut trials = Vec::new();
    for (area, names) in areas.iter().zip(names) {
        let position = queued.iter().position(|(name, _)| *name == area.name);
        let Some(outcomes) = position.and_then(|position| outcomes.get(position)) else { continue };
        for (index, name) in names.into_iter().enumerate() {
            let (runs, outcomes) = (Arc::clone(&runs), Arc::clone(outcomes));
            trials.push(Trial::test(name, move || runs.wait(&outcomes, index)));
        }
    }
    Ok(trials)
}

/// The number of commands of an area that run: all up to the last trial with the text of the filter in its name.
fn count_to_run(names: &[String], filter: Option<&str>) -> usize {
    let is_included = |name: &String| filter.is_none_or(|filter| name.contains(filter));
    names.iter().rposition(is_included).map_or(0, |last| last + 1)
}

fn trial_name(suite: &str, area: &str, command: &str) -> String {
    let name = format!("{suite}::{area}::{command}");
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

impl AzureCliProgram {
    fn list_areas(&self) -> Result<Vec<CommandArea>, AzureCliError> {
        let mut command = Command::new(&self.python);
        command.arg(&self.runner).arg("list").args(self.command_files()?);
        let output = command.output().map_err(self.start_error())?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(AzureCliError::Listing { message });
        }
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&line).map_err(|source| AzureCliError::InvalidAnswer { line, source })
    }

    /// The files of `cases`, sorted.
    fn command_files(&self) -> Result<Vec<PathBuf>, AzureCliError> {
        let entries = fs::read_dir(&self.cases).and_then(|entries| {
            entries.map(|entry| entry.map(|it| it.path())).collect::<Result<Vec<_>, _>>()
        });
        let mut files = entries.map_err(FileError::of("list", &self.cases))?;
        files.sort();
        Ok(files)
    }

    fn start_error(&self) -> impl FnOnce(std::io::Error) -> AzureCliError {
        let program = self.python.clone();
        move |source| AzureCliError::Start { program, source }
    }
}

impl AzureCliSuite {
    /// Starts the local Azure of an area.
    fn start_azure(&self) -> Result<LocalAzureTarget, AzureCliError> {
        let names = self.names.clone();
        Ok(LocalAzureTarget::start(&self.lanyard, &self.hosted_cluster, names, &self.runtime)?)
    }

    /// Starts the process of an area, with a profile and a home directory of its own.
    fn start_process(
        &self,
        azure: &LocalAzureTarget,
        area: &str,
    ) -> Result<RunnerProcess, AzureCliError> {
        let home = azure.directory().join("azcli");
        let files = home.join("files");
        fs::create_dir_all(&files).map_err(FileError::of("create", &files))?;
        let AzureCliProgram { python, runner, cases } = &self.program;
        let (python, variables) = if area == CUSTOM_CLOUD_AREA {
            let launcher = write_custom_hosts_launcher(azure.directory(), python)?;
            (launcher, azure.custom_cloud_environment())
        } else {
            (python.clone(), azure.client_environment())
        };
        let mut command = Command::new(&python);
        command.arg(runner).arg("serve").arg(cases.join(format!("{area}.yaml")));
        // Variables of the caller could configure the CLI or another sign-in method.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        // The control API is at a loopback address.
        command.envs(variables).envs(CLI_SETTINGS).env("NO_PROXY", "127.0.0.1");
        if self.has_lanyard_commands {
            command.envs(azure.lanyard_sign_in()).env("LANYARD", &self.lanyard);
        }
        command.env("HOME", &home).env("AZURE_CONFIG_DIR", home.join("profile")).current_dir(files);
        let variables = self.runtime.block_on(azure.command_variables())?;
        RunnerProcess::start(command, Path::new(&python), &variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> (tempfile::TempDir, AzureCliProgram) {
        let directory = tempfile::TempDir::new().expect("a temporary directory");
        let runner = directory.path().join("runner.py");
        fs::write(&runner, script).expect("it is writable");
        let cases = directory.path().join("cases");
        fs::create_dir(&cases).expect("it is writable");
        (directory, AzureCliProgram { python: "sh".into(), runner, cases })
    }

    #[test]
    fn commands_of_every_area_are_listed() {
        let listing = r#"echo '[{"name":"group","commands":["group list"]}]'"#;
        let (_directory, program) = program(listing);
        let areas = program.list_areas().expect("it is a listing");
        assert_eq!((areas.len(), &*areas[0].commands[0]), (1, "group list"));
    }

    #[test]
    fn invalid_command_file_is_reported() {
        let (_directory, program) = program("echo 'group.yaml: no command' >&2; exit 1");
        let error = program.list_areas().expect_err("it is invalid");
        assert!(error.to_string().contains("group.yaml: no command"), "{error}");
    }

    #[test]
    fn commands_run_up_to_the_last_one_that_the_filter_includes() {
        let names = ["infra::a::az one", "infra::a::az two", "infra::a::az three"];
        let names = names.map(str::to_owned);
        assert_eq!(count_to_run(&names, None), 3);
        assert_eq!(count_to_run(&names, Some("two")), 2);
        assert_eq!(count_to_run(&names, Some("four")), 0);
    }

    #[test]
    fn long_commands_are_cut_in_trial_names() {
        assert_eq!(trial_name("azcli", "group", "az group list"), "azcli::group::az group list");
        let name = trial_name("azcli", "group", &"é".repeat(200));
        assert_eq!((name.chars().count(), name.ends_with('…')), (LONGEST_NAME + 1, true));
    }
}
