//! `cargo xtask bench`: compares lanyard with upstream programs, measured in the same run.
//!
//! Standard output has the result alone; builds, installations and progress go to standard error.
//!
//! The programs in `benches/` only measure. The goals are defined here, and the rows show whether they are
//! met. A missed goal is not an error, because the speed of a machine at a given moment is not a property of
//! a change.

mod azure;
mod credential;
mod infra;
mod node;
mod operator;
mod row;

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::thread;

use clap::ValueEnum;

use self::row::{BenchMetric, BenchRow, ReportedMeasurement};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The target to measure
    bench: BenchTarget,
    /// The output format
    #[arg(long, value_enum, default_value_t = BenchOutputFormat::Table)]
    output: BenchOutputFormat,
    /// The number of hosted clusters in the operator's fleet
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000), value_name = "NUMBER")]
    clusters: u32,
    /// The largest number of secrets, role assignments and resources in the local Azure
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=100_000), value_name = "NUMBER")]
    objects: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchTarget {
    /// The local Azure: start, memory, throughput of vaults and blobs, and the cost of many objects
    Azure,
    /// The credential library: cached tokens, cold scopes, hanging and refusing services, and reloads
    Credential,
    /// The creation of a cluster's infrastructure, in virtual time
    Infra,
    /// The node plugin: memory, mounts, republishes, requests and writes
    Node,
    /// The operator with a fleet of hosted clusters: writes, requests and memory
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchOutputFormat {
    /// A table
    Table,
    /// A JSON array of rows
    Json,
}

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = load_average()
        && load > 0.5 * f64::from(u32::try_from(cores).unwrap_or(u32::MAX))
    {
        // The note is optional, so a failed write is ignored.
        writeln!(
            io::stderr().lock(),
            "note: the load average is {load} on {cores} cores, which makes times longer"
        )
        .unwrap_or_default();
    }
    let mut stdout = process::redirect_stdout()?;
    let rows = match arguments.bench {
        BenchTarget::Azure => azure::measure(repository, arguments.objects)?,
        BenchTarget::Credential => credential::measure(repository, cores)?,
        BenchTarget::Infra => infra::measure(repository)?,
        BenchTarget::Node => node::measure(repository)?,
        BenchTarget::Operator => operator::measure(repository, arguments.clusters)?,
    };
    let text = match arguments.output {
        BenchOutputFormat::Table => row::format_table(&rows).join("\n"),
        BenchOutputFormat::Json => rows_json(&rows)?,
    };
    // A closed pipe (`| head`) is not an error.
    writeln!(stdout, "{text}").unwrap_or_default();
    Ok(())
}

/// Runs a benchmark and reads the measurements from the file that it writes. Its standard output is not
/// parsed.
fn run_and_read_measurements(
    command: &mut Command,
    file: &Path,
) -> Result<Vec<ReportedMeasurement>, TaskError> {
    process::capture_stdout(command)?;
    let text = fs::read(file).map_err(|source| TaskError::File {
        action: "read",
        path: file.to_owned(),
        source,
    })?;
    serde_json::from_slice(&text)
        .map_err(|source| TaskError::Answer { command: process::command_line(command), source })
}

/// Compares the measurements; returns an error if one is missing.
fn bench_rows(
    lanyard_subject: &str,
    metrics: &[BenchMetric],
    measurements: &[ReportedMeasurement],
) -> Result<Vec<BenchRow>, TaskError> {
    row::compare_measurements(lanyard_subject, metrics, measurements).map_err(|findings| {
        TaskError::Findings { check: "measurements missing from the benchmark's output", findings }
    })
}

fn rows_json(rows: &[BenchRow]) -> Result<String, TaskError> {
    serde_json::to_string_pretty(rows)
        .map_err(|source| TaskError::Answer { command: "cargo xtask bench".to_owned(), source })
}

/// The load average of the last minute, if the system provides it.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
