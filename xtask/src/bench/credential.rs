//! Compares the credential library with `azure_identity` and azidentity.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::row::{BenchMetric, BenchRow, MetricGoal, ReportedMeasurement, UpstreamProgram};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The names that the programs report.
const SUBJECT: &str = "lanyard-credential";
const AZURE_IDENTITY: UpstreamProgram =
    UpstreamProgram { name: "azure_identity 1.0.0", absence_reason: None };
const AZIDENTITY: &str = "azidentity 1.15.0";

/// Builds the programs, runs them one after the other and compares their measurements.
pub(super) fn measure(repository: &Repository, cores: usize) -> Result<Vec<BenchRow>, TaskError> {
    let go = if repository.has_program("go") { Some(build_go(repository)?) } else { None };
    let rust = build_rust(repository)?;
    let mut measurements = run_and_parse_measurements(&mut Command::new(rust))?;
    if let Some(go) = &go {
        measurements.extend(run_and_parse_measurements(
            Command::new(go).args(certificate_files(repository)),
        )?);
    }
    let absence = if go.is_none() { Some("Go is not installed") } else { None };
    let metrics =
        credential_metrics(cores, &UpstreamProgram { name: AZIDENTITY, absence_reason: absence });
    super::bench_rows(SUBJECT, &metrics, &measurements)
}

/// Builds the program in `benches/credential`, an auxiliary workspace.
fn build_rust(repository: &Repository) -> Result<PathBuf, TaskError> {
    let target = repository.target_directory().join("benches");
    let mut command = repository.cargo_in(&benches_directory(repository).join("credential"));
    // Without `--locked`: that lock file contains the crates of this workspace, and must follow when their
    // dependencies change.
    command.args(["build", "--release", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    Ok(target.join("release").join("credential-bench"))
}

/// Builds the program in `benches/credential-go`.
fn build_go(repository: &Repository) -> Result<PathBuf, TaskError> {
    let program = repository.target_directory().join("benches").join("credential-go");
    let mut command = Command::new("go");
    command.current_dir(benches_directory(repository).join("credential-go"));
    command.args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
    process::run(&mut command)?;
    Ok(program)
}

fn benches_directory(repository: &Repository) -> PathBuf {
    repository.root().join("benches")
}

/// The key and the two certificates that both programs load.
fn certificate_files(repository: &Repository) -> [PathBuf; 3] {
    let fixtures: &Path = &repository.root().join("crates/credential/tests/fixtures");
    ["leaf.pkcs8.key", "leaf.pem", "intermediate.pem"].map(|name| fixtures.join(name))
}

fn run_and_parse_measurements(
    command: &mut Command,
) -> Result<Vec<ReportedMeasurement>, TaskError> {
    let output = process::capture_stdout(command)?;
    serde_json::from_slice(&output)
        .map_err(|source| TaskError::Answer { command: process::command_line(command), source })
}

/// The metrics, and their goals on a machine with this many cores.
fn credential_metrics(cores: usize, azidentity: &UpstreamProgram) -> Vec<BenchMetric> {
    let no_upstream = Vec::new;
    let rust = || vec![AZURE_IDENTITY];
    let both = || vec![AZURE_IDENTITY, azidentity.clone()];
    let go = || vec![azidentity.clone()];
    let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
    let metric = |name, goal, upstream| BenchMetric { name, goal, upstream };
    vec![
        metric(ONE_SCOPE, MetricGoal::AtMost(150.0), both()),
        metric("cached_token_1_scope_allocations", MetricGoal::AtMost(2.0), both()),
        metric("cached_token_1000_scopes", MetricGoal::AtMostTimes(1.2, ONE_SCOPE), both()),
        metric("cached_token_1000_scopes_allocations", MetricGoal::AtMost(2.0), both()),
        metric("cached_token_1000_scopes_in_turn", MetricGoal::None, both()),
        metric(BORROWED_TOKEN_ONE_SCOPE, MetricGoal::AtMost(60.0), no_upstream()),
        metric("lent_token_1_scope_allocations", MetricGoal::AtMost(0.0), no_upstream()),
        metric(
            "lent_token_1000_scopes",
            MetricGoal::AtMostTimes(1.2, BORROWED_TOKEN_ONE_SCOPE),
            no_upstream(),
        ),
        metric(ONE_THREAD, MetricGoal::None, both()),
        metric(ALL_CORES, MetricGoal::AtLeastTimes(0.8 * cores, ONE_THREAD), both()),
        metric(
            "cached_token_throughput_twice_the_cores",
            MetricGoal::AtLeastTimes(0.9, ALL_CORES),
            both(),
        ),
        metric("hit_beside_hanging_request", MetricGoal::AtMost(10.0), rust()),
        metric("hit_beside_hanging_renewal", MetricGoal::AtMost(10.0), rust()),
        metric("cold_scope_requests", MetricGoal::Exactly(1.0), both()),
        metric(
            "cold_scope_time",
            MetricGoal::AtMostOfUpstream { factor: 1.0, limit: None },
            both(),
        ),
        metric("refused_requests", MetricGoal::Exactly(1.0), both()),
        metric("refused_longest_wait", MetricGoal::None, both()),
        metric("reload_cpu", MetricGoal::AtMostOfUpstream { factor: 2.0, limit: None }, go()),
        metric("reload_wall", MetricGoal::None, go()),
    ]
}

const ONE_SCOPE: &str = "cached_token_1_scope";
const BORROWED_TOKEN_ONE_SCOPE: &str = "lent_token_1_scope";
const ONE_THREAD: &str = "cached_token_throughput_1_thread";
const ALL_CORES: &str = "cached_token_throughput_all_cores";
