//! Installs programs from the npm registry, with the versions in their `package-lock.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::InstalledTool;
use super::cache::{ToolFingerprint, file_error, install_atomically};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The script that runs Azurite's blob service with Node.js.
pub(crate) fn azurite_blob_script(repository: &Repository) -> Result<PathBuf, TaskError> {
    Ok(install_azurite(repository)?.path.join("node_modules/azurite/dist/src/blob/main.js"))
}

/// Whether Node.js and npm are installed.
pub(crate) fn has_node(repository: &Repository) -> bool {
    repository.has_program("node") && repository.has_program("npm")
}

/// Installs Azurite, Microsoft's emulator of Azure Storage.
pub(super) fn install_azurite(repository: &Repository) -> Result<InstalledTool, TaskError> {
    install(repository, "azurite")
}

/// The script of `conformance/js`, next to its packages.
pub(crate) fn js_clients(repository: &Repository) -> Result<PathBuf, TaskError> {
    Ok(install_js_clients(repository)?.path.join(JS_CLIENTS))
}

const JS_CLIENTS: &str = "clients.mjs";

/// Installs the packages of `conformance/js` and its script.
pub(super) fn install_js_clients(repository: &Repository) -> Result<InstalledTool, TaskError> {
    let directory = repository.root().join("conformance").join("js");
    install_packages(repository, "js-clients", &directory, &[JS_CLIENTS])
}

/// The script of axe-core, which checks the accessibility of web pages.
pub(crate) fn axe_script(repository: &Repository) -> Result<PathBuf, TaskError> {
    Ok(install_axe(repository)?.path.join("node_modules/axe-core/axe.min.js"))
}

/// Installs axe-core.
pub(super) fn install_axe(repository: &Repository) -> Result<InstalledTool, TaskError> {
    install(repository, "axe-core")
}

/// Installs the package of a directory in `conformance/tools`, whose `package.json` requires only it.
fn install(repository: &Repository, name: &'static str) -> Result<InstalledTool, TaskError> {
    let directory = repository.root().join("conformance").join("tools").join(name);
    let manifest = directory.join("package.json");
    let text = fs::read_to_string(&manifest).map_err(file_error("read", &manifest))?;
    let version = required_version(&text, name).ok_or_else(|| TaskError::Findings {
        check: "packages that are not required by their package.json",
        findings: vec![name.to_owned()],
    })?;
    Ok(InstalledTool { version, ..install_packages(repository, name, &directory, &[])? })
}

/// Installs the packages of the `package-lock.json` of a directory, and copies its scripts.
fn install_packages(
    repository: &Repository,
    tool: &str,
    directory: &Path,
    scripts: &[&str],
) -> Result<InstalledTool, TaskError> {
    if !has_node(repository) {
        return Err(TaskError::Missing {
            program: "Node.js",
            hint: "install Node.js 20 or later with npm from https://nodejs.org",
        });
    }
    let files: Vec<_> =
        ["package.json", "package-lock.json"].iter().chain(scripts).copied().collect();
    let paths: Vec<_> = files.iter().map(|file| directory.join(file)).collect();
    let version = ToolFingerprint::new().with_files(&paths)?.to_hex();
    let place = repository.tool_directory(tool, &version);
    install_atomically(&place, |half| {
        for (source, file) in paths.iter().zip(&files) {
            fs::copy(source, half.join(file)).map_err(file_error("copy", source))?;
        }
        let mut install = Command::new("npm");
        install.current_dir(half).args(["ci", "--ignore-scripts", "--omit=dev", "--engine-strict"]);
        process::run(install.args(["--no-audit", "--no-fund", "--loglevel=error"]))
    })?;
    Ok(InstalledTool { version, path: place })
}

/// The version that a package.json requires of a package.
fn required_version(manifest: &str, package: &str) -> Option<String> {
    let manifest: Value = serde_json::from_str(manifest).ok()?;
    manifest["dependencies"][package].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_pinned_to_one_version() {
        let repository =
            Repository::from_environment().expect("the tests run inside the repository");
        for package in ["azurite", "axe-core"] {
            let directory = repository.root().join("conformance/tools").join(package);
            let read = |name: &str| {
                fs::read_to_string(directory.join(name)).expect("the package has this file")
            };
            let version = required_version(&read("package.json"), package);
            let lock: Value =
                serde_json::from_str(&read("package-lock.json")).expect("the lock file is JSON");
            let locked = lock["packages"][format!("node_modules/{package}")]["version"].as_str();
            assert!(locked.is_some() && version.as_deref() == locked, "{version:?} {locked:?}");
        }
    }
}
