//! The directory of the stand-in kubelet: a new one each time, in which volumes are mounted.

use std::path::{Path, PathBuf};

use lanyard_apiserver::{Abandoned, ControlPlane, LockedDirectory, find_abandoned};
use lanyard_clock::SharedClock;
use lanyard_node::Mount;

use super::error::KubernetesRoadError;
use super::node_plugin;
use crate::mounts::{CloseError, PREFIX, unmount_below};
use crate::roadbed::RoadError;

/// The directory of the kubelet. Whatever ends the road, what is mounted there is unmounted: a
/// mount outlives the process, and it holds a private key.
#[derive(Debug)]
pub(super) struct KubeletDirectory {
    /// Goes before the directory, which cannot go with a mount in it.
    mounts: Mounts,
    directory: LockedDirectory,
}

/// What is mounted in a directory.
#[derive(Debug)]
struct Mounts(PathBuf);

impl KubeletDirectory {
    /// A directory of our own, in which mounting is allowed.
    pub(super) fn make(chosen: Option<&Path>) -> Result<Self, RoadError> {
        let place = match chosen {
            Some(chosen) => std::fs::create_dir_all(chosen).and_then(|()| chosen.canonicalize()),
            None => Ok(std::env::temp_dir()),
        };
        let directory = place.and_then(|place| LockedDirectory::make_in(&place, PREFIX));
        let directory = directory.map_err(RoadError::Directory)?;
        let directory = Self { mounts: Mounts(directory.path().to_owned()), directory };
        node_plugin::make_directories(directory.path()).map_err(RoadError::Directory)?;
        // It is tried where nothing depends on it.
        let trial = directory.path().join("trial");
        std::fs::create_dir(&trial).map_err(RoadError::Directory)?;
        let mount = Mount::tmpfs(&trial, TRIAL_SIZE).map_err(KubernetesRoadError::Mounts)?;
        mount.unmount().map_err(KubernetesRoadError::Mounts)?;
        std::fs::remove_dir(&trial).map_err(RoadError::Directory)?;
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Unmounts what the kubelet did not, and removes the directory.
    pub(super) fn close(self) -> Result<(), CloseError> {
        unmount_below(self.path())?;
        let Self { mounts, directory } = self;
        drop(mounts);
        directory.close().map_err(CloseError::Directory)
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        if let Err(error) = unmount_below(&self.0) {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "volumes were left behind");
        }
    }
}

/// Takes away what earlier runs left that were killed: servers, mounts, directories. What cannot
/// be taken away keeps nobody from the road.
pub(super) async fn clear_abandoned(temporary: &Path, chosen: Option<&Path>, clock: &SharedClock) {
    for cleared in ControlPlane::clear_abandoned(temporary, clock).await {
        match cleared {
            Ok(path) => tracing::info!(?path, "ended the servers of a run that was killed"),
            Err(error) => tracing::warn!(
                error = lanyard_vocabulary::causes(&error),
                hint = error.hint(),
                "servers of a run that was killed are there still"
            ),
        }
    }
    for place in [Some(temporary), chosen].into_iter().flatten() {
        // Nothing was left in a place that is not there.
        for abandoned in find_abandoned(place, PREFIX).unwrap_or_default() {
            let path = abandoned.path().to_owned();
            match clear(abandoned) {
                Ok(()) => tracing::info!(?path, "took away the mounts of a run that was killed"),
                Err(error) => tracing::warn!(
                    ?path,
                    error = lanyard_vocabulary::causes(&error),
                    "mounts of a run that was killed are there still"
                ),
            }
        }
    }
}

fn clear(abandoned: Abandoned) -> Result<(), CloseError> {
    unmount_below(abandoned.path())?;
    abandoned.remove().map_err(CloseError::Directory)
}

/// As little as can be mounted.
const TRIAL_SIZE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use lanyard_clock::SystemClock;

    use super::*;

    /// A directory with a volume that the kubelet left mounted; nothing where nobody may mount.
    fn with_volume(chosen: &Path) -> Option<(KubeletDirectory, PathBuf)> {
        let directory = KubeletDirectory::make(Some(chosen)).ok()?;
        let target = directory.path().join("pods/uid/volumes/kubernetes.io~csi/certs/mount");
        std::fs::create_dir_all(&target).unwrap();
        let mut mount = Mount::tmpfs(&target, TRIAL_SIZE).unwrap();
        mount.keep();
        drop(mount);
        assert!(Mount::find(&target).unwrap().is_some());
        Some((directory, target))
    }

    fn entries(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn what_the_kubelet_left_mounted_is_unmounted_at_the_end() {
        let chosen = tempfile::tempdir().unwrap();
        let Some((directory, _)) = with_volume(chosen.path()) else { return };
        directory.close().unwrap();
        assert_eq!(entries(chosen.path()), 0);
    }

    #[test]
    fn a_panic_leaves_no_mount() {
        let chosen = tempfile::tempdir().unwrap();
        let Some((directory, target)) = with_volume(chosen.path()) else { return };
        let unwound = std::panic::catch_unwind(move || {
            let _directory = directory;
            panic!("in the middle of the walk");
        });
        assert!(unwound.is_err() && !target.exists());
        assert_eq!(entries(chosen.path()), 0);
    }

    #[tokio::test]
    async fn what_a_killed_run_left_mounted_goes_at_the_next_start() {
        let chosen = tempfile::tempdir().unwrap();
        let Some((living, kept)) = with_volume(chosen.path()) else { return };
        let Some((killed, target)) = with_volume(chosen.path()) else { return };
        let KubeletDirectory { mounts, directory } = killed;
        let path = directory.path().to_owned();
        let _nobody_unmounts = std::mem::ManuallyDrop::new(mounts);
        directory.abandon().unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let clock = SystemClock::shared();
        clear_abandoned(temporary.path(), Some(chosen.path()), &clock).await;
        assert!(!path.exists() && !target.exists());
        assert!(Mount::find(&kept).unwrap().is_some(), "that of a run that lives stays");
        living.close().unwrap();
        assert_eq!(entries(chosen.path()), 0);
    }
}
