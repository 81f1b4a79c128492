//! Temporary directories that are their owner's alone, and that tell when their process is gone.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary directory that nobody else on the machine may enter. It goes with the value.
///
/// As long as the process lives it holds a lock on a file in it. The system lets go of the lock
/// when the process ends, however it ends: [`find_abandoned`] finds what a killed process left,
/// and never mistakes a process that was given the same id for the one that is gone.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    /// Goes first: what is being removed is not abandoned.
    directory: TempDir,
    lock: File,
}

impl LockedDirectory {
    /// Makes one in `place`, whose name begins with `prefix`.
    ///
    /// # Errors
    ///
    /// What the file system refused.
    pub(crate) fn make_in(place: &Path, prefix: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(PRIVATE))
            .tempdir_in(place)?;
        // It is locked before it has its name: whoever finds the name finds it locked.
        let nameless = directory.path().join(NAMELESS);
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&nameless)?;
        lock.lock()?;
        std::fs::rename(&nameless, directory.path().join(LOCK))?;
        Ok(Self { directory, lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    ///
    /// What could not be removed.
    pub(crate) fn close(self) -> io::Result<()> {
        self.directory.close()
    }

    /// Leaves it where it is and lets go of the lock, as a process that is killed does.
    ///
    /// # Errors
    ///
    /// Where the system does not let go of it.
    pub(crate) fn abandon(self) -> io::Result<PathBuf> {
        self.lock.unlock()?;
        Ok(self.directory.keep())
    }
}

/// A [`LockedDirectory`] whose process is gone. Nobody else takes it for abandoned meanwhile.
#[derive(Debug)]
pub(crate) struct Abandoned {
    path: PathBuf,
    lock: File,
}

impl Abandoned {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    ///
    /// What could not be removed.
    pub(crate) fn remove(self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        // Not only by closing the file: a process that is being started holds it a moment longer.
        self.lock.unlock().unwrap_or_default();
    }
}

/// The directories in `place` with this prefix whose processes are gone.
///
/// Only directories of this user are taken for such, and only those that nobody else could have
/// written to: what is in them is acted upon.
///
/// # Errors
///
/// Where `place` cannot be read.
pub(crate) fn find_abandoned(place: &Path, prefix: &str) -> io::Result<Vec<Abandoned>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place)? {
        let Ok(entry) = entry else { continue };
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if is_named {
            found.extend(abandoned(entry.path()));
        }
    }
    Ok(found)
}

fn abandoned(path: PathBuf) -> Option<Abandoned> {
    let metadata = path.symlink_metadata().ok()?;
    let is_ours = metadata.is_dir()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & OTHERS == 0;
    let lock = is_ours.then(|| File::open(path.join(LOCK)).ok()).flatten()?;
    lock.try_lock().ok()?;
    Some(Abandoned { path, lock })
}

const PRIVATE: u32 = 0o700;
/// What group and others may do.
const OTHERS: u32 = 0o077;
/// The file that is locked.
const LOCK: &str = "in-use";
/// The same before it is locked.
const NAMELESS: &str = "in-use.new";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(place: &Path) -> Vec<PathBuf> {
        let found = find_abandoned(place, "ly-test-").unwrap();
        found.iter().map(|it| it.path().to_owned()).collect()
    }

    fn killed(place: &Path, prefix: &str) -> PathBuf {
        LockedDirectory::make_in(place, prefix).unwrap().abandon().unwrap()
    }

    #[test]
    fn nobody_else_may_enter_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = LockedDirectory::make_in(place.path(), "ly-test-").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(directory.path()), 0o700);
        assert_eq!(mode(&directory.path().join(LOCK)), 0o600);
    }

    #[test]
    fn one_whose_process_lives_is_not_abandoned_and_one_whose_process_is_gone_is() {
        let place = tempfile::tempdir().unwrap();
        let alive = LockedDirectory::make_in(place.path(), "ly-test-").unwrap();
        let gone = killed(place.path(), "ly-test-");
        killed(place.path(), "another-");
        assert_eq!(found(place.path()), std::slice::from_ref(&gone));
        for abandoned in find_abandoned(place.path(), "ly-test-").unwrap() {
            assert!(found(place.path()).is_empty(), "two take the same one for abandoned");
            abandoned.remove().unwrap();
        }
        assert!(!gone.exists() && alive.path().exists());
    }

    #[test]
    fn what_somebody_else_could_have_written_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let open = killed(place.path(), "ly-test-");
        std::fs::set_permissions(&open, Permissions::from_mode(0o770)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let real = killed(elsewhere.path(), "ly-test-");
        std::os::unix::fs::symlink(&real, place.path().join("ly-test-link")).unwrap();
        // Without a lock nobody knows whose it is.
        std::fs::create_dir(place.path().join("ly-test-bare")).unwrap();
        let bare = Permissions::from_mode(0o700);
        std::fs::set_permissions(place.path().join("ly-test-bare"), bare).unwrap();
        assert_eq!(found(place.path()), <[PathBuf; 0]>::default());
        std::fs::set_permissions(&open, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(found(place.path()), [open]);
    }
}
