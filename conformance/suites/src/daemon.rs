//! Programs that run in the background of a suite: drivers, providers and the node plugin.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

/// How long a program may take to exit after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A background program failed.
#[derive(Debug, Error)]
pub(crate) enum DaemonError {
    #[error("`{name}` could not be started, or its standard input could not be written")]
    Start {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{name}` exited; the end of its log:\n{log}")]
    Exited { name: String, log: String },
    #[error("`{name}` was not {expected} after {} s; the end of its log:\n{log}", timeout.as_secs())]
    TimedOut { name: String, expected: String, timeout: Duration, log: String },
}

/// A program that runs in the background and logs to a file. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log_path: PathBuf,
}

impl Daemon {
    /// Starts a program whose output goes to `NAME.log` in `directory`.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        directory: &Path,
    ) -> Result<Self, DaemonError> {
        let start = |source| DaemonError::Start { name: name.to_owned(), source };
        let log = directory.join(format!("{name}.log"));
        // A restarted program appends to its log.
        let out = File::options().create(true).append(true).open(&log).map_err(start)?;
        let err = out.try_clone().map_err(start)?;
        let child = command.stdin(Stdio::piped()).stdout(out).stderr(err).spawn().map_err(start)?;
        Ok(Self { name: name.to_owned(), child, log_path: log })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a condition holds. Fails if the program exits or the timeout passes.
    pub(crate) async fn wait_until(
        &mut self,
        what: &str,
        timeout: Duration,
        mut condition: impl AsyncFnMut() -> bool,
    ) -> Result<(), DaemonError> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + timeout;
        while !condition().await {
            let (name, log) = (self.name.clone(), self.log_tail());
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err(DaemonError::Exited { name, log });
            }
            if clock.monotonic() > deadline {
                let expected = what.to_owned();
                return Err(DaemonError::TimedOut { name, expected, timeout, log });
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Writes a line to the program's standard input.
    pub(crate) fn write_line_to_stdin(&mut self, line: &str) -> Result<(), DaemonError> {
        let start = |source| DaemonError::Start { name: self.name.clone(), source };
        let Some(stdin) = &mut self.child.stdin else { return Ok(()) };
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).map_err(start)
    }

    /// The path of the log.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.log_path.clone()
    }

    fn read_log(&self) -> String {
        fs::read(&self.log_path)
            .map(|it| String::from_utf8_lossy(&it).into_owned())
            .unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.read_log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Stops the program with SIGTERM, and with SIGKILL if it does not exit in time.
    pub(crate) async fn stop(mut self) {
        self.send_signal(Signal::TERM);
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + STOP_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && clock.monotonic() < deadline {
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    fn send_signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may have exited.
            kill_process(pid, signal).unwrap_or_default();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_daemon(script: &str, directory: &Path) -> Daemon {
        Daemon::start("shell", Command::new("sh").args(["-c", script]), directory)
            .expect("a shell starts")
    }

    #[tokio::test]
    async fn exited_daemon_error_contains_its_log() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut daemon = shell_daemon("echo no such flag >&2; exit 3", directory.path());
        let timeout = Duration::from_secs(20);
        let error = daemon.wait_until("ready", timeout, async || false).await;
        let error = error.expect_err("it never is");
        assert!(error.to_string().contains("no such flag"), "{error}");
    }

    #[tokio::test]
    async fn stop_sends_sigterm_before_sigkill() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = "trap 'echo farewell; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let mut daemon = shell_daemon(script, directory.path());
        let log = daemon.log_path.clone();
        let said = |word: &str| fs::read_to_string(&log).is_ok_and(|text| text.contains(word));
        let timeout = Duration::from_secs(20);
        daemon.wait_until("ready", timeout, async || said("ready")).await.expect("it is");
        daemon.stop().await;
        assert!(said("farewell"));
    }
}
