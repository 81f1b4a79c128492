//! The volumes of the road: one per pod that reads a credential, as on a node.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lanyard_clock::SharedClock;
use lanyard_node::{Mount, MountError, PublishError, Volume};
use lanyard_vocabulary::Consumer;

/// Where the road mounts its volumes.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
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
            return Ok(Self { path: path.canonicalize()?, temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("lanyard-up-").tempdir()?;
        Ok(Self { path: temporary.path().to_owned(), temporary: Some(temporary) })
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
        match Mount::tmpfs(&path, FIRST_SIZE) {
            Ok(mount) => {
                let volume = Volume::open_mounted(mount, clock)?;
                Ok(Mounted { volume, in_memory: true })
            }
            Err(MountError::Call { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Ok(Mounted { volume: Volume::open(&path, clock)?, in_memory: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what the road left here. Volumes are unpublished before.
    pub(crate) fn close(self) -> io::Result<()> {
        self.temporary.map_or(Ok(()), tempfile::TempDir::close)
    }
}
