//! Installs tools into the cache: atomically, once, and in one process at a time.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::task_error::TaskError;

/// Installs into a temporary directory next to `place` and renames it to `place`, unless `place` already
/// exists.
///
/// An interrupted installation leaves the temporary directory, which the next installation clears. Other
/// processes that need the tool wait.
pub(super) fn install_atomically(
    place: &Path,
    install: impl FnOnce(&Path) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    if place.is_dir() {
        return Ok(());
    }
    let lock = lock_file(&with_suffix(place, "lock"))?;
    if place.is_dir() {
        return Ok(());
    }
    let half = with_suffix(place, "half");
    remove_directory(&half)?;
    make_directory(&half)?;
    install(&half)?;
    fs::rename(&half, place).map_err(file_error("rename into place", &half))?;
    drop(lock);
    Ok(())
}

/// Locks a file until the returned file is dropped or the process ends.
pub(super) fn lock_file(path: &Path) -> Result<File, TaskError> {
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    let file = File::create(path).map_err(file_error("create", path))?;
    file.lock().map_err(file_error("lock", path))?;
    Ok(file)
}

/// Appends `.suffix` to the path. `Path::with_extension` would cut version numbers.
fn with_suffix(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(suffix);
    place.with_file_name(name)
}

pub(super) fn make_directory(path: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(path).map_err(file_error("create", path))
}

pub(super) fn remove_directory(path: &Path) -> Result<(), TaskError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(file_error("remove", path)(source))
        }
        _ => Ok(()),
    }
}

/// Creates a symbolic link in a directory under construction.
pub(super) fn create_symlink(target: &Path, link: &Path) -> Result<(), TaskError> {
    std::os::unix::fs::symlink(target, link).map_err(file_error("link", link))
}

/// The files of a directory, sorted; subdirectories are skipped.
pub(super) fn list_files(directory: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(file_error("list", directory))? {
        let path = entry.map_err(file_error("list", directory))?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn file_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> TaskError {
    let path = path.to_path_buf();
    move |source| TaskError::File { action, path, source }
}

/// A short fingerprint of a tool's pins (FNV-1a, 64 bits; it needs no cryptographic strength).
#[derive(Debug, Clone, Copy)]
pub(super) struct ToolFingerprint(u64);

impl ToolFingerprint {
    pub(super) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn with(self, content: &[u8]) -> Self {
        let absorb =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        // The length distinguishes "ab" + "c" from "a" + "bc".
        let hash = content.len().to_le_bytes().iter().fold(self.0, absorb);
        Self(content.iter().fold(hash, absorb))
    }

    pub(super) fn with_files(self, paths: &[PathBuf]) -> Result<Self, TaskError> {
        paths.iter().try_fold(self, |hash, path| {
            Ok(hash.with(&fs::read(path).map_err(file_error("read", path))?))
        })
    }

    pub(super) fn to_hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_directory(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("lanyard-xtask-{}-{name}", std::process::id()));
        remove_directory(&place).expect("it can be removed");
        place
    }

    #[test]
    fn interrupted_installation_is_repeated() {
        let root = test_directory("broken");
        let place = root.join("1.2.3");
        let broken = install_atomically(&place, |half| {
            fs::write(half.join("program"), "half").expect("it is writable");
            Err(TaskError::Environment("HOME"))
        });
        assert!(broken.is_err() && !place.exists());
        install_atomically(&place, |half| {
            assert!(list_files(half).expect("readable").is_empty(), "what was left is cleared");
            fs::write(half.join("program"), "whole").map_err(file_error("write", half))
        })
        .expect("the second one is whole");
        assert_eq!(fs::read_to_string(place.join("program")).expect("readable"), "whole");
        install_atomically(&place, |_| panic!("it is there")).expect("nothing to do");
        remove_directory(&root).expect("it can be removed");
    }

    #[test]
    fn versions_with_equal_endings_have_separate_directories() {
        assert_eq!(with_suffix(Path::new("/c/1.36.3"), "half"), Path::new("/c/1.36.3.half"));
    }

    #[test]
    fn fingerprint_depends_on_content_and_boundaries() {
        let one = ToolFingerprint::new().with(b"ab").with(b"c").to_hex();
        let other = ToolFingerprint::new().with(b"a").with(b"bc").to_hex();
        assert_eq!(one.len(), 16);
        assert_ne!(one, other);
    }
}
