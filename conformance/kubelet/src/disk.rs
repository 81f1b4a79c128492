//! The kubelet's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::event::VolumeKey;

/// The id of a volume: what a driver gets to know it by.
pub fn volume_id(pod_uid: &str, volume: &str) -> String {
    let digest = digest(&SHA256, format!("{pod_uid}{volume}").as_bytes());
    format!("csi-{}", hex::encode(digest))
}

/// A call on the kubelet's directory failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation} {}", path.display())]
pub struct DiskError {
    /// What was tried.
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What came back.
    #[source]
    pub source: io::Error,
}

/// What lies where below the kubelet's directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

/// `vol_data.json`: what the kubelet has to know about a volume after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeData {
    #[serde(rename = "specVolID")]
    pub(crate) spec_vol_id: String,
    pub(crate) volume_handle: String,
    pub(crate) driver_name: String,
    pub(crate) node_name: String,
    #[serde(rename = "attachmentID", default)]
    pub(crate) attachment_id: String,
    pub(crate) volume_lifecycle_mode: String,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    pub(crate) fn target(&self, key: &VolumeKey) -> PathBuf {
        self.volume(key).join("mount")
    }

    fn volume(&self, key: &VolumeKey) -> PathBuf {
        self.volumes_of(&key.pod_uid).join(&key.volume)
    }

    fn volumes_of(&self, pod_uid: &str) -> PathBuf {
        self.root.join("pods").join(pod_uid).join("volumes").join("kubernetes.io~csi")
    }

    /// Makes the parent of the target and `vol_data.json`, never the target: that is the driver's.
    pub(crate) fn prepare(
        &self,
        key: &VolumeKey,
        driver: &str,
        node_name: &str,
    ) -> Result<(), DiskError> {
        let volume = self.volume(key);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&volume)
            .map_err(|source| failure("make", &volume, source))?;
        let data = VolumeData {
            spec_vol_id: key.volume.clone(),
            volume_handle: volume_id(&key.pod_uid, &key.volume),
            driver_name: driver.to_owned(),
            node_name: node_name.to_owned(),
            attachment_id: String::new(),
            volume_lifecycle_mode: "Ephemeral".to_owned(),
        };
        let path = volume.join(VOLUME_DATA);
        let text =
            serde_json::to_vec(&data).map_err(|error| failure("write", &path, error.into()))?;
        fs::write(&path, text).map_err(|source| failure("write", &path, source))
    }

    /// Removes the target, `vol_data.json` and their directory, unless something is mounted on
    /// the target. Says whether something is.
    pub(crate) fn remove(&self, key: &VolumeKey) -> Result<bool, DiskError> {
        let target = self.target(key);
        if is_mount_point(&target).map_err(|source| failure("look at", &target, source))? {
            return Ok(true);
        }
        let volume = self.volume(key);
        let data = volume.join(VOLUME_DATA);
        tolerate_absence(fs::remove_dir(&target)).map_err(|it| failure("remove", &target, it))?;
        tolerate_absence(fs::remove_file(&data)).map_err(|it| failure("remove", &data, it))?;
        tolerate_absence(fs::remove_dir(&volume)).map_err(|it| failure("remove", &volume, it))?;
        // The rest of a pod's directory goes when it is empty.
        for directory in self.volumes_of(&key.pod_uid).ancestors().take(3) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(false)
    }

    /// The volumes that are told of on disk, with their drivers.
    pub(crate) fn find_volumes(&self) -> Result<BTreeMap<VolumeKey, VolumeData>, DiskError> {
        let pods = self.root.join("pods");
        let mut found = BTreeMap::new();
        for pod_uid in names_in(&pods)? {
            let volumes = self.volumes_of(&pod_uid);
            for volume in names_in(&volumes)? {
                let path = volumes.join(&volume).join(VOLUME_DATA);
                let text = match fs::read(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    text => text.map_err(|source| failure("read", &path, source))?,
                };
                let data = serde_json::from_slice(&text)
                    .map_err(|error| failure("read", &path, error.into()))?;
                found.insert(VolumeKey { pod_uid: pod_uid.clone(), volume }, data);
            }
        }
        Ok(found)
    }
}

/// The names in a directory, sorted; none where it is not there.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, DiskError> {
    let failed = |source| failure("list", directory, source);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether the target is on another file system than its parent, as the kubelet tells it.
fn is_mount_point(target: &Path) -> io::Result<bool> {
    let device = |path: &Path| rustix::fs::lstat(path).map(|stat| stat.st_dev);
    match device(target) {
        Err(rustix::io::Errno::NOENT) => Ok(false),
        own => Ok(own? != device(&target.join(".."))?),
    }
}

fn tolerate_absence(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn failure(operation: &'static str, path: &Path, source: io::Error) -> DiskError {
    DiskError { operation, path: path.to_owned(), source }
}

const VOLUME_DATA: &str = "vol_data.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_known_by_a_digest_of_pod_and_name() {
        let id = volume_id("uid", "credentials");
        assert_eq!(id.len(), "csi-".len() + 64);
        assert_eq!(id, volume_id("uidcred", "entials"), "the kubelet joins them without a mark");
        assert_ne!(id, volume_id("uid", "other"));
    }

    #[test]
    fn what_was_prepared_is_found_again_and_goes_without_a_trace() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let key = VolumeKey::new("uid", "credentials");
        layout.prepare(&key, "driver", "node").unwrap();
        assert!(!layout.target(&key).exists());
        let found = layout.find_volumes().unwrap();
        assert_eq!(found[&key].driver_name, "driver");
        assert_eq!(found[&key].volume_handle, volume_id("uid", "credentials"));

        fs::create_dir(layout.target(&key)).unwrap();
        assert!(!layout.remove(&key).unwrap());
        assert!(!root.path().join("pods").join("uid").exists());
        assert!(!layout.remove(&key).unwrap(), "a second time does no harm");
        assert!(layout.find_volumes().unwrap().is_empty());
    }
}
