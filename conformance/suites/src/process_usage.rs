//! Memory and processor time of a process, from `/proc`.

use std::fs;
use std::time::Duration;

use libtest_mimic::Failed;

/// The memory of a process, in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessMemory {
    /// Resident memory, including pages of the program file.
    pub(crate) resident: f64,
    /// Resident memory without pages of files.
    pub(crate) anonymous: f64,
}

/// The memory of a process now.
pub(crate) fn process_memory(pid: u32) -> Result<ProcessMemory, Failed> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mebibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes: Option<f64> =
            line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kibibytes.map(|it| it / 1_024.0).ok_or_else(|| format!("a process has no {name}"))
    };
    let (resident, of_files) = (mebibytes("VmRSS:")?, mebibytes("RssFile:")?);
    Ok(ProcessMemory { resident, anonymous: resident - of_files })
}

/// The user and system processor time of a process (`proc_pid_stat(5)`), in steps of 10 ms.
pub(crate) fn processor_time(pid: u32) -> Result<Duration, Failed> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program name before it may contain blanks. `utime` and `stime` are fields 14 and 15.
    let (_, after) = stat.rsplit_once(')').ok_or("a process has no name")?;
    let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks * MILLISECONDS_PER_TICK))
}

/// `USER_HZ`: Linux reports processor time in hundredths of a second.
const MILLISECONDS_PER_TICK: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_and_processor_time() {
        let memory = process_memory(std::process::id()).expect("this process exists");
        assert!(memory.resident > memory.anonymous && memory.anonymous > 0.0, "{memory:?}");
        processor_time(std::process::id()).expect("this process exists");
    }

    #[test]
    fn absent_process_is_an_error() {
        assert!(process_memory(u32::MAX).is_err());
        assert!(processor_time(u32::MAX).is_err());
    }
}
