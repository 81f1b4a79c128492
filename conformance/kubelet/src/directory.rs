//! The layout of the kubelet's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::event::VolumeKey;

/// The id of a volume in CSI calls: `csi-` and the SHA-256 digest of the pod's UID and the volume's name.
pub fn volume_id(pod_uid: &str, volume: &str) -> String {
    let digest = digest(&SHA256, format!("{pod_uid}{volume}").as_bytes());
    format!("csi-{}", hex::encode(digest))
}

/// An operation on the kubelet's directory failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation} {}", path.display())]
pub struct KubeletDirectoryError {
    /// The operation that failed.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

/// The paths below the kubelet's directory.
#[derive(Debug, Clone)]
pub(crate) struct KubeletDirectory {
    root: PathBuf,
}

/// The content of `vol_data.json`, from which the kubelet restores a volume after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeDataFile {
    #[serde(rename = "specVolID")]
    pub(crate) spec_vol_id: String,
    pub(crate) volume_handle: String,
    pub(crate) driver_name: String,
    pub(crate) node_name: String,
    #[serde(rename = "attachmentID", default)]
    pub(crate) attachment_id: String,
    pub(crate) volume_lifecycle_mode: String,
}

impl KubeletDirectory {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn registration_directory(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    pub(crate) fn target_path(&self, key: &VolumeKey) -> PathBuf {
        self.volume_directory(key).join("mount")
    }

    fn volume_directory(&self, key: &VolumeKey) -> PathBuf {
        self.pod_volumes_directory(&key.pod_uid).join(&key.volume)
    }

    fn pod_volumes_directory(&self, pod_uid: &str) -> PathBuf {
        self.root.join("pods").join(pod_uid).join("volumes").join("kubernetes.io~csi")
    }

    /// Creates the parent of the target and `vol_data.json`. The driver creates the target itself.
    pub(crate) fn create_volume_directory(
        &self,
        key: &VolumeKey,
        driver: &str,
        node_name: &str,
    ) -> Result<(), KubeletDirectoryError> {
        let volume = self.volume_directory(key);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&volume)
            .map_err(|source| directory_error("create", &volume, source))?;
        let data = VolumeDataFile {
            spec_vol_id: key.volume.clone(),
            volume_handle: volume_id(&key.pod_uid, &key.volume),
            driver_name: driver.to_owned(),
            node_name: node_name.to_owned(),
            attachment_id: String::new(),
            volume_lifecycle_mode: "Ephemeral".to_owned(),
        };
        let path = volume.join(VOLUME_DATA);
        let text = serde_json::to_vec(&data)
            .map_err(|error| directory_error("write", &path, error.into()))?;
        fs::write(&path, text).map_err(|source| directory_error("write", &path, source))
    }

    /// Removes the target, `vol_data.json` and their directory, unless a file system is mounted on the
    /// target. Returns whether one is mounted.
    pub(crate) fn remove_volume_directory(
        &self,
        key: &VolumeKey,
    ) -> Result<bool, KubeletDirectoryError> {
        let target = self.target_path(key);
        if is_mount_point(&target).map_err(|source| directory_error("inspect", &target, source))? {
            return Ok(true);
        }
        let volume = self.volume_directory(key);
        let data = volume.join(VOLUME_DATA);
        ignore_not_found(fs::remove_dir(&target))
            .map_err(|it| directory_error("remove", &target, it))?;
        ignore_not_found(fs::remove_file(&data))
            .map_err(|it| directory_error("remove", &data, it))?;
        ignore_not_found(fs::remove_dir(&volume))
            .map_err(|it| directory_error("remove", &volume, it))?;
        // Removes the pod's directories if they are empty.
        for directory in self.pod_volumes_directory(&key.pod_uid).ancestors().take(3) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(false)
    }

    /// The volumes with a `vol_data.json`, with its content.
    pub(crate) fn find_volumes(
        &self,
    ) -> Result<BTreeMap<VolumeKey, VolumeDataFile>, KubeletDirectoryError> {
        let pods = self.root.join("pods");
        let mut found = BTreeMap::new();
        for pod_uid in list_names(&pods)? {
            let volumes = self.pod_volumes_directory(&pod_uid);
            for volume in list_names(&volumes)? {
                let path = volumes.join(&volume).join(VOLUME_DATA);
                let text = match fs::read(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    text => text.map_err(|source| directory_error("read", &path, source))?,
                };
                let data = serde_json::from_slice(&text)
                    .map_err(|error| directory_error("read", &path, error.into()))?;
                found.insert(VolumeKey { pod_uid: pod_uid.clone(), volume }, data);
            }
        }
        Ok(found)
    }
}

/// The sorted names in a directory; empty if the directory does not exist.
pub(crate) fn list_names(directory: &Path) -> Result<Vec<String>, KubeletDirectoryError> {
    let failed = |source| directory_error("list", directory, source);
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

/// Whether the target is on another file system than its parent, which is the kubelet's check.
fn is_mount_point(target: &Path) -> io::Result<bool> {
    let device = |path: &Path| rustix::fs::lstat(path).map(|stat| stat.st_dev);
    match device(target) {
        Err(rustix::io::Errno::NOENT) => Ok(false),
        own => Ok(own? != device(&target.join(".."))?),
    }
}

fn ignore_not_found(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn directory_error(
    operation: &'static str,
    path: &Path,
    source: io::Error,
) -> KubeletDirectoryError {
    KubeletDirectoryError { operation, path: path.to_owned(), source }
}

const VOLUME_DATA: &str = "vol_data.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_id_is_a_digest_of_pod_and_name() {
        let id = volume_id("uid", "credentials");
        assert_eq!(id.len(), "csi-".len() + 64);
        assert_eq!(
            id,
            volume_id("uidcred", "entials"),
            "the kubelet joins them without a separator"
        );
        assert_ne!(id, volume_id("uid", "other"));
    }

    #[test]
    fn created_volume_directory_is_found_and_fully_removed() {
        let root = tempfile::tempdir().unwrap();
        let layout = KubeletDirectory::new(root.path());
        let key = VolumeKey::new("uid", "credentials");
        layout.create_volume_directory(&key, "driver", "node").unwrap();
        assert!(!layout.target_path(&key).exists());
        let found = layout.find_volumes().unwrap();
        assert_eq!(found[&key].driver_name, "driver");
        assert_eq!(found[&key].volume_handle, volume_id("uid", "credentials"));

        fs::create_dir(layout.target_path(&key)).unwrap();
        assert!(!layout.remove_volume_directory(&key).unwrap());
        assert!(!root.path().join("pods").join("uid").exists());
        assert!(!layout.remove_volume_directory(&key).unwrap(), "a second time does no harm");
        assert!(layout.find_volumes().unwrap().is_empty());
    }
}
