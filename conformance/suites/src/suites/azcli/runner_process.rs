//! The process of `conformance/azcli/runner.py` that runs the commands of one area.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{AzureCliError, COMMAND_TIMEOUT};

/// The process of the runner. Dropping it kills the process.
pub(super) struct RunnerProcess {
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
    /// Starts the process of an area, whose commands have these variables.
    pub(super) fn start(
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

    /// Runs a command. Returns the problems with its result.
    pub(super) fn run_command(&mut self, command: usize) -> Result<Vec<String>, AzureCliError> {
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

    fn start(script: &str) -> RunnerProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        RunnerProcess::start(command, Path::new("sh"), &json!({})).expect("it starts")
    }

    #[test]
    fn problems_of_a_command_are_returned() {
        let mut process = start(
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
        let mut process = start(
            r#"echo '{"command": 0, "problems": ["late"]}'; echo '{"command": 1, "problems": []}'; cat"#,
        );
        assert!(process.run_command(1).expect("it answers").is_empty());
    }
}
