//! The operator as a process, as it runs in production.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};

use crate::process_usage::{self, ProcessMemory};
use crate::suites::operator::operator_account::OPERATOR_ACCOUNT;

/// A running operator with one replica and a lease. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct OperatorProcess {
    child: Child,
    log: PathBuf,
}

impl OperatorProcess {
    pub(super) fn start(
        program: &Path,
        kubeconfig: &Path,
        log: PathBuf,
        namespace: &str,
    ) -> Result<Self, Failed> {
        let out = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(program);
        command.arg("operator").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--lease-namespace", namespace, "--metrics-addr", "127.0.0.1:0"]);
        command.args(["--service-account", OPERATOR_ACCOUNT]);
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        Ok(Self { child: command.spawn()?, log })
    }

    /// Fails if the process has exited.
    pub(super) fn expect_running(&mut self) -> Result<(), Failed> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = fs::read_to_string(&self.log)?;
                let lines: Vec<_> = log.lines().rev().take(LOG_TAIL_LINES).collect();
                let end = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
                Err(format!("the operator exited ({status}):\n{end}").into())
            }
        }
    }

    pub(super) fn read_memory(&self) -> Result<ProcessMemory, Failed> {
        process_usage::process_memory(self.child.id())
    }

    /// The user and system processor time.
    pub(super) fn processor_time(&self) -> Result<Duration, Failed> {
        process_usage::processor_time(self.child.id())
    }

    /// Stops the process with SIGTERM.
    pub(super) async fn stop(mut self) -> Result<(), Failed> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("a process has no id")?, Signal::TERM)?;
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + STOP_TIMEOUT;
        while self.child.try_wait()?.is_none() {
            if clock.monotonic() > deadline {
                return Err("the operator did not exit after SIGTERM".into());
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

impl Drop for OperatorProcess {
    fn drop(&mut self) {
        // The process may have exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOG_TAIL_LINES: usize = 12;
