//! `cargo xtask test`: every test of the workspace, by cargo alone.

mod root_access;

use std::thread;

use self::root_access::RootAccess;
use crate::process::{self, PassFailCounts, Stopwatch};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;
use crate::workspace;

/// Runs every test of the workspace and prints closing lines.
pub(crate) fn run(house: &Repository) -> Result<PassFailCounts, TaskError> {
    let watch = Stopwatch::start();
    let root = RootAccess::detect();
    let mut command = house.cargo();
    command
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
            process::print_line(&format!("\nthe tests of the workspace failed ({seconds} s)"))
        }
    }
    if let Some(hint) = root.hint() {
        process::print_line(hint);
    }
    outcome
}

/// Runs every test in a process of its own, several at a time; documentation is not tested. Where
/// cargo-nextest cannot be installed, the ordinary test command runs.
pub(crate) fn run_with_nextest(house: &Repository) -> Result<(), TaskError> {
    let binaries = match tools::cargo_tool(house, tools::CARGO_NEXTEST) {
        Ok(binaries) => binaries,
        Err(error) => {
            process::print_error(&error);
            process::print_line("cargo-nextest is not there: this is `cargo xtask test`");
            return run(house).map(drop);
        }
    };
    let root = RootAccess::detect();
    let mut command = house.cargo();
    command.env("PATH", house.path_with_prefix(&binaries));
    command.args(["nextest", "run", "--no-fail-fast", "--status-level", "slow"]);
    command.args(workspace::TEST_PACKAGES).args(root.cargo_settings().iter().flatten());
    // Many tests wait for processes or clocks: with one for each processor, a fifth of the time is idle.
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
