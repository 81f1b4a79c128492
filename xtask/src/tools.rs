//! `cargo xtask tools`: programs that are not ours, by version, in the tool cache.
//!
//! A tool is installed when it is first needed and kept outside the repository. Installing goes
//! to a directory that is renamed into place at the end, so a broken download is never used.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::TaskError;
use crate::house::House;
use crate::process;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The tools to install; all of them when none is named
    names: Vec<String>,
}

/// A cargo subcommand from the crate registry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const CARGO_DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };
pub(crate) const CARGO_FUZZ: CargoTool = CargoTool { name: "cargo-fuzz", version: "0.13.2" };

type Install = fn(&House) -> Result<PathBuf, TaskError>;

const TOOLS: [(&str, Install); 5] = [
    ("cargo-deny", |house| cargo_tool(house, CARGO_DENY)),
    ("cargo-fuzz", |house| cargo_tool(house, CARGO_FUZZ)),
    ("go-clients", go_clients),
    ("python-clients", python_clients),
    ("rust-clients", rust_clients),
];

pub(crate) fn run(house: &House, arguments: &Arguments) -> Result<(), TaskError> {
    for name in &arguments.names {
        find(name)?;
    }
    for (name, install) in TOOLS {
        if arguments.names.is_empty() || arguments.names.iter().any(|it| it == name) {
            let place = install(house)?;
            process::say(&format!("{name}: {}", place.display()));
        }
    }
    Ok(())
}

fn find(name: &str) -> Result<Install, TaskError> {
    TOOLS.iter().find(|(known, _)| *known == name).map(|(_, install)| *install).ok_or_else(|| {
        TaskError::Unknown {
            what: "tool",
            name: name.to_owned(),
            known: TOOLS.map(|(known, _)| known).join(", "),
        }
    })
}

/// The directory that holds the program of a cargo subcommand.
pub(crate) fn cargo_tool(house: &House, tool: CargoTool) -> Result<PathBuf, TaskError> {
    let place = house.tool(tool.name, tool.version);
    in_place(&place, &place.join("bin").join(tool.name), |root| {
        let mut command = house.cargo();
        command.args(["install", tool.name, "--version", tool.version, "--locked", "--root"]);
        command.arg(root);
        process::run(&mut command)
    })?;
    Ok(place.join("bin"))
}

/// The directory of the Go programs of `conformance/go`.
///
/// Go's own build cache decides what has to be built again.
pub(crate) fn go_clients(house: &House) -> Result<PathBuf, TaskError> {
    if !house.has_program("go") {
        return Err(TaskError::Missing {
            program: "Go",
            hint: "install Go 1.25 or later from https://go.dev/dl, or run .ci/run, which does",
        });
    }
    let module = house.root().join("conformance").join("go");
    let place = house.tool("go-clients", &fingerprint(&[module.join("go.sum")])?);
    make_directory(&place)?;
    let mut command = Command::new("go");
    command.current_dir(&module).args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]);
    command.arg(&place).arg("./...");
    process::run(&mut command)?;
    Ok(place)
}

/// The Python interpreter of a virtual environment with the packages of `conformance/python`.
pub(crate) fn python_clients(house: &House) -> Result<PathBuf, TaskError> {
    if !house.has_program("python3") {
        return Err(TaskError::Missing {
            program: "Python",
            hint: "install python3 (3.10 or later) with its venv module, or run .ci/run, which does",
        });
    }
    let requirements = house.root().join("conformance").join("python").join("requirements.txt");
    let place = house.tool("python-clients", &fingerprint(std::slice::from_ref(&requirements))?);
    let done = place.join("complete");
    let python = place.join("bin").join("python");
    if done.is_file() {
        return Ok(python);
    }
    // A virtual environment knows its own path, so it cannot be renamed into place: a mark at
    // the end says that it is whole.
    remove(&place)?;
    make_directory(&place)?;
    process::run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--requirement"]);
    process::run(install.arg(&requirements))?;
    fs::write(&done, []).map_err(|source| TaskError::File {
        action: "write",
        path: done,
        source,
    })?;
    Ok(python)
}

/// The program of `conformance/rust`, a workspace of its own.
pub(crate) fn rust_clients(house: &House) -> Result<PathBuf, TaskError> {
    let workspace = house.root().join("conformance").join("rust");
    let target = house.target().join("conformance-rust");
    let mut command = house.cargo_in(&workspace);
    command.args(["build", "--locked", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    Ok(target.join("debug").join("rust-clients"))
}

/// Runs `install` on a directory beside `place` and renames it, unless `program` is there.
fn in_place(
    place: &Path,
    program: &Path,
    install: impl FnOnce(&Path) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    if program.is_file() {
        return Ok(());
    }
    let half = place.with_extension("half");
    remove(&half)?;
    make_directory(&half)?;
    install(&half)?;
    remove(place)?;
    fs::rename(&half, place).map_err(|source| TaskError::File {
        action: "rename into place",
        path: half.clone(),
        source,
    })
}

fn make_directory(path: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(path).map_err(|source| TaskError::File {
        action: "create",
        path: path.to_path_buf(),
        source,
    })
}

fn remove(path: &Path) -> Result<(), TaskError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(TaskError::File { action: "remove", path: path.to_path_buf(), source })
        }
        _ => Ok(()),
    }
}

/// A short name for the content of files that pin versions (FNV-1a, 64 bits: no secret, no
/// adversary, only a name that changes with the pins).
fn fingerprint(paths: &[PathBuf]) -> Result<String, TaskError> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for path in paths {
        let content = fs::read(path).map_err(|source| TaskError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        for byte in content {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tool_is_answered_with_the_known_ones() {
        let error = find("cargo-denial").expect_err("there is no such tool");
        assert!(error.to_string().contains("cargo-deny, cargo-fuzz"), "{error}");
    }

    #[test]
    fn the_fingerprint_follows_the_content() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join("tools.rs");
        let one = fingerprint(&[manifest]).expect("the manifest is readable");
        let other = fingerprint(&[source]).expect("the source is readable");
        assert_eq!(one.len(), 16);
        assert_ne!(one, other);
    }
}
