//! Metrics of the process and its build, under the names that Prometheus client libraries use.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The build of the program.
#[derive(Debug, Clone, Copy)]
pub struct BuildInfo {
    /// The version of the program.
    pub version: &'static str,
}

impl BuildInfo {
    /// Registers `lanyard_build_info{version="…"} 1`.
    pub fn register(self, registry: &mut Registry) {
        let info = Info::new(vec![("version", self.version)]);
        registry.register("lanyard_build", "The build of this program", info);
    }
}

/// Memory, CPU time and open files of this process (proc(5)), read at each scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessMetrics;

impl ProcessMetrics {
    /// Registers `process_resident_memory_bytes` and the other process metrics.
    pub fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let load = |file: &str| fs::read_to_string(format!("/proc/{file}")).unwrap_or_default();
        let usage = ProcessUsage::parse(&load("self/status"), &load("self/stat"), &load("stat"));
        let open_files = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory in bytes", usage.resident),
            ("process_virtual_memory_bytes", "Virtual memory in bytes", usage.virtual_memory),
            ("process_threads", "Threads", usage.threads),
            (
                "process_open_fds",
                "Open file descriptors",
                open_files.and_then(|it| it.try_into().ok()),
            ),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        if let Some(start) = usage.start_seconds {
            let (name, help) = (
                "process_start_time_seconds",
                "Start time of the process in seconds since the Unix epoch",
            );
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(start).encode(metric)?;
        }
        if let Some(cpu) = usage.cpu_seconds {
            let (name, help) = ("process_cpu_seconds", "CPU time in seconds");
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(cpu).encode(metric)?;
        }
        Ok(())
    }
}

/// The resource usage of the process. Values that the system does not report are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct ProcessUsage {
    resident: Option<i64>,
    virtual_memory: Option<i64>,
    threads: Option<i64>,
    cpu_seconds: Option<f64>,
    start_seconds: Option<f64>,
}

impl ProcessUsage {
    /// Parses `/proc/self/status`, `/proc/self/stat` and `/proc/stat`.
    fn parse(status: &str, own_stat: &str, stat: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(':')?.split_whitespace().next()?.parse::<i64>().ok()
        };
        let bytes = |name: &str| field(name).and_then(|kib| kib.checked_mul(1024));
        // The program name may contain any character; the fields start after its closing
        // parenthesis.
        let rest = own_stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = |field: usize| {
            let ticks =
                rest.split_whitespace().nth(field - FIRST_STAT_FIELD)?.parse::<u32>().ok()?;
            Some(f64::from(ticks) / TICKS_PER_SECOND)
        };
        let booted = stat
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|seconds| seconds.trim().parse::<u32>().ok());
        Self {
            resident: bytes("VmRSS"),
            virtual_memory: bytes("VmSize"),
            threads: field("Threads"),
            cpu_seconds: ticks(UTIME).zip(ticks(STIME)).map(|(user, system)| user + system),
            start_seconds: booted.zip(ticks(STARTTIME)).map(|(boot, it)| f64::from(boot) + it),
        }
    }
}

/// The unit of CPU times: Linux reports them in ticks of 10 ms on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Field numbers of `proc_pid_stat(5)`; the first field after the program name is 3.
const FIRST_STAT_FIELD: usize = 3;
const UTIME: usize = 14;
const STIME: usize = 15;
const STARTTIME: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricsPage;

    #[test]
    fn proc_files_are_parsed() {
        let status = "Name:\tlanyard\nVmSize:\t  2048 kB\nVmRSS:\t    12 kB\nThreads:\t3\n";
        let own = "1 (a) b) S 0 1 1 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 3 0 200 9 9 9";
        let expected = ProcessUsage {
            resident: Some(12 * 1024),
            virtual_memory: Some(2048 * 1024),
            threads: Some(3),
            cpu_seconds: Some(2.0),
            start_seconds: Some(1002.0),
        };
        assert_eq!(ProcessUsage::parse(status, own, "cpu 1 2\nbtime 1000\n"), expected);
        assert_eq!(ProcessUsage::parse("", "", ""), ProcessUsage::default());
    }

    #[test]
    fn metrics_page_has_process_usage_and_build_info() {
        let page = MetricsPage::build(|registry| {
            ProcessMetrics.register(registry);
            BuildInfo { version: "1.2.3" }.register(registry);
        });
        let text = page.render();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse::<f64>().ok())
        };
        assert!(value("process_resident_memory_bytes").is_some_and(|it| it > 100_000.0), "{text}");
        assert!(value("process_open_fds").is_some_and(|it| it >= 3.0), "{text}");
        assert!(value("process_start_time_seconds").is_some_and(|it| it > 1.5e9), "{text}");
        assert!(value("process_cpu_seconds_total").is_some(), "{text}");
        assert!(text.contains("lanyard_build_info{version=\"1.2.3\"} 1\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
