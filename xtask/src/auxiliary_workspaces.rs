//! Programs that live beside the workspace, because they need versions and settings of their own:
//! judges and peers. They are held to format and lints like everything else.

use std::path::PathBuf;
use std::process::Command;

use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::go_command;

/// Rust workspaces of their own.
const RUST_WORKSPACES: [&str; 3] =
    ["benches/credential", "conformance/kubernetes/witness", "conformance/rust"];

/// Go modules.
const GO_MODULES: [&str; 4] = [
    "benches/credential-go",
    "conformance/go",
    "conformance/tools/mlog",
    "conformance/tools/mock-provider",
];

pub(crate) fn check(house: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    for path in RUST_WORKSPACES {
        let directory = house.root().join(path);
        process::run(house.cargo_in(&directory).args(["fmt", "--check"]))?;
        let mut clippy = house.cargo_in(&directory);
        clippy.args(["clippy", "--all-targets", "--locked", "--target-dir"]);
        clippy.arg(target_directory(house)).args(["--", "--deny", "warnings"]);
        process::run(&mut clippy)?;
        tally += PassFailCounts::ONE_PASSED;
    }
    for path in GO_MODULES {
        check_go_module(house, house.root().join(path))?;
        tally += PassFailCounts::ONE_PASSED;
    }
    Ok(tally)
}

/// Where all of them are built: what they have in common is built once.
pub(crate) fn target_directory(house: &Repository) -> PathBuf {
    house.target_directory().join("satellites")
}

fn check_go_module(house: &Repository, directory: PathBuf) -> Result<(), TaskError> {
    let unformatted =
        process::capture_stdout(Command::new("gofmt").arg("-l").arg(".").current_dir(&directory))?;
    let findings: Vec<String> = String::from_utf8_lossy(&unformatted)
        .lines()
        .map(|file| directory.join(file).display().to_string())
        .collect();
    if !findings.is_empty() {
        return Err(TaskError::Findings { check: "Go files that gofmt would change", findings });
    }
    process::run(go_command(house)?.args(["vet", "./..."]).current_dir(&directory))
}
