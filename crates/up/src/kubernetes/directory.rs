//! The directory of the stand-in kubelet: a new one each time, in which volumes are mounted.

use std::path::{Path, PathBuf};

use lanyard_node::Mount;
use tempfile::TempDir;

use super::error::KubernetesRoadError;
use super::node_plugin;
use crate::mounts::CloseError;
use crate::roadbed::RoadError;

/// A directory of our own, in which mounting is allowed.
pub(super) fn make(chosen: Option<&Path>) -> Result<TempDir, RoadError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("lanyard-up-");
    let directory = match chosen {
        Some(chosen) => std::fs::create_dir_all(chosen)
            .and_then(|()| chosen.canonicalize())
            .and_then(|chosen| builder.tempdir_in(chosen)),
        None => builder.tempdir(),
    };
    let directory = directory.map_err(RoadError::Directory)?;
    node_plugin::make_directories(directory.path()).map_err(RoadError::Directory)?;
    // It is tried where nothing depends on it.
    let trial = directory.path().join("trial");
    std::fs::create_dir(&trial).map_err(RoadError::Directory)?;
    let mount = Mount::tmpfs(&trial, TRIAL_SIZE).map_err(KubernetesRoadError::Mounts)?;
    mount.unmount().map_err(KubernetesRoadError::Mounts)?;
    std::fs::remove_dir(&trial).map_err(RoadError::Directory)?;
    Ok(directory)
}

/// Unmounts what the kubelet did not: a mount outlives the process, and it holds a private key.
pub(super) fn unmount_rest(kubelet: &Path) -> Result<(), CloseError> {
    for pod in entries(&kubelet.join("pods"))? {
        for volume in entries(&pod.join("volumes").join("kubernetes.io~csi"))? {
            if let Some(mount) = Mount::find(&volume.join("mount"))? {
                mount.unmount()?;
            }
        }
    }
    Ok(())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, CloseError> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(CloseError::Directory)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(CloseError::Directory(error)),
    }
}

/// As little as can be mounted.
const TRIAL_SIZE: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kubelet_left_mounted_is_unmounted() {
        let chosen = tempfile::tempdir().unwrap();
        // Where nobody may mount there is nothing to unmount either.
        let Ok(directory) = make(Some(chosen.path())) else { return };
        let target = directory.path().join("pods/uid/volumes/kubernetes.io~csi/certs/mount");
        std::fs::create_dir_all(&target).unwrap();
        let mount = Mount::tmpfs(&target, TRIAL_SIZE).unwrap();
        drop(mount);
        unmount_rest(directory.path()).unwrap();
        assert!(Mount::find(&target).unwrap().is_none());
        directory.close().unwrap();
        assert_eq!(std::fs::read_dir(chosen.path()).unwrap().count(), 0);
    }
}
