//! The volumes directory that the user chose with `--directory`, and the lock of the run that uses it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::run_directory_error::RunDirectoryError;

/// A directory that the user chose for the volumes.
///
/// The process locks a file in the directory, so that no other run publishes or removes volumes there,
/// regardless of that run's user and temporary directory. The kernel releases the lock when the process ends,
/// also after SIGKILL. Dropping the value releases the lock but keeps the file, which indicates to the next
/// run that volumes may be left over.
#[derive(Debug)]
pub(crate) struct ChosenDirectory {
    path: PathBuf,
    /// The topmost directory that the run created on the way to `path`.
    created: Option<PathBuf>,
    lock: File,
    has_leftover_volumes: bool,
}

impl ChosenDirectory {
    /// Creates the directory at `path` if it is missing, and locks it. `path` and `missing` come from
    /// [`resolve_with_missing_ancestor`].
    ///
    /// # Errors
    ///
    /// The errors of [`ChosenDirectory::lock`].
    pub(crate) fn create(path: &Path, missing: Option<&Path>) -> Result<Self, RunDirectoryError> {
        create_directories(path)?;
        let created = missing.map(Path::canonicalize).transpose()?;
        Self::lock(path.canonicalize()?, created)
    }

    /// Locks the existing directory at `path`, an absolute path without symbolic links.
    ///
    /// # Errors
    ///
    /// [`RunDirectoryError::InUse`] if another run holds the lock, and [`RunDirectoryError::NotOwned`] if
    /// other users can replace files in the directory.
    pub(crate) fn lock(path: PathBuf, created: Option<PathBuf>) -> Result<Self, RunDirectoryError> {
        if !is_safe_owned_directory(&path)? {
            return Err(RunDirectoryError::NotOwned { directory: path });
        }
        let name = path.join(LOCK_FILE_NAME);
        loop {
            let (lock, has_leftover_volumes) = open_lock_file(&name)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    return Err(RunDirectoryError::InUse { directory: path });
                }
                Err(fs::TryLockError::Error(error)) => return Err(error.into()),
            }
            // An ending run removes the file before it releases the lock, so the lock may be on a removed
            // file.
            if is_same_file(&lock, &name)? {
                return Ok(Self { path, created, lock, has_leftover_volumes });
            }
        }
    }

    /// The absolute path of the directory, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an earlier run left the lock file: it was killed, or it failed to remove its volumes.
    pub(crate) const fn has_leftover_volumes(&self) -> bool {
        self.has_leftover_volumes
    }

    /// Removes the lock file and the empty directories that the run created. The caller removes the volumes
    /// first.
    pub(crate) fn close(self) -> io::Result<()> {
        fs::remove_file(self.path.join(LOCK_FILE_NAME)).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        if let Some(created) = &self.created {
            remove_empty_directories(
                self.path.ancestors().take_while(|above| above.starts_with(created)),
            );
        }
        Ok(())
    }
}

impl Drop for ChosenDirectory {
    fn drop(&mut self) {
        // Closing the file does not release the lock while a child process that is starting still has it
        // open.
        self.lock.unlock().unwrap_or_default();
    }
}

/// Returns the absolute path of a directory and the topmost directory that is missing.
pub(crate) fn resolve_with_missing_ancestor(path: &Path) -> io::Result<(PathBuf, Option<PathBuf>)> {
    let path = std::path::absolute(path)?;
    let is_missing = |above: &&Path| above.symlink_metadata().is_err();
    let missing = path.ancestors().take_while(is_missing).last().map(Path::to_owned);
    Ok((path, missing))
}

/// Creates a directory and its missing parents with mode 0755, so that [`is_safe_owned_directory`] accepts
/// them under any umask.
pub(crate) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Whether `path` is a directory (no symbolic link) that this user owns and that is not world-writable.
pub(crate) fn is_safe_owned_directory(path: &Path) -> io::Result<bool> {
    let metadata = path.symlink_metadata()?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    Ok(metadata.is_dir() && is_own && metadata.mode() & WORLD_WRITABLE == 0)
}

/// Removes directories in the given order and stops at the first one that is not empty.
pub(crate) fn remove_empty_directories<'a>(directories: impl Iterator<Item = &'a Path>) {
    for directory in directories {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return,
            _ => {}
        }
    }
}

/// Opens or creates the lock file, and returns whether it existed before.
fn open_lock_file(name: &Path) -> io::Result<(File, bool)> {
    loop {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600).custom_flags(NOFOLLOW);
        match options.create_new(true).open(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((created?, false)),
        }
        match options.create_new(false).open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return Ok((opened?, true)),
        }
    }
}

/// Whether `name` still refers to `file`.
fn is_same_file(file: &File, name: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match name.symlink_metadata() {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

const LOCK_FILE_NAME: &str = ".lanyard-up.lock";
const WORLD_WRITABLE: u32 = 0o002;
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn create_chosen(path: &Path) -> Result<ChosenDirectory, RunDirectoryError> {
        let (path, missing) = resolve_with_missing_ancestor(path)?;
        ChosenDirectory::create(&path, missing.as_deref())
    }

    fn file_names(directory: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn only_one_run_locks_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = create_chosen(directory.path()).unwrap();
        let error = create_chosen(directory.path()).unwrap_err();
        assert!(matches!(error, RunDirectoryError::InUse { .. }), "{error}");
        first.close().unwrap();
        assert!(file_names(directory.path()).is_empty());
        create_chosen(directory.path()).unwrap().close().unwrap();
    }

    #[test]
    fn directory_writable_by_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let assert_refused = || {
            let error = create_chosen(directory.path()).unwrap_err();
            assert!(matches!(error, RunDirectoryError::NotOwned { .. }), "{error}");
            assert!(file_names(directory.path()).is_empty());
        };
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_refused();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Only root can change the owner, and only to a user ID that its user namespace maps.
        let is_root = rustix::process::geteuid().is_root();
        if is_root && chown(directory.path(), Some(65_534), None).is_ok() {
            assert_refused();
        }
    }

    #[test]
    fn created_directories_are_not_writable_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("a").join("b");
        create_directories(&below).unwrap();
        for created in [below.as_path(), below.parent().unwrap()] {
            assert_eq!(created.metadata().unwrap().mode() & 0o022, 0);
        }
    }

    #[test]
    fn unlocked_lock_file_indicates_leftover_volumes() {
        let directory = tempfile::tempdir().unwrap();
        let first = create_chosen(directory.path()).unwrap();
        assert!(!first.has_leftover_volumes());
        drop(first);
        assert_eq!(file_names(directory.path()), [LOCK_FILE_NAME]);
        assert!(create_chosen(directory.path()).unwrap().has_leftover_volumes());
    }

    #[test]
    fn removed_lock_file_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join(LOCK_FILE_NAME);
        let (old, _) = open_lock_file(&name).unwrap();
        assert!(is_same_file(&old, &name).unwrap());
        fs::remove_file(&name).unwrap();
        assert!(!is_same_file(&old, &name).unwrap());
        let _new = open_lock_file(&name).unwrap();
        assert!(!is_same_file(&old, &name).unwrap());
    }
}
