//! The operator as a process, as it runs in production.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process};

/// A running operator with one replica and a lease. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct OperatorProcess {
    child: Child,
    log: PathBuf,
}

/// The memory of a process, in MiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperatorMemory {
    /// Resident memory, including pages of the program file.
    pub(super) resident: f64,
    /// Resident memory without pages of files.
    pub(super) anonymous: f64,
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

    pub(super) fn read_memory(&self) -> Result<OperatorMemory, Failed> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mebibytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kibibytes: Option<f64> =
                line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            kibibytes.map(|it| it / 1_024.0).ok_or_else(|| format!("a process has no {name}"))
        };
        let (resident, of_files) = (mebibytes("VmRSS:")?, mebibytes("RssFile:")?);
        Ok(OperatorMemory { resident, anonymous: resident - of_files })
    }

    /// The user and system processor time in seconds (`proc_pid_stat(5)`).
    pub(super) fn cpu_seconds(&self) -> Result<f64, Failed> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The program name before it may contain blanks. `utime` and `stime` are fields 14 and 15.
        let (_, after) = stat.rsplit_once(')').ok_or("a process has no name")?;
        let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        let ticks: f64 = ticks.sum::<Result<_, _>>()?;
        Ok(ticks / TICKS_PER_SECOND)
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

/// `USER_HZ`: Linux reports processor time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LOG_TAIL_LINES: usize = 12;
