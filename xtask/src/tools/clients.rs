//! The clients of `conformance/`: programs of our own over other people's libraries.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Installed;
use super::cache::{Fingerprint, file_error, make_directory, remove};
use crate::failure::TaskError;
use crate::house::House;
use crate::process;
use crate::satellites;

/// The directory of the Go programs of `conformance/go`.
pub(crate) fn go_clients(house: &House) -> Result<PathBuf, TaskError> {
    install_go(house).map(|it| it.path)
}

/// The Python interpreter of a virtual environment with the packages of `conformance/python`.
pub(crate) fn python_clients(house: &House) -> Result<PathBuf, TaskError> {
    install_python(house).map(|it| it.path)
}

/// The program of `conformance/rust`, a workspace of its own.
pub(crate) fn rust_clients(house: &House) -> Result<PathBuf, TaskError> {
    install_rust(house).map(|it| it.path)
}

/// Go's own build cache decides what has to be built again.
pub(super) fn install_go(house: &House) -> Result<Installed, TaskError> {
    let module = house.root().join("conformance").join("go");
    let version = Fingerprint::new().with_files(&[module.join("go.sum")])?.name();
    let place = house.tool("go-clients", &version);
    make_directory(&place)?;
    let mut command = super::go::go_command(house)?;
    command.current_dir(&module).args(["build", "-ldflags", "-s -w", "-o"]);
    command.arg(&place).arg("./...");
    process::run(&mut command)?;
    Ok(Installed { version, path: place })
}

pub(super) fn install_python(house: &House) -> Result<Installed, TaskError> {
    if !house.has_program("python3") {
        return Err(TaskError::Missing {
            program: "Python",
            hint: "install python3 (3.10 or later) with its venv module, or run .ci/run, which does",
        });
    }
    let requirements = house.root().join("conformance").join("python").join("requirements.txt");
    let version = Fingerprint::new().with_files(std::slice::from_ref(&requirements))?.name();
    let place = house.tool("python-clients", &version);
    let done = place.join("complete");
    let path = place.join("bin").join("python");
    if done.is_file() {
        return Ok(Installed { version, path });
    }
    // A virtual environment knows its own path, so it cannot be renamed into place: a mark at
    // the end says that it is whole.
    remove(&place)?;
    make_directory(&place)?;
    process::run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let mut install = Command::new(&path);
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--requirement"]);
    process::run(install.arg(&requirements))?;
    fs::write(&done, []).map_err(file_error("write", &done))?;
    Ok(Installed { version, path })
}

pub(super) fn install_rust(house: &House) -> Result<Installed, TaskError> {
    let workspace = house.root().join("conformance").join("rust");
    let target = satellites::target(house);
    let mut command = house.cargo_in(&workspace);
    command.args(["build", "--locked", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    let lock = workspace.join("Cargo.lock");
    Ok(Installed {
        version: Fingerprint::new().with_files(&[lock])?.name(),
        path: target.join("debug").join("rust-clients"),
    })
}
