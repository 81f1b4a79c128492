//! The paths of the repository, the tool cache and cargo. No other module reads the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::task_error::TaskError;

/// The paths that every task needs.
#[derive(Debug)]
pub(crate) struct Repository {
    root: PathBuf,
    cache: PathBuf,
    target_directory: PathBuf,
    cargo: OsString,
    path: OsString,
}

impl Repository {
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
            target_directory: target,
            cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            path: env::var_os("PATH").unwrap_or_default(),
            root,
        })
    }

    /// The root directory of the repository.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one version of one tool, outside the repository.
    pub(crate) fn tool_directory(&self, name: &str, version: &str) -> PathBuf {
        self.cache.join("tools").join(name).join(version)
    }

    /// The directory of test clusters, outside the repository.
    pub(crate) fn clusters_directory(&self) -> PathBuf {
        self.cache.join("clusters")
    }

    /// The directory of the programs that `cargo build` builds.
    pub(crate) fn debug_binaries(&self) -> PathBuf {
        self.target_directory.join("debug")
    }

    /// The directory of the programs that `cargo build --release` builds.
    pub(crate) fn release_binaries(&self) -> PathBuf {
        self.target_directory.join("release")
    }

    /// The directory of built files.
    pub(crate) fn target_directory(&self) -> &Path {
        &self.target_directory
    }

    /// A cargo command in the workspace.
    pub(crate) fn cargo(&self) -> Command {
        self.cargo_in(&self.root)
    }

    /// A cargo command in another directory, without the variables that this cargo exports to its child
    /// processes.
    pub(crate) fn cargo_in(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(directory);
        for (name, _) in env::vars_os() {
            if is_package_variable(&name.to_string_lossy()) {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Whether the caller is root.
    pub(crate) fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Whether the `PATH` contains a program of this name.
    pub(crate) fn has_program(&self, name: &str) -> bool {
        self.find_program(name).is_some()
    }

    /// The path of a program, according to the `PATH`.
    pub(crate) fn find_program(&self, name: &str) -> Option<PathBuf> {
        env::split_paths(&self.path)
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
    }

    /// The `PATH` with one more directory in front.
    pub(crate) fn path_with_prefix(&self, directory: &Path) -> OsString {
        let directories =
            std::iter::once(directory.to_path_buf()).chain(env::split_paths(&self.path));
        env::join_paths(directories).unwrap_or_else(|_| self.path.clone())
    }
}

/// Whether a variable describes the package of xtask. `cargo run` sets these variables; build scripts of
/// other packages would see them change between runs and run again.
fn is_package_variable(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || matches!(name, "CARGO_MANIFEST_DIR" | "CARGO_MANIFEST_PATH" | "CARGO_MANIFEST_LINKS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_variables_are_distinguished_from_cargo_settings() {
        assert!(is_package_variable("CARGO_PKG_NAME"));
        assert!(is_package_variable("CARGO_MANIFEST_DIR"));
        for retained in ["CARGO_TARGET_DIR", "CARGO_HOME", "RUSTFLAGS"] {
            assert!(!is_package_variable(retained), "{retained}");
        }
    }
}
