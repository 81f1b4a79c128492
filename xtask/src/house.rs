//! Where things are: the workspace, the tool cache, cargo. The environment is read here only.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::TaskError;

/// The places that every task needs.
#[derive(Debug)]
pub(crate) struct House {
    root: PathBuf,
    cache: PathBuf,
    target: PathBuf,
    cargo: OsString,
    path: OsString,
}

impl House {
    /// Reads the environment: `CARGO_MANIFEST_DIR` for the workspace, `XDG_CACHE_HOME` or `HOME` for the
    /// cache, `CARGO` for cargo, `CARGO_TARGET_DIR` for built files, `PATH` for programs.
    ///
    /// The workspace is the one whose `cargo xtask` was called. The path that was compiled in may be that of
    /// another clone which shares the target directory: cargo does not build again for a new path.
    pub(crate) fn from_environment() -> Result<Self, TaskError> {
        let root = env::var_os("CARGO_MANIFEST_DIR")
            .and_then(|directory| Path::new(&directory).parent().map(Path::to_path_buf))
            .ok_or(TaskError::NotThroughCargo)?;
        let cache = env::var_os("XDG_CACHE_HOME")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
            .ok_or(TaskError::Environment("XDG_CACHE_HOME"))?;
        let target = env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |directory| root.join(directory));
        Ok(Self {
            cache: cache.join("lanyard"),
            target,
            cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            path: env::var_os("PATH").unwrap_or_default(),
            root,
        })
    }

    /// The directory of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one version of one tool, outside the repository.
    pub(crate) fn tool(&self, name: &str, version: &str) -> PathBuf {
        self.cache.join("tools").join(name).join(version)
    }

    /// The directory of test clusters, outside the repository.
    pub(crate) fn clusters(&self) -> PathBuf {
        self.cache.join("clusters")
    }

    /// The directory of the programs that `cargo build` makes.
    pub(crate) fn debug_binaries(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// The directory of the programs that `cargo build --release` makes.
    pub(crate) fn released_binaries(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The directory of built files.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// A cargo command in the workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.cargo_in(&self.root)
    }

    /// A cargo command in another directory, without what this cargo exports to its children.
    pub(crate) fn cargo_in(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(directory);
        for (name, _) in env::vars_os() {
            if is_of_this_package(&name.to_string_lossy()) {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Whether the caller is root.
    pub(crate) fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Whether the `PATH` holds a program of this name.
    pub(crate) fn has_program(&self, name: &str) -> bool {
        self.program(name).is_some()
    }

    /// The program that the `PATH` means by a name.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        env::split_paths(&self.path)
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
    }

    /// The `PATH` with one more directory in front.
    pub(crate) fn path_with(&self, directory: &Path) -> OsString {
        let directories =
            std::iter::once(directory.to_path_buf()).chain(env::split_paths(&self.path));
        env::join_paths(directories).unwrap_or_else(|_| self.path.clone())
    }
}

/// `cargo run` describes the package of xtask to us; build scripts of other packages would
/// see those variables change between runs and build again.
fn is_of_this_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || matches!(name, "CARGO_MANIFEST_DIR" | "CARGO_MANIFEST_PATH" | "CARGO_MANIFEST_LINKS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_package_are_told_from_settings_of_cargo() {
        assert!(is_of_this_package("CARGO_PKG_NAME"));
        assert!(is_of_this_package("CARGO_MANIFEST_DIR"));
        for kept in ["CARGO_TARGET_DIR", "CARGO_HOME", "RUSTFLAGS"] {
            assert!(!is_of_this_package(kept), "{kept}");
        }
    }
}
