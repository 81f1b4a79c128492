//! `cargo xtask check`: the checks to run before each commit, without conformance suites.

use crate::ci;
use crate::layers;
use crate::process::{self, Stopwatch};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::test;
use crate::tidy;

/// The steps, in order of their duration.
const STEPS: [(&str, CheckStep); 5] = [
    ("format", ci::format),
    ("layers", |repository| layers::check(repository).map(drop)),
    ("tidy", |repository| tidy::check(repository).map(drop)),
    ("clippy", ci::clippy),
    ("tests", test::run_with_nextest),
];

type CheckStep = fn(&Repository) -> Result<(), TaskError>;

/// Runs every step, also after a failure, and prints the seconds of each.
pub(crate) fn run(repository: &Repository) -> Result<(), TaskError> {
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    let whole = Stopwatch::start();
    for (name, step) in STEPS {
        process::print_line(&format!("\n=== {name}"));
        let watch = Stopwatch::start();
        let result = step(repository);
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        lines.push(format!("{name:<8} {:>5} s  {verdict}", watch.elapsed().as_secs()));
        if let Err(error) = result {
            process::print_error(&error);
            failed.push(name);
        }
    }
    process::print_line("");
    lines.push(format!("{:<8} {:>5} s", "check", whole.elapsed().as_secs()));
    for line in &lines {
        process::print_line(line);
    }
    if failed.is_empty() {
        return Ok(());
    }
    let (count, names) = (failed.len(), failed.join(", "));
    Err(TaskError::Several { what: "steps", failed: count, total: STEPS.len(), names })
}
