//! Temporary directories that are private to their user, with a lock that shows whether their process still
//! runs.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary directory that no other user can enter. Dropping the value removes it.
///
/// The process locks a file in the directory. The kernel releases the lock when the process ends, also after
/// SIGKILL, so [`find_abandoned`] recognizes the directories of killed processes, even if a new process has
/// the same process ID.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    /// Dropped before `lock`: the directory is locked until it is removed.
    directory: TempDir,
    lock: File,
}

impl LockedDirectory {
    /// Creates a directory in `place` whose name starts with `prefix`.
    pub(crate) fn create_in(place: &Path, prefix: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(PRIVATE_MODE))
            .tempdir_in(place)?;
        // The file is locked under a temporary name first, so that a process that finds the final name always
        // finds it locked.
        let unnamed = directory.path().join(UNLOCKED_FILE_NAME);
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unnamed)?;
        lock.lock()?;
        std::fs::rename(&unnamed, directory.path().join(LOCK_FILE_NAME))?;
        Ok(Self { directory, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the directory and its content.
    pub(crate) fn close(self) -> io::Result<()> {
        self.directory.close()
    }

    /// Keeps the directory and releases the lock, as killing the process does.
    pub(crate) fn abandon(self) -> io::Result<PathBuf> {
        self.lock.unlock()?;
        Ok(self.directory.keep())
    }
}

/// A [`LockedDirectory`] whose process ended without removing it. This value holds its lock.
#[derive(Debug)]
pub(crate) struct AbandonedDirectory {
    path: PathBuf,
    lock: File,
}

impl AbandonedDirectory {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory and its content.
    pub(crate) fn remove(self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for AbandonedDirectory {
    fn drop(&mut self) {
        // Closing the file does not release the lock while a child process that is starting still has it
        // open.
        self.lock.unlock().unwrap_or_default();
    }
}

/// Finds the abandoned directories in `place` whose names start with `prefix`.
///
/// Directories of other users, and directories that other users can write to, are skipped, because the caller
/// acts on their content.
pub(crate) fn find_abandoned(place: &Path, prefix: &str) -> io::Result<Vec<AbandonedDirectory>> {
    let paths = named_entries(place, prefix)?;
    Ok(paths.into_iter().filter_map(open_abandoned).collect())
}

/// Finds the directories in `place` whose names start with `prefix`, and whose processes run.
///
/// The same directories as in [`find_abandoned`] are skipped.
pub(crate) fn find_locked(place: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = named_entries(place, prefix)?;
    paths.retain(|path| {
        let locked = open_lock_file(path).map(|lock| lock.try_lock());
        matches!(locked, Some(Err(TryLockError::WouldBlock)))
    });
    Ok(paths)
}

/// The paths of the entries of a directory whose names start with `prefix`.
fn named_entries(place: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let is_named = |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix))
    };
    let entries = std::fs::read_dir(place)?.filter_map(Result::ok);
    Ok(entries.filter(is_named).map(|entry| entry.path()).collect())
}

fn open_abandoned(path: PathBuf) -> Option<AbandonedDirectory> {
    let lock = open_lock_file(&path)?;
    lock.try_lock().ok()?;
    Some(AbandonedDirectory { path, lock })
}

/// Opens the lock file of a directory that only this user can enter.
fn open_lock_file(directory: &Path) -> Option<File> {
    let metadata = directory.symlink_metadata().ok()?;
    let is_ours = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & GROUP_AND_OTHERS_MASK == 0;
    is_ours.then(|| File::open(directory.join(LOCK_FILE_NAME)).ok()).flatten()
}

const PRIVATE_MODE: u32 = 0o700;
/// The mode bits of group and others.
const GROUP_AND_OTHERS_MASK: u32 = 0o077;
/// The name of the locked file.
const LOCK_FILE_NAME: &str = "in-use";
/// The name of that file before it is locked.
const UNLOCKED_FILE_NAME: &str = "in-use.new";

#[cfg(test)]
mod tests {
    use super::*;

    fn find_test_directories(place: &Path) -> Vec<AbandonedDirectory> {
        find_abandoned(place, "ly-test-").unwrap()
    }

    fn abandoned_paths(place: &Path) -> Vec<PathBuf> {
        find_test_directories(place).iter().map(|it| it.path().to_owned()).collect()
    }

    fn create_abandoned(place: &Path, prefix: &str) -> PathBuf {
        LockedDirectory::create_in(place, prefix).unwrap().abandon().unwrap()
    }

    #[test]
    fn locked_directory_is_private_to_its_user() {
        let place = tempfile::tempdir().unwrap();
        let directory = LockedDirectory::create_in(place.path(), "ly-test-").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(directory.path()), 0o700);
        assert_eq!(mode(&directory.path().join(LOCK_FILE_NAME)), 0o600);
    }

    #[test]
    fn directory_without_held_lock_is_abandoned() {
        let place = tempfile::tempdir().unwrap();
        let alive = LockedDirectory::create_in(place.path(), "ly-test-").unwrap();
        let gone = create_abandoned(place.path(), "ly-test-");
        create_abandoned(place.path(), "another-");
        assert_eq!(abandoned_paths(place.path()), std::slice::from_ref(&gone));
        for directory in find_test_directories(place.path()) {
            assert!(
                abandoned_paths(place.path()).is_empty(),
                "two processes remove the same directory"
            );
            directory.remove().unwrap();
        }
        assert!(!gone.exists() && alive.path().exists());
        assert!(abandoned_paths(place.path()).is_empty());
    }

    #[test]
    fn directory_with_held_lock_is_in_use() {
        let place = tempfile::tempdir().unwrap();
        let alive = LockedDirectory::create_in(place.path(), "ly-test-").unwrap();
        create_abandoned(place.path(), "ly-test-");
        let _other = LockedDirectory::create_in(place.path(), "another-").unwrap();
        let locked = || find_locked(place.path(), "ly-test-").unwrap();
        assert_eq!(locked(), [alive.path().to_owned()]);
        alive.abandon().unwrap();
        assert_eq!(locked(), <[PathBuf; 0]>::default());
    }

    #[test]
    fn directories_writable_by_others_are_skipped() {
        let place = tempfile::tempdir().unwrap();
        let open = create_abandoned(place.path(), "ly-test-");
        std::fs::set_permissions(&open, Permissions::from_mode(0o770)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let real = create_abandoned(elsewhere.path(), "ly-test-");
        std::os::unix::fs::symlink(&real, place.path().join("ly-test-link")).unwrap();
        // A directory without a lock file has no known owner.
        let bare = place.path().join("ly-test-bare");
        std::fs::create_dir(&bare).unwrap();
        std::fs::set_permissions(&bare, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(abandoned_paths(place.path()), <[PathBuf; 0]>::default());
        std::fs::set_permissions(&open, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(abandoned_paths(place.path()), [open]);
    }
}
