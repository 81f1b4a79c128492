//! The volumes of the road: one per pod that reads a credential, as on a node.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use lanyard_clock::SharedClock;
use lanyard_node::{Mount, MountError, PublishError, Volume};
use lanyard_vocabulary::Consumer;
use parking_lot::Mutex;

use crate::locked_directory::LockedDirectory;

/// Where the road mounts its volumes. Whatever becomes of a volume's owner, what was mounted here
/// is unmounted when this ends: a mount outlives the process, and it holds a private key.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    /// Every directory that a volume was opened in.
    volumes: Mutex<Vec<PathBuf>>,
    /// Removed at the end, if we made it.
    temporary: Option<LockedDirectory>,
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
        let temporary = LockedDirectory::make_in(&std::env::temp_dir(), PREFIX)?;
        Ok(Self::new(temporary.path().to_owned(), Some(temporary)))
    }

    const fn new(path: PathBuf, temporary: Option<LockedDirectory>) -> Self {
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
        self.temporary.take().map_or(Ok(()), LockedDirectory::close)?;
        Ok(())
    }

    fn clear(&self) -> Result<(), CloseError> {
        let mut left = LeftMounts::default();
        for path in std::mem::take(&mut *self.volumes.lock()) {
            if path.exists() {
                left.unmount(&path);
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
        left.into_result()
    }
}

/// Something of the road was left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Volumes are still mounted.
    #[error("still mounted, with what they hold: {}", listed(volumes))]
    Mounts {
        /// Where.
        volumes: Vec<PathBuf>,
        /// Why the first one is.
        #[source]
        first: MountError,
    },
    /// What is mounted is not known.
    #[error("could not see what is mounted")]
    Table(#[source] io::Error),
    /// The temporary directory is still there.
    #[error("the temporary directory could not be removed")]
    Directory(#[from] io::Error),
}

/// Volumes that cannot be unmounted. One does not keep the others from going.
#[derive(Debug, Default)]
struct LeftMounts {
    volumes: Vec<PathBuf>,
    first: Option<MountError>,
}

impl LeftMounts {
    fn unmount(&mut self, path: &Path) {
        if let Err(error) = Mount::find(path).and_then(|it| it.map_or(Ok(()), Mount::unmount)) {
            self.volumes.push(path.to_owned());
            self.first.get_or_insert(error);
        }
    }

    fn into_result(self) -> Result<(), CloseError> {
        let Self { volumes, first } = self;
        first.map_or(Ok(()), |first| Err(CloseError::Mounts { volumes, first }))
    }
}

/// Unmounts every volume below a directory: a mount outlives the process, and it holds a private
/// key.
pub(crate) fn unmount_below(directory: &Path) -> Result<(), CloseError> {
    let directory = match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(CloseError::Directory)?,
    };
    let table = fs::read("/proc/self/mountinfo").map_err(CloseError::Table)?;
    let mut left = LeftMounts::default();
    for place in mounted_below(&directory, &table) {
        left.unmount(&place);
    }
    left.into_result()
}

/// The mount points below a directory, the last mounted first (proc(5), `/proc/PID/mountinfo`).
fn mounted_below(directory: &Path, table: &[u8]) -> Vec<PathBuf> {
    let places = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let place = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(unescaped(place)))
    });
    let mut places: Vec<_> =
        places.filter(|place| place != directory && place.starts_with(directory)).collect();
    places.reverse();
    places
}

/// A path as the kernel lists it: what would end a field is a backslash and three octal digits.
fn unescaped(listed: &[u8]) -> OsString {
    let mut path = Vec::with_capacity(listed.len());
    let mut rest = listed;
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path)
}

fn listed(volumes: &[PathBuf]) -> String {
    let volumes: Vec<_> = volumes.iter().map(|path| path.display().to_string()).collect();
    volumes.join(", ")
}

/// How the names of temporary directories begin, on either road.
pub(crate) const PREFIX: &str = "lanyard-up-";

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

    #[test]
    fn what_is_mounted_below_a_directory_is_found_whatever_its_name() {
        let table = b"\
            21 1 0:20 / / rw - ext4 /dev/vda rw\n\
            22 21 0:21 / /run/up rw - tmpfs tmpfs rw\n\
            23 22 0:22 / /run/up/first\\040one rw,noexec - tmpfs tmpfs rw\n\
            24 22 0:23 / /run/up/a\\134b rw - tmpfs tmpfs rw\n\
            25 22 0:23 / /run/upper rw - tmpfs tmpfs rw\n";
        let found = mounted_below(Path::new("/run/up"), table);
        assert_eq!(found, ["/run/up/a\\b", "/run/up/first one"].map(PathBuf::from));
    }

    #[test]
    fn one_volume_that_cannot_be_unmounted_keeps_no_other_from_going() {
        let chosen = tempfile::tempdir().unwrap();
        let [foreign, ours] = ["foreign", "ours"].map(|name| chosen.path().join(name));
        for place in [&foreign, &ours] {
            fs::create_dir(place).unwrap();
        }
        // Where nobody may mount there is nothing to unmount either.
        let Ok(mut mount) = Mount::tmpfs(&ours, FIRST_SIZE) else { return };
        mount.keep();
        let proc =
            std::process::Command::new("mount").args(["-t", "proc", "proc"]).arg(&foreign).status();
        assert!(proc.unwrap().success());
        let error = unmount_below(chosen.path()).unwrap_err();
        let is_gone = Mount::find(&ours).unwrap().is_none();
        let undone = std::process::Command::new("umount").arg(&foreign).status();
        assert!(undone.unwrap().success());
        assert!(is_gone, "the volume is mounted still");
        assert!(matches!(&error, CloseError::Mounts { volumes, .. } if *volumes == [foreign]));
    }
}
