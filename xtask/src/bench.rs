//! `cargo xtask bench`: ourselves beside our peers, measured in the same run.
//!
//! The programs in `benches/` measure and know nothing of goals; the goals are here, and whether
//! they are met is computed. A goal that is missed is a row that says so, not an error: how fast
//! a machine is at the moment is no property of a change.

mod credential;
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
    /// What to measure
    bench: BenchTarget,
    /// How to print the rows
    #[arg(long, value_enum, default_value_t = BenchOutputFormat::Table)]
    output: BenchOutputFormat,
    /// How many hosted clusters the fleet of the operator has
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000), value_name = "NUMBER")]
    clusters: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchTarget {
    /// Cached tokens, cold scopes, hanging and refusing services, and reloads of the credential library
    Credential,
    /// Memory, mounts, republishes, requests and writes of the node plugin
    Node,
    /// Writes, requests and memory of the operator with a fleet of hosted clusters
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchOutputFormat {
    /// Columns for people
    Table,
    /// One array of rows
    Json,
}

pub(crate) fn run(house: &Repository, arguments: &Args) -> Result<(), TaskError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if let Some(load) = load_average()
        && load > 0.5 * f64::from(u32::try_from(cores).unwrap_or(u32::MAX))
    {
        // Nobody has to hear this for the work to go on.
        writeln!(
            io::stderr().lock(),
            "note: the load average is {load} on {cores} cores, which makes times longer"
        )
        .unwrap_or_default();
    }
    let rows = match arguments.bench {
        BenchTarget::Credential => credential::measure(house, cores)?,
        BenchTarget::Node => node::measure(house)?,
        BenchTarget::Operator => operator::measure(house, arguments.clusters)?,
    };
    match arguments.output {
        BenchOutputFormat::Table => {
            row::format_table(&rows).iter().for_each(|line| process::print_line(line))
        }
        BenchOutputFormat::Json => process::print_line(&rows_json(&rows)?),
    }
    Ok(())
}

/// The numbers that a program wrote into a file while it worked. What it says meanwhile is no part of
/// the rows.
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

/// The rows, where no number is missing.
fn bench_rows(
    ourselves: &str,
    metrics: &[BenchMetric],
    measurements: &[ReportedMeasurement],
) -> Result<Vec<BenchRow>, TaskError> {
    row::compare_measurements(ourselves, metrics, measurements).map_err(|findings| {
        TaskError::Findings { check: "measurements missing from the benchmark's output", findings }
    })
}

fn rows_json(rows: &[BenchRow]) -> Result<String, TaskError> {
    serde_json::to_string_pretty(rows)
        .map_err(|source| TaskError::Answer { command: "cargo xtask bench".to_owned(), source })
}

/// How many processes wanted to run during the last minute, where the system says so.
fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
