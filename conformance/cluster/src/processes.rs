//! Records of processes that outlive the process that started them.
//!
//! A process is identified by its id and start time, so an id that the operating system reused is never
//! mistaken for a process of the cluster. In addition, each process carries an environment variable that
//! marks the cluster. It finds processes that were started but not recorded before this process was killed,
//! and those that components started.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lanyard_clock::Clock;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::component::ClusterComponent;
use crate::component_command::{ComponentCommand, component_command};
use crate::error::ClusterError;
use crate::layout::ClusterLayout;
use crate::plan::ClusterContext;

/// A process that was running when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedProcess {
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot.
    started: u64,
    /// Boot id of the machine: process ids and start times repeat after a reboot.
    boot: String,
}

impl RecordedProcess {
    /// Records the process with this id, unless it does not exist or is dead.
    pub(crate) fn observe(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = parse_stat(&stat)?;
        // A dead process stays visible until its parent collects its status.
        let is_dead = matches!(state, 'Z' | 'X');
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        (!is_dead).then_some(Self { pid, started, boot })
    }

    /// Whether this process, and not another one with its id, still runs.
    pub(crate) fn is_alive(&self) -> bool {
        Self::observe(self.pid).as_ref() == Some(self)
    }

    pub(crate) fn resident_memory_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        parse_memory(&status)
    }

    /// Sends a signal, unless the process has exited.
    pub(crate) fn send_signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        // The descriptor refers to one process; the check after opening it proves that it is this one.
        if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_alive()
        {
            match pidfd_send_signal(&descriptor, signal) {
                // The process may have exited in the meantime, which callers that wait for its exit observe.
                Ok(()) | Err(Errno::SRCH | _) => {}
            }
        }
    }

    /// Waits until the process exits. Returns false after the timeout.
    pub(crate) async fn wait_for_exit(&self, timeout: Duration, clock: &dyn Clock) -> bool {
        let deadline = clock.monotonic() + timeout;
        while self.is_alive() {
            if clock.monotonic() >= deadline {
                return false;
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        true
    }
}

/// How often the exit of a process is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a process may take to exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);

/// Kills processes and waits until they exit.
pub(crate) async fn kill_all(
    processes: &[(String, RecordedProcess)],
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    for (_, process) in processes {
        process.send_signal(Signal::KILL);
    }
    for (what, process) in processes {
        if !process.wait_for_exit(KILL_TIMEOUT, clock).await {
            return Err(ClusterError::StillRunning {
                process_name: what.clone(),
                pid: process.pid,
            });
        }
    }
    Ok(())
}

/// Starts a component and records it.
pub(crate) fn start_component(
    context: ClusterContext<'_>,
    component: ClusterComponent,
) -> Result<RecordedProcess, ClusterError> {
    let ComponentCommand { program, arguments } = component_command(context, component);
    if !program.is_file() {
        return Err(ClusterError::MissingProgram(program));
    }
    let log = context.layout.log_file(component);
    let output = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(ClusterError::file("open", &log))?;
    let errors = output.try_clone().map_err(ClusterError::file("open", &log))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(component_environment(context));
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    // Keeps signals of the caller's terminal away from the component.
    command.process_group(0).current_dir(context.layout.root());
    let mut child =
        command.spawn().map_err(|source| ClusterError::StartComponent { component, source })?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    // Collects the exit status while this process runs, so that the component does not stay a zombie.
    std::thread::spawn(move || child.wait());
    let process =
        RecordedProcess::observe(pid).ok_or_else(|| exited_error(context.layout, component))?;
    record_process(context.layout, component, &process)?;
    Ok(process)
}

/// The environment variables of a component.
pub(crate) fn component_environment(context: ClusterContext<'_>) -> Vec<(&'static str, OsString)> {
    let (mark, value) = context.layout.process_marker();
    let mut path = context.plan.programs.clone().into_os_string();
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    vec![(mark, value.into()), ("PATH", path), ("HOME", context.layout.root().into())]
}

fn record_process(
    layout: &ClusterLayout,
    component: ClusterComponent,
    process: &RecordedProcess,
) -> Result<(), ClusterError> {
    let path = layout.process_record_file(component);
    let text = serde_json::to_vec(process).map_err(|source| ClusterError::InvalidRecord {
        path: path.clone(),
        what: "a process",
        source,
    })?;
    fs::write(&path, text).map_err(ClusterError::file("write", &path))
}

/// The recorded process of a component, if it still runs.
pub(crate) fn recorded_process(
    layout: &ClusterLayout,
    component: ClusterComponent,
) -> Option<RecordedProcess> {
    let text = fs::read(layout.process_record_file(component)).ok()?;
    let process: RecordedProcess = serde_json::from_slice(&text).ok()?;
    process.is_alive().then_some(process)
}

/// The error for a component that exited, with the end of its log.
pub(crate) fn exited_error(layout: &ClusterLayout, component: ClusterComponent) -> ClusterError {
    let log = layout.log_file(component);
    let text = fs::read(&log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let log_tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
    ClusterError::Exited { component, log, log_tail }
}

const LOG_TAIL_LINES: usize = 8;

/// Every process that carries the environment variable of a cluster, with its name.
pub(crate) fn marked_processes(layout: &ClusterLayout) -> Vec<(String, RecordedProcess)> {
    let (name, value) = layout.process_marker();
    let mut wanted = OsString::from(name);
    wanted.push("=");
    wanted.push(value);
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter_map(|pid| i32::try_from(pid).ok())
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environment| has_variable(&environment, wanted.as_encoded_bytes()))
        })
        .filter_map(|pid| Some((process_name(pid), RecordedProcess::observe(pid)?)))
        .collect()
}

/// The file name of a process's program, for messages.
pub(crate) fn process_name(pid: i32) -> String {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_else(|_| PathBuf::from("?"));
    program.file_name().map_or_else(|| "?".to_owned(), |it| it.to_string_lossy().into_owned())
}

/// Whether a zero-terminated list of `NAME=value` entries contains exactly `wanted`.
fn has_variable(environment: &[u8], wanted: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

/// Parses state and start time from `/proc/PID/stat` (proc(5)). The program name in brackets can contain any
/// characters, including brackets.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // The state is the third field of the file, the start time the twenty-second.
    Some((fields.first()?.chars().next()?, fields.get(19)?.parse().ok()?))
}

/// Parses the resident memory from `/proc/PID/status`, which counts in KiB.
fn parse_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Runs a command of the node's tools and returns its standard output.
pub(crate) async fn run_tool(program: &Path, arguments: &[&str]) -> Result<String, ClusterError> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let spelled = || format!("{} {}", program.display(), arguments.join(" "));
    let output = command.output().await.map_err(ClusterError::file("run", program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ClusterError::Command {
        command: spelled(),
        exit_status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_parsed_with_any_program_name() {
        let line = |name: &str| {
            format!("7 ({name}) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9")
        };
        for name in ["etcd", "a b", "x) Z 1 (", ") "] {
            assert_eq!(parse_stat(&line(name)), Some(('S', 4711)), "{name}");
        }
        assert_eq!(parse_stat("7 (etcd) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn only_the_exact_marker_variable_matches() {
        let environment = b"PATH=/bin\0LANYARD_CLUSTER=/c/one\0";
        assert!(has_variable(environment, b"LANYARD_CLUSTER=/c/one"));
        assert!(!has_variable(environment, b"LANYARD_CLUSTER=/c"));
        assert!(!has_variable(environment, b"CLUSTER=/c/one"));
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        assert_eq!(parse_memory("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
        assert_eq!(parse_memory("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn process_with_reused_pid_is_not_alive() {
        let ours = RecordedProcess::observe(std::process::id().try_into().expect("an id"))
            .expect("this very process runs");
        assert!(ours.is_alive());
        let earlier = RecordedProcess { started: ours.started - 1, ..ours.clone() };
        assert!(!earlier.is_alive());
        let other_boot = RecordedProcess { boot: "another".to_owned(), ..ours };
        assert!(!other_boot.is_alive());
    }

    #[test]
    fn zombie_process_is_not_alive() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is everywhere");
        let process =
            RecordedProcess::observe(child.id().try_into().expect("an id")).expect("it runs");
        process.send_signal(Signal::KILL);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let clock = lanyard_clock::SystemClock::new();
        assert!(runtime.block_on(process.wait_for_exit(Duration::from_secs(10), &clock)));
        child.wait().expect("its status is still there");
    }
}
