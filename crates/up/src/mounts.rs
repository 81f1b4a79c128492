//! The volumes of the road: one per pod that reads a credential, as on a node.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lanyard_clock::SharedClock;
use lanyard_node::{Mount, MountError, PublishError, Volume};
use lanyard_vocabulary::Consumer;
use parking_lot::Mutex;

/// Where the road mounts its volumes. Whatever becomes of a volume's owner, what was mounted here
/// is unmounted when this ends: a mount outlives the process, and it holds a private key.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    /// Every directory that a volume was opened in.
    volumes: Mutex<Vec<PathBuf>>,
    /// Removed at the end, if we made it.
    temporary: Option<tempfile::TempDir>,
}

/// A volume, and whether it lies in memory.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) volume: Volume,
    pub(crate) in_memory: bool,
}

/// Enough for a credential; the volume grows by itself.
const FIRST_SIZE: u64 = 256 * 1024;

impl RunDirectory {
    pub(crate) fn open(chosen: Option<&Path>) -> io::Result<Self> {
        if let Some(path) = chosen {
            fs::create_dir_all(path)?;
            return Ok(Self::new(path.canonicalize()?, None));
        }
        let temporary = tempfile::Builder::new().prefix("lanyard-up-").tempdir()?;
        Ok(Self::new(temporary.path().to_owned(), Some(temporary)))
    }

    const fn new(path: PathBuf, temporary: Option<tempfile::TempDir>) -> Self {
        Self { path, volumes: Mutex::new(Vec::new()), temporary }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the volume of one consumer: in memory where mounting is allowed, else in a plain
    /// directory.
    pub(crate) fn mount(
        &self,
        consumer: &Consumer,
        clock: SharedClock,
    ) -> Result<Mounted, PublishError> {
        let path = self.path.join(consumer.deployment).join(consumer.volume);
        let refused = |source| MountError::Call {
            operation: lanyard_node::MountOperation::Mount,
            dir: path.clone(),
            source,
        };
        fs::create_dir_all(&path).map_err(refused)?;
        self.volumes.lock().push(path.clone());
        match Mount::tmpfs(&path, FIRST_SIZE) {
            Ok(mount) => {
                let volume = Volume::open_mounted(mount, clock)?;
                Ok(Mounted { volume, in_memory: true })
            }
            Err(MountError::Call { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                Ok(Mounted { volume: Volume::open(&path, clock)?, in_memory: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Unmounts what is still mounted and removes what the road left here.
    pub(crate) fn close(mut self) -> Result<(), CloseError> {
        self.clear()?;
        self.temporary.take().map_or(Ok(()), tempfile::TempDir::close)?;
        Ok(())
    }

    fn clear(&self) -> Result<(), CloseError> {
        for path in std::mem::take(&mut *self.volumes.lock()) {
            if path.exists()
                && let Some(mount) = Mount::find(&path)?
            {
                mount.unmount()?;
            }
            // In a directory that the person chose, only what we made and emptied goes away.
            for directory in path.ancestors().take_while(|above| *above != self.path) {
                // Unpublishing may have removed the volume's own directory before.
                match fs::remove_dir(directory) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => break,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Something of the road was left behind.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A volume is still mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The temporary directory is still there.
    #[error("the temporary directory could not be removed")]
    Directory(#[from] io::Error),
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "a volume was left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;
    use lanyard_node::FileEntry;
    use lanyard_vocabulary::Component;

    use super::*;

    #[test]
    fn a_volume_whose_owner_went_away_is_cleared_all_the_same() {
        let chosen = tempfile::tempdir().unwrap();
        let consumer = &Component::Disk.consumers()[0];
        for temporary in [false, true] {
            let run = RunDirectory::open((!temporary).then(|| chosen.path())).unwrap();
            let path = run.path().to_owned();
            let mut mounted = run.mount(consumer, SystemClock::shared()).unwrap();
            let entry = FileEntry::new("secret".parse().unwrap(), b"planted", 0o600);
            mounted.volume.publish(&[entry]).unwrap();
            let file = mounted.volume.dir().join("secret");
            assert!(file.exists());
            let in_memory = mounted.in_memory;
            drop(mounted);
            assert!(file.exists(), "a published volume outlives its owner");
            drop(run);
            // A plain directory that the person chose keeps its files: nothing is deleted unasked.
            assert_eq!(file.exists(), !in_memory && !temporary);
            assert_eq!(path.exists(), !temporary);
        }
    }
}
