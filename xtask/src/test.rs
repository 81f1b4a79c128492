//! `cargo xtask test`: runs every test of the workspace with cargo.

mod root_access;

use std::thread;

use self::root_access::RootAccess;
use crate::process::{self, PassFailCounts, Stopwatch};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;
use crate::workspace;

/// The environment variable with the seed of each local Azure. With random keys, tests would spend a third of their
/// processor time on prime numbers.
const SEED_VARIABLE: &str = "LANYARD_AZURE_SEED";

/// Runs every test of the workspace and prints a summary.
pub(crate) fn run(repository: &Repository) -> Result<PassFailCounts, TaskError> {
    let watch = Stopwatch::start();
    let root = RootAccess::detect();
    let mut command = repository.cargo();
    command
        .env(SEED_VARIABLE, "tests")
        .args(root.cargo_settings().iter().flatten())
        .arg("test")
        .args(workspace::TEST_PACKAGES)
        .arg("--no-fail-fast");
    if root.is_available() {
        command.args(["--", "--include-ignored"]);
    }
    let outcome = process::run_counted(&mut command);
    let seconds = watch.elapsed().as_secs();
    match &outcome {
        Ok(tally) => {
            process::print_line(&format!("\nall tests of the workspace: {tally} ({seconds} s)"));
        }
        Err(_) => {
            process::print_line(&format!("\nthe tests of the workspace failed ({seconds} s)"));
        }
    }
    if let Some(hint) = root.hint() {
        process::print_line(hint);
    }
    outcome
}

/// Runs every test in its own process, several in parallel, without doc tests. Runs `cargo xtask test`
/// instead if cargo-nextest cannot be installed.
pub(crate) fn run_with_nextest(repository: &Repository) -> Result<(), TaskError> {
    let binaries = match tools::cargo_tool(repository, tools::CARGO_NEXTEST) {
        Ok(binaries) => binaries,
        Err(error) => {
            process::print_error(&error);
            process::print_line(
                "cargo-nextest is not available: running `cargo xtask test` instead",
            );
            return run(repository).map(drop);
        }
    };
    let root = RootAccess::detect();
    let mut command = repository.cargo();
    command.env("PATH", repository.path_with_prefix(&binaries)).env(SEED_VARIABLE, "tests");
    command.args(["nextest", "run", "--no-fail-fast", "--status-level", "slow"]);
    command.args(workspace::TEST_PACKAGES).args(root.cargo_settings().iter().flatten());
    // Many tests wait for processes or clocks: with one thread per processor, a fifth of the time is idle.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    command.args(["--test-threads", &processors.saturating_mul(2).to_string()]);
    if root.is_available() {
        command.args(["--run-ignored", "all"]);
    }
    command.args(root.nextest_filter().iter().flatten());
    process::run(&mut command)?;
    root.hint().into_iter().for_each(process::print_line);
    Ok(())
}
