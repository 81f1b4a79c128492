//! The processor time of this process and of its child processes.

use std::fmt;
use std::fs;
use std::time::Duration;

/// Processor time, in user and kernel mode together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessorTime(Duration);

const SUFFIX: &str = " s of processor time";

impl ProcessorTime {
    /// The processor time until now; `None` on systems without `/proc/self/stat`. Children whose exit was not
    /// waited for are not included.
    pub(super) fn measure() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        Self::from_stat(&stat, rustix::param::clock_ticks_per_second())
    }

    /// Adds up `utime`, `stime`, `cutime` and `cstime` of `proc_pid_stat(5)`.
    fn from_stat(stat: &str, ticks_per_second: u64) -> Option<Self> {
        // The name of the program is in brackets, and may contain blanks. `utime` is the 14th field.
        let (_, fields) = stat.rsplit_once(')')?;
        let times = fields.split_whitespace().skip(11).take(4).map(str::parse::<u64>);
        let ticks: u64 = times.collect::<Result<Vec<_>, _>>().ok()?.into_iter().sum();
        let milliseconds = ticks.checked_mul(1_000)?.checked_div(ticks_per_second)?;
        Some(Self(Duration::from_millis(milliseconds)))
    }

    /// The processor time used since an earlier measurement.
    pub(super) fn since(self, before: Self) -> Duration {
        self.0.saturating_sub(before.0)
    }

    /// Parses the `Display` form.
    pub(super) fn parse(line: &str) -> Option<Duration> {
        line.trim().strip_suffix(SUFFIX)?.parse().ok().map(Duration::from_secs)
    }
}

/// `12 s of processor time`.
impl fmt::Display for ProcessorTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{SUFFIX}", self.0.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_includes_child_processes() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 900 5000 0 9 150 50 1000 300 20 0 1 0 42 1 1";
        let used = ProcessorTime::from_stat(stat, 100).expect("it can be read");
        assert_eq!(used, ProcessorTime(Duration::from_secs(15)));
        assert_eq!(ProcessorTime::parse(&used.to_string()), Some(Duration::from_secs(15)));
        assert_eq!(ProcessorTime::from_stat("7 (a", 100), None);
        assert_eq!(ProcessorTime::parse("1 passed, 0 failed"), None);
    }
}
