//! Other people's clients as processes: a case name and inputs go in, one JSON answer comes out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// What a client is told; a case uses what it needs.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Inputs {
    pub(crate) tenant: String,
    pub(crate) client: String,
    /// A PEM file with certificates and key.
    pub(crate) certificate: String,
    pub(crate) send_certificate_chain: bool,
    pub(crate) client_secret: String,
    pub(crate) token_file: String,
    pub(crate) scope: String,
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    pub(crate) vault: String,
    pub(crate) secret_name: String,
}

/// Without the client secret.
impl fmt::Debug for Inputs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Inputs")
            .field("tenant", &self.tenant)
            .field("client", &self.client)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Variables that decide where the requests of a client go.
pub(crate) type Environment = BTreeMap<&'static str, OsString>;

/// Variables that would send requests elsewhere, or that clients read as settings.
const CLEARED: [&str; 9] = [
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

/// A client did not do its part.
#[derive(Debug, Error)]
pub(crate) enum ProgramError {
    #[error("`{}` could not be started", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the inputs could not be written as JSON")]
    Inputs(#[source] serde_json::Error),
    #[error("the client ended with {status}: {message}")]
    Failed { status: String, message: String },
    #[error("the client answered something that is no JSON object: {answer}")]
    Answer {
        answer: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the client said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the client ended while it was watched: {message}")]
    Ended { message: String },
}

/// A program of other people's clients.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    script: Option<PathBuf>,
    environment: Environment,
}

impl Program {
    pub(crate) fn new(path: PathBuf, script: Option<PathBuf>, environment: Environment) -> Self {
        Self { path, script, environment }
    }

    /// The same program with requests going another way.
    pub(crate) fn with(&self, environment: Environment) -> Self {
        Self { environment, ..self.clone() }
    }

    /// Runs one case to its end.
    pub(crate) fn answer(&self, case: &str, inputs: &Inputs) -> Result<Value, ProgramError> {
        let mut command = self.command();
        command.arg(case).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| ProgramError::Start { program: self.path.clone(), source };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            let inputs = serde_json::to_vec(inputs).map_err(ProgramError::Inputs)?;
            // A program that ended before it read says why by its status.
            stdin.write_all(&inputs).unwrap_or_default();
        }
        let output = child.wait_with_output().map_err(start)?;
        if !output.status.success() {
            return Err(ProgramError::Failed {
                status: output.status.to_string(),
                message: last_lines(&String::from_utf8_lossy(&output.stderr)),
            });
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&answer)
            .map_err(|source| ProgramError::Answer { answer: answer.trim().to_owned(), source })
    }

    /// Starts the program with flags and listens to the events that it prints.
    pub(crate) fn watch(&self, flags: &[(&str, &str)]) -> Result<Watched, ProgramError> {
        let mut command = self.command();
        for (flag, value) in flags {
            command.arg(format!("-{flag}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = |source| ProgramError::Start { program: self.path.clone(), source };
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
        Ok(Watched { child, events })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(self.script.iter());
        for name in CLEARED {
            command.env_remove(name);
        }
        command.envs(&self.environment);
        command
    }
}

/// A running client; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    child: Child,
    events: Receiver<String>,
}

/// What a watched client noticed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    /// The credential is open.
    Attached,
    /// A token was granted for an assertion by this certificate, which is another one than before.
    Certificate { thumbprint: String },
    /// ARM answered a call.
    Arm {
        call: String,
        status: u16,
        #[serde(default)]
        code: String,
    },
    /// A token was refused.
    Refused { message: String },
    /// The library wrote to its log.
    Log { message: String },
}

impl Watched {
    /// The next event.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Event, ProgramError> {
        match self.events.recv_timeout(patience) {
            Ok(line) => serde_json::from_str(&line)
                .map_err(|source| ProgramError::Answer { answer: line, source }),
            Err(RecvTimeoutError::Timeout) => Err(ProgramError::Silent(patience)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(ProgramError::Ended { message: self.last_words() })
            }
        }
    }

    fn last_words(&mut self) -> String {
        let mut message = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut message).unwrap_or_default();
        }
        last_lines(&message)
    }
}

/// A traceback says what happened at its end.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(3)..].join("\n")
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(script.as_bytes()).expect("it is writable");
        let (_, path) = file.keep().expect("it can stay");
        Program::new("sh".into(), Some(path), Environment::new())
    }

    #[test]
    fn a_case_gets_its_inputs_and_gives_an_answer() {
        let program = shell(r#"read -r line; echo "{\"case\": \"$1\", \"inputs\": $line}""#);
        let inputs = Inputs { tenant: "t".to_owned(), ..Inputs::default() };
        let answer = program.answer("token", &inputs).expect("it answers");
        assert_eq!(answer["case"], "token");
        assert_eq!(answer["inputs"]["tenant"], "t");
    }

    #[test]
    fn inputs_print_no_secret() {
        let inputs = Inputs { client_secret: "marker".to_owned(), ..Inputs::default() };
        assert!(!format!("{inputs:?}").contains("marker"));
    }

    #[test]
    fn a_failure_shows_what_the_client_said() {
        let error = shell("echo no such case >&2; exit 3")
            .answer("x", &Inputs::default())
            .expect_err("it fails");
        assert!(error.to_string().contains("no such case"), "{error}");
    }

    #[test]
    fn events_come_in_order_and_the_end_is_noticed() {
        let script =
            r#"echo '{"event":"attached"}'; echo '{"event":"certificate","thumbprint":"ab"}'"#;
        let mut watched = shell(script).watch(&[]).expect("it starts");
        let patience = Duration::from_secs(20);
        assert_eq!(watched.next(patience).expect("first"), Event::Attached);
        let second = watched.next(patience).expect("second");
        assert_eq!(second, Event::Certificate { thumbprint: "ab".to_owned() });
        assert!(matches!(watched.next(patience), Err(ProgramError::Ended { .. })));
    }
}
