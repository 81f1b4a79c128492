//! A `lanyard up` that runs beside the trial.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};

use super::own::PATIENCE;
use crate::suites::chain;

/// A `lanyard up` that runs, with its output in a file. One that is dropped is asked to end, and
/// waited for: it has things to take away.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(super) fn start(mut command: Command, log: &Path) -> Result<Self, Failed> {
        let out = File::create(log).map_err(chain)?;
        let err = out.try_clone().map_err(chain)?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        Ok(Self { child: child.map_err(chain)?, log: log.to_owned() })
    }

    /// Waits until something is so, as long as it runs; gives what it wrote.
    pub(super) async fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&str) -> bool,
    ) -> Result<String, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            if is_so(&log) {
                return Ok(log);
            }
            if self.child.try_wait().map_err(chain)?.is_some() {
                return Err(format!("it ended before {what}:\n{log}").into());
            }
            if clock.monotonic() > deadline {
                return Err(format!("no {what} in {} s:\n{log}", PATIENCE.as_secs()).into());
            }
            clock.sleep(GLANCE).await;
        }
    }

    /// Waits until all is proven and it stays up; gives the kubeconfig that it tells.
    pub(super) async fn until_it_stays_up(&mut self) -> Result<PathBuf, Failed> {
        let what = "what it stays up for";
        let told = self.until(what, |log| log.contains("identities -A")).await?;
        let told = told
            .lines()
            .find_map(|line| line.strip_prefix("export KUBECONFIG='")?.strip_suffix('\''));
        Ok(told.map(PathBuf::from).ok_or("no KUBECONFIG is told")?)
    }

    /// Kills it: it takes nothing away.
    pub(super) fn kill(mut self) -> Result<(), Failed> {
        self.child.kill().map_err(chain)?;
        self.child.wait().map(drop).map_err(chain)
    }

    /// Ctrl-C; gives the exit code.
    pub(super) async fn interrupt(self) -> Result<Option<i32>, Failed> {
        self.press_ctrl_c();
        self.ended().await
    }

    /// Ctrl-C.
    pub(super) fn press_ctrl_c(&self) {
        self.signal(Signal::INT);
    }

    /// Waits for the end; gives the exit code.
    pub(super) async fn ended(mut self) -> Result<Option<i32>, Failed> {
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().map_err(chain)? {
                return Ok(status.code());
            }
            if clock.monotonic() > deadline {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("it did not end:\n{log}").into());
            }
            clock.sleep(GLANCE).await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, signal).unwrap_or_default();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
            self.child.wait().ok();
        }
    }
}

const GLANCE: Duration = Duration::from_millis(50);
