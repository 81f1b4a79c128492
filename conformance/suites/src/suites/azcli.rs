//! Commands of the Azure CLI and of lanyard: every command of `conformance/azcli/cases` or `conformance/infra` is a
//! trial. One process runs all commands of a file in their order, because commands use the results of earlier ones.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::runtime::Runtime;

use super::failed_with_causes;
use crate::azure_target::LocalAzureTarget;
use crate::client_program::EnvironmentVariables;
use crate::custom_cloud::write_custom_hosts_launcher;
use crate::file_error::FileError;
use crate::local_azure::{ControlApi, LocalAzureError, LoggedRequest};

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
}

/// The Python interpreter with the CLI, and the runner with its command files.
#[derive(Debug, Clone)]
pub(crate) struct AzureCliProgram {
    pub(crate) python: PathBuf,
    /// `conformance/azcli/runner.py`
    pub(crate) runner: PathBuf,
    /// The directory of the command files.
    pub(crate) cases: PathBuf,
    /// The beginning of the trials' names.
    pub(crate) suite: &'static str,
    /// The program of lanyard's commands, and variables that sign them in.
    pub(crate) lanyard: EnvironmentVariables,
}

/// A command file.
#[derive(Debug, Deserialize)]
struct CommandArea {
    name: String,
    commands: Vec<String>,
}

/// Returns a trial for each command.
pub(crate) fn trials(
    target: &LocalAzureTarget,
    program: &AzureCliProgram,
    runtime: &Arc<Runtime>,
) -> Result<Vec<Trial>, AzureCliError> {
    let with_custom_hosts = write_custom_hosts_launcher(target.directory(), &program.python)?;
    let runner = Arc::new(Mutex::new(CommandRunner {
        program: program.clone(),
        client: AzureCliEnvironment {
            directory: target.directory().join("azcli"),
            variables: target.client_environment(),
            custom_cloud: CustomCloudEnvironment {
                python: with_custom_hosts,
                variables: target.custom_cloud_environment(),
            },
        },
        variables: runtime.block_on(target.command_variables())?,
        process: None,
        control_api: target.control_api().clone(),
        runtime: Arc::clone(runtime),
        last_request: 0,
    }));
    let mut trials = Vec::new();
    for area in program.list_areas()? {
        let name = Arc::<str>::from(area.name);
        for (index, command) in area.commands.iter().enumerate() {
            let (runner, area) = (Arc::clone(&runner), Arc::clone(&name));
            let name = trial_name(program.suite, &name, command);
            trials.push(Trial::test(name, move || runner.lock().run_trial(&area, index)));
        }
    }
    Ok(trials)
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

    /// The command that runs the CLI for an area, with a profile and a home directory of its own.
    fn serve_command(
        &self,
        client: &AzureCliEnvironment,
        area: &str,
    ) -> Result<Command, AzureCliError> {
        let home = client.directory.join(area);
        let files = home.join("files");
        fs::create_dir_all(&files).map_err(FileError::of("create", &files))?;
        let commands = self.cases.join(format!("{area}.yaml"));
        let (python, variables) = if area == CUSTOM_CLOUD_AREA {
            (&client.custom_cloud.python, &client.custom_cloud.variables)
        } else {
            (&self.python, &client.variables)
        };
        let mut command = Command::new(python);
        command.arg(&self.runner).arg("serve").arg(commands);
        // Variables of the caller could configure the CLI or another sign-in method.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(variables).envs(CLI_SETTINGS).envs(&self.lanyard);
        command.env("HOME", &home).env("AZURE_CONFIG_DIR", home.join("profile")).current_dir(files);
        Ok(command)
    }

    fn start_error(&self) -> impl FnOnce(std::io::Error) -> AzureCliError {
        let program = self.python.clone();
        move |source| AzureCliError::Start { program, source }
    }
}

/// What the CLI needs to use the local Azure.
struct AzureCliEnvironment {
    /// The directory of its profiles and files.
    directory: PathBuf,
    /// Environment variables that route it to the local Azure.
    variables: EnvironmentVariables,
    custom_cloud: CustomCloudEnvironment,
}

/// What the CLI needs to use the custom cloud.
struct CustomCloudEnvironment {
    /// The interpreter, which resolves the custom hosts.
    python: PathBuf,
    variables: EnvironmentVariables,
}

/// The runner, and the request log of the local Azure.
struct CommandRunner {
    program: AzureCliProgram,
    client: AzureCliEnvironment,
    /// The variables of the commands.
    variables: Value,
    /// The process of the area whose command ran last, with its name.
    process: Option<(String, RunnerProcess)>,
    control_api: ControlApi,
    runtime: Arc<Runtime>,
    /// The sequence number of the last request of the previous command.
    last_request: u64,
}

impl CommandRunner {
    /// Runs a command. The failure lists the requests that the CLI sent.
    fn run_trial(&mut self, area: &str, command: usize) -> Result<(), Failed> {
        let process = self.process_of_area(area).map_err(failed_with_causes)?;
        let problems = process.run_command(command).map_err(failed_with_causes)?;
        let requests = self.runtime.block_on(self.control_api.requests_since(self.last_request));
        let requests = requests.map_err(failed_with_causes)?;
        self.last_request = requests.last().map_or(self.last_request, |it| it.sequence);
        if problems.is_empty() {
            return Ok(());
        }
        let requests = requests.iter().map(|request| {
            let LoggedRequest { method, host, path, status, .. } = request;
            let version = request.api_version.as_deref().unwrap_or("none");
            format!("  {status} {method} https://{host}{path} (api-version {version})")
        });
        let lines: Vec<_> =
            problems.into_iter().chain(["requests:".to_owned()]).chain(requests).collect();
        Err(lines.join("\n").into())
    }

    /// The process of an area. Starting it ends the process of the previous area.
    fn process_of_area(&mut self, area: &str) -> Result<&mut RunnerProcess, AzureCliError> {
        let current = self.process.take().filter(|(name, _)| name == area);
        let current = if let Some(current) = current {
            current
        } else {
            let command = self.program.serve_command(&self.client, area)?;
            let process = RunnerProcess::start(command, &self.program.python, &self.variables)?;
            (area.to_owned(), process)
        };
        Ok(&mut self.process.insert(current).1)
    }
}

/// The process of the runner. Dropping it kills the process.
struct RunnerProcess {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

#[derive(Debug, Deserialize)]
struct CommandOutcome {
    /// The index of the command.
    command: usize,
    problems: Vec<String>,
}

impl RunnerProcess {
    fn start(
        mut command: Command,
        program: &Path,
        variables: &Value,
    ) -> Result<Self, AzureCliError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|source| AzureCliError::Start { program: program.to_path_buf(), source })?;
        let (Some(requests), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            let (program, source) = (program.to_path_buf(), ErrorKind::BrokenPipe.into());
            return Err(AzureCliError::Start { program, source });
        };
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut process = Self { child, requests, answers };
        process.send(variables)?;
        Ok(process)
    }

    /// Runs a command, and the earlier commands that have not run. Returns the problems with its result.
    fn run_command(&mut self, command: usize) -> Result<Vec<String>, AzureCliError> {
        self.send(&json!(command))?;
        loop {
            let line = self.answers.recv_timeout(COMMAND_TIMEOUT)?;
            let outcome: CommandOutcome = serde_json::from_str(&line)
                .map_err(|source| AzureCliError::InvalidAnswer { line, source })?;
            // Skips the late answer to an earlier command, whose timeout has passed.
            if outcome.command == command {
                return Ok(outcome.problems);
            }
        }
    }

    fn send(&mut self, request: &Value) -> Result<(), AzureCliError> {
        writeln!(self.requests, "{request}").map_err(AzureCliError::Request)
    }
}

impl Drop for RunnerProcess {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> (tempfile::TempDir, AzureCliProgram) {
        let directory = tempfile::TempDir::new().expect("a temporary directory");
        let runner = directory.path().join("runner.py");
        fs::write(&runner, script).expect("it is writable");
        fs::create_dir(directory.path().join("cases")).expect("it is writable");
        let cases = directory.path().join("cases");
        let (suite, lanyard) = ("azcli", EnvironmentVariables::new());
        (directory, AzureCliProgram { python: "sh".into(), runner, cases, suite, lanyard })
    }

    fn start(script: &str) -> (tempfile::TempDir, RunnerProcess) {
        let (directory, program) = program(script);
        let mut command = Command::new(&program.python);
        command.arg(&program.runner);
        let process = RunnerProcess::start(command, &program.python, &json!({}));
        (directory, process.expect("it starts"))
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
    fn problems_of_a_command_are_returned() {
        let (_directory, mut process) = start(
            r#"read -r variables; read -r index; echo "{\"command\": $index, \"problems\": [\"exit code 1\"]}""#,
        );
        assert_eq!(process.run_command(0).expect("it answers"), ["exit code 1"]);
        assert!(matches!(
            process.run_command(1),
            Err(AzureCliError::NoAnswer(_) | AzureCliError::Request(_))
        ));
    }

    #[test]
    fn late_answer_to_an_earlier_command_is_skipped() {
        let (_directory, mut process) = start(
            r#"echo '{"command": 0, "problems": ["late"]}'; echo '{"command": 1, "problems": []}'; cat"#,
        );
        assert!(process.run_command(1).expect("it answers").is_empty());
    }

    #[test]
    fn long_commands_are_cut_in_trial_names() {
        assert_eq!(trial_name("azcli", "group", "az group list"), "azcli::group::az group list");
        let name = trial_name("azcli", "group", &"é".repeat(200));
        assert_eq!((name.chars().count(), name.ends_with('…')), (LONGEST_NAME + 1, true));
    }
}
