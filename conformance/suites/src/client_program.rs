//! Upstream clients as processes. A program gets a case name and JSON inputs, and prints one JSON answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// The inputs of a client program. Each case uses a subset.
#[derive(Clone, Default, Serialize)]
pub(crate) struct ClientInputs {
    pub(crate) tenant: String,
    pub(crate) client: String,
    /// A PEM file with certificates and their key.
    pub(crate) certificate: String,
    pub(crate) send_certificate_chain: bool,
    pub(crate) client_secret: String,
    pub(crate) token_file: String,
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) scope: String,
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    pub(crate) vault: String,
    pub(crate) secret_name: String,
    /// The object ID of the client's service principal.
    pub(crate) object_id: String,
    /// The URLs of Azure Resource Manager and of the token service in a custom cloud.
    pub(crate) resource_manager: String,
    pub(crate) authority: String,
    /// The name of a storage account whose blobs the client may read and write.
    pub(crate) storage_account: String,
}

// Omits the client secret and the password.
lanyard_vocabulary::debug_fields!(ClientInputs { tenant, client, scope });

/// Environment variables that route the requests of a client.
pub(crate) type EnvironmentVariables = BTreeMap<&'static str, OsString>;

/// Environment variables that are removed, because they would reroute requests or configure the client.
const CLEARED_VARIABLES: [&str; 9] = [
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
    "AZURE_AUTHORITY_HOST",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_CLIENT_SEND_CERTIFICATE_CHAIN",
];

/// A client program failed.
#[derive(Debug, Error)]
pub(crate) enum ClientProgramError {
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the inputs could not be written as JSON")]
    Inputs(#[source] serde_json::Error),
    #[error("the client failed with {status}: {message}")]
    Failed { status: String, message: String },
    #[error("the client did not print a JSON object: {answer}")]
    InvalidAnswer {
        answer: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the client printed no event for {} s", .0.as_secs())]
    NoEvent(Duration),
    #[error("the client exited while it was watched: {message}")]
    Exited { message: String },
}

/// The output of a program that ran a lifecycle.
#[derive(Debug)]
pub(crate) struct LifecycleOutput {
    /// One JSON object for each step.
    pub(crate) lines: Vec<String>,
    /// Why the program failed after these steps.
    pub(crate) failure: Option<ClientProgramError>,
}

/// A program that runs upstream clients.
#[derive(Debug, Clone)]
pub(crate) struct ClientProgram {
    path: PathBuf,
    script: Option<PathBuf>,
    environment: EnvironmentVariables,
}

impl ClientProgram {
    pub(crate) fn new(
        path: PathBuf,
        script: Option<PathBuf>,
        environment: EnvironmentVariables,
    ) -> Self {
        Self { path, script, environment }
    }

    /// The program with another name in the same directory.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        Self { path: self.path.with_file_name(name), ..self.clone() }
    }

    /// The program with other environment variables.
    pub(crate) fn with_environment(&self, environment: EnvironmentVariables) -> Self {
        Self { environment, ..self.clone() }
    }

    /// The program, or the interpreter of the script.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same script with another interpreter.
    pub(crate) fn with_interpreter(&self, path: PathBuf) -> Self {
        Self { path, ..self.clone() }
    }

    /// Runs one case and returns its answer.
    pub(crate) fn run_case(
        &self,
        case: &str,
        inputs: &impl Serialize,
    ) -> Result<Value, ClientProgramError> {
        let output = self.run_to_output(case, inputs)?;
        if let Some(error) = failure_of(&output) {
            return Err(error);
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&answer).map_err(|source| ClientProgramError::InvalidAnswer {
            answer: answer.trim().to_owned(),
            source,
        })
    }

    /// Runs a lifecycle and returns its steps.
    pub(crate) fn run_lifecycle(
        &self,
        lifecycle: &str,
        inputs: &ClientInputs,
    ) -> Result<LifecycleOutput, ClientProgramError> {
        let output = self.run_to_output(&format!("lifecycle:{lifecycle}"), inputs)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(str::to_owned).collect();
        Ok(LifecycleOutput { lines, failure: failure_of(&output) })
    }

    fn run_to_output(
        &self,
        case: &str,
        inputs: &impl Serialize,
    ) -> Result<Output, ClientProgramError> {
        let mut command = self.command();
        command.arg(case).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| ClientProgramError::Start { program: self.path.clone(), source };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            let inputs = serde_json::to_vec(inputs).map_err(ClientProgramError::Inputs)?;
            // The exit status shows why a program ended before it read its inputs.
            stdin.write_all(&inputs).unwrap_or_default();
        }
        child.wait_with_output().map_err(start)
    }

    /// Starts the program with flags, and reads the events that it prints.
    pub(crate) fn start_watching(
        &self,
        flags: &[(&str, &str)],
    ) -> Result<WatchedClient, ClientProgramError> {
        let mut command = self.command();
        for (flag, value) in flags {
            command.arg(format!("-{flag}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| ClientProgramError::Start { program: self.path.clone(), source };
        let mut child = command.spawn().map_err(start)?;
        let (sender, events) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(WatchedClient { child, events })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(self.script.iter());
        for name in CLEARED_VARIABLES {
            command.env_remove(name);
        }
        command.envs(&self.environment);
        command
    }
}

/// A running client. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct WatchedClient {
    child: Child,
    events: Receiver<String>,
}

/// An event of a watched client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum ClientEvent {
    /// The client opened the credential file.
    Attached,
    /// The client got a token with a certificate other than the previous one.
    Certificate { thumbprint: String },
    /// ARM responded to a call.
    Arm {
        call: String,
        status: u16,
        #[serde(default)]
        code: String,
    },
    /// A token request failed.
    Refused { message: String },
    /// The library logged a message.
    Log { message: String },
}

impl WatchedClient {
    /// Waits for the next event.
    pub(crate) fn next_event(
        &mut self,
        timeout: Duration,
    ) -> Result<ClientEvent, ClientProgramError> {
        match self.events.recv_timeout(timeout) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|source| ClientProgramError::InvalidAnswer { answer: line, source }),
            Err(RecvTimeoutError::Timeout) => Err(ClientProgramError::NoEvent(timeout)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(ClientProgramError::Exited { message: self.stderr_tail() })
            }
        }
    }

    fn stderr_tail(&mut self) -> String {
        let mut message = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut message).unwrap_or_default();
        }
        last_lines_of(&message)
    }
}

/// The error of a program that did not succeed.
fn failure_of(output: &Output) -> Option<ClientProgramError> {
    (!output.status.success()).then(|| ClientProgramError::Failed {
        status: output.status.to_string(),
        message: last_lines_of(&String::from_utf8_lossy(&output.stderr)),
    })
}

/// The last three lines, where a traceback names its error.
fn last_lines_of(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(3)..].join("\n")
}

impl Drop for WatchedClient {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_program(script: &str) -> ClientProgram {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(script.as_bytes()).expect("it is writable");
        let (_, path) = file.keep().expect("it can stay");
        ClientProgram::new("sh".into(), Some(path), EnvironmentVariables::new())
    }

    #[test]
    fn run_case_passes_inputs_and_returns_the_answer() {
        let program =
            shell_program(r#"read -r line; echo "{\"case\": \"$1\", \"inputs\": $line}""#);
        let inputs = ClientInputs { tenant: "t".to_owned(), ..ClientInputs::default() };
        let answer = program.run_case("token", &inputs).expect("it answers");
        assert_eq!(answer["case"], "token");
        assert_eq!(answer["inputs"]["tenant"], "t");
    }

    #[test]
    fn debug_of_inputs_hides_the_secret() {
        let inputs = ClientInputs { client_secret: "marker".to_owned(), ..ClientInputs::default() };
        assert!(!format!("{inputs:?}").contains("marker"));
    }

    #[test]
    fn failed_client_error_contains_its_output() {
        let error = shell_program("echo no such case >&2; exit 3")
            .run_case("x", &ClientInputs::default())
            .expect_err("it fails");
        assert!(error.to_string().contains("no such case"), "{error}");
    }

    #[test]
    fn events_arrive_in_order_and_exit_is_reported() {
        let script =
            r#"echo '{"event":"attached"}'; echo '{"event":"certificate","thumbprint":"ab"}'"#;
        let mut watched = shell_program(script).start_watching(&[]).expect("it starts");
        let timeout = Duration::from_secs(20);
        assert_eq!(watched.next_event(timeout).expect("first"), ClientEvent::Attached);
        let second = watched.next_event(timeout).expect("second");
        assert_eq!(second, ClientEvent::Certificate { thumbprint: "ab".to_owned() });
        assert!(matches!(watched.next_event(timeout), Err(ClientProgramError::Exited { .. })));
    }
}
