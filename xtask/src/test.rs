//! `cargo xtask test`: the tests that need Rust alone.

use crate::failure::TaskError;
use crate::house::House;
use crate::process::{self, Stopwatch, Tally};

/// Runs every test of the workspace and prints closing lines.
pub(crate) fn run(house: &House) -> Result<Tally, TaskError> {
    let watch = Stopwatch::start();
    let mut command = house.cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    let outcome = process::run_counted(&mut command);
    let seconds = watch.elapsed().as_secs();
    match &outcome {
        Ok(tally) => {
            process::say(&format!("\nall tests of the workspace: {tally} ({seconds} s)"));
        }
        Err(_) => process::say(&format!("\nthe tests of the workspace failed ({seconds} s)")),
    }
    outcome
}

/// Kills a real node plugin at every step of its work. It mounts, so it needs root.
pub(crate) fn crash(house: &House) -> Result<Tally, TaskError> {
    let mut command = house.cargo();
    // The whole workspace, so that its dependencies are built as for every other test.
    command.args(["test", "--locked", "--workspace", "--features", "lanyard/crash-points"]);
    let outcome = process::run_counted(command.args(["--test", "crash"]));
    if let Ok(tally) = &outcome {
        process::say(&format!("\nthe crash matrix: {tally}"));
    }
    outcome
}
