//! Builds the clients of `conformance/`: small programs that use third-party libraries.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::InstalledTool;
use super::cache::{ToolFingerprint, file_error, make_directory, remove_directory};
use crate::auxiliary_workspaces;
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The directory of the Go programs of `conformance/go`.
pub(crate) fn go_clients(repository: &Repository) -> Result<PathBuf, TaskError> {
    install_go_clients(repository).map(|it| it.path)
}

/// The Python interpreter of a virtual environment with the packages of `conformance/python`.
pub(crate) fn python_clients(repository: &Repository) -> Result<PathBuf, TaskError> {
    install_python_clients(repository).map(|it| it.path)
}

/// The Python interpreter of a virtual environment with the Azure CLI.
pub(crate) fn azure_cli(repository: &Repository) -> Result<PathBuf, TaskError> {
    install_azure_cli(repository).map(|it| it.path)
}

/// The program of `conformance/rust`, an auxiliary workspace.
pub(crate) fn rust_clients(repository: &Repository) -> Result<PathBuf, TaskError> {
    install_rust_clients(repository).map(|it| it.path)
}

/// Always runs `go build`; Go's build cache avoids unnecessary work.
pub(super) fn install_go_clients(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let module = repository.root().join("conformance").join("go");
    let version = ToolFingerprint::new().with_files(&[module.join("go.sum")])?.to_hex();
    let place = repository.tool_directory("go-clients", &version);
    make_directory(&place)?;
    let mut command = super::go::go_command(repository)?;
    command.current_dir(&module).args(["build", "-ldflags", "-s -w", "-o"]);
    command.arg(&place).arg("./...");
    process::run(&mut command)?;
    Ok(InstalledTool { version, path: place })
}

pub(super) fn install_python_clients(repository: &Repository) -> Result<InstalledTool, TaskError> {
    install_python_packages(repository, "python-clients", "python")
}

/// Installs the Azure CLI, which takes about 30 seconds and 400 MB.
pub(super) fn install_azure_cli(repository: &Repository) -> Result<InstalledTool, TaskError> {
    install_python_packages(repository, "azure-cli", "azcli")
}

/// Installs the `requirements.txt` of a directory of `conformance/` into a virtual environment, and returns its
/// interpreter.
fn install_python_packages(
    repository: &Repository,
    tool: &str,
    directory: &str,
) -> Result<InstalledTool, TaskError> {
    if !repository.has_program("python3") {
        return Err(TaskError::Missing {
            program: "Python",
            hint: "install python3 (3.10 or later) with its venv module, or run .ci/run, which does",
        });
    }
    let requirements =
        repository.root().join("conformance").join(directory).join("requirements.txt");
    let version = ToolFingerprint::new().with_files(std::slice::from_ref(&requirements))?.to_hex();
    let place = repository.tool_directory(tool, &version);
    let done = place.join("complete");
    let path = place.join("bin").join("python");
    if done.is_file() {
        return Ok(InstalledTool { version, path });
    }
    // A virtual environment contains its own path, so it cannot be renamed into place: a marker file shows
    // that it is complete.
    remove_directory(&place)?;
    make_directory(&place)?;
    process::run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let mut install = Command::new(&path);
    // The interpreter compiles modules when it first imports them, which is a small part of the Azure CLI.
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--no-compile",
        "--requirement",
    ]);
    process::run(install.arg(&requirements))?;
    fs::write(&done, []).map_err(file_error("write", &done))?;
    Ok(InstalledTool { version, path })
}

pub(super) fn install_rust_clients(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let workspace = repository.root().join("conformance").join("rust");
    let target = auxiliary_workspaces::target_directory(repository);
    let mut command = repository.cargo_in(&workspace);
    command.args(["build", "--locked", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    let lock = workspace.join("Cargo.lock");
    Ok(InstalledTool {
        version: ToolFingerprint::new().with_files(&[lock])?.to_hex(),
        path: target.join("debug").join("rust-clients"),
    })
}
