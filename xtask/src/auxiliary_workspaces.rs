//! Checks the auxiliary workspaces: programs outside of the main workspace, because they need other
//! dependency versions and settings. They are conformance clients and benchmarks of upstream libraries, and are
//! formatted and linted like all other code.

use std::path::PathBuf;
use std::process::Command;

use crate::process::{self, PassFailCounts};
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools::go_command;

/// Cargo workspaces.
const RUST_WORKSPACES: [&str; 3] =
    ["benches/credential", "conformance/kubernetes/witness", "conformance/rust"];

const GO_MODULES: [&str; 4] = [
    "benches/credential-go",
    "conformance/go",
    "conformance/tools/mlog",
    "conformance/tools/mock-provider",
];

pub(crate) fn check(repository: &Repository) -> Result<PassFailCounts, TaskError> {
    let mut tally = PassFailCounts::default();
    for path in RUST_WORKSPACES {
        let directory = repository.root().join(path);
        process::run(repository.cargo_in(&directory).args(["fmt", "--check"]))?;
        let mut clippy = repository.cargo_in(&directory);
        clippy.args(["clippy", "--all-targets", "--locked", "--target-dir"]);
        clippy.arg(target_directory(repository)).args(["--", "--deny", "warnings"]);
        process::run(&mut clippy)?;
        tally += PassFailCounts::ONE_PASSED;
    }
    for path in GO_MODULES {
        check_go_module(repository, repository.root().join(path))?;
        tally += PassFailCounts::ONE_PASSED;
    }
    Ok(tally)
}

/// The shared target directory of the auxiliary workspaces, so that common dependencies are built once.
pub(crate) fn target_directory(repository: &Repository) -> PathBuf {
    repository.target_directory().join("auxiliary")
}

fn check_go_module(repository: &Repository, directory: PathBuf) -> Result<(), TaskError> {
    let unformatted =
        process::capture_stdout(Command::new("gofmt").arg("-l").arg(".").current_dir(&directory))?;
    let findings: Vec<String> = String::from_utf8_lossy(&unformatted)
        .lines()
        .map(|file| directory.join(file).display().to_string())
        .collect();
    if !findings.is_empty() {
        return Err(TaskError::Findings { check: "Go files that gofmt would change", findings });
    }
    process::run(go_command(repository)?.args(["vet", "./..."]).current_dir(&directory))
}
