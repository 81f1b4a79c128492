//! The state of a mounted volume, for rotation and status.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_keyvault::{PodCredentials, VolumePod};

use crate::marker::{MountedObject, VolumeLastError};
use crate::rotation::{PollHistory, RotationTarget};

/// A snapshot of a mounted volume.
#[derive(Debug, Clone)]
pub struct VolumeSnapshot {
    /// The CSI volume id.
    pub volume_id: String,
    /// The path at which the volume is mounted.
    pub target: PathBuf,
    /// The pod that uses the volume.
    pub pod: VolumePod,
    /// The name of the SecretProviderClass, in the pod's namespace.
    pub class_name: String,
    /// The provider, as named in the class; `None` if an earlier process fetched the content.
    pub provider: Option<Arc<str>>,
    /// The number of the generation that readers see.
    pub generation: u64,
    /// The objects in the volume, sorted by id.
    pub objects: Vec<MountedObject>,
    /// When the content changed last.
    pub content_changed: Timestamp,
    /// The polls of the volume and their outcomes. It is empty if the content is unknown: the
    /// volume was adopted from another driver, the process crashed during a publish, or the pod
    /// requests other content than is mounted.
    pub history: PollHistory,
    /// The current error of the volume, if there is one.
    pub last_error: Option<VolumeLastError>,
    /// Since when the content comes from the node's cache instead of the vault, while it does.
    pub stale_since: Option<Timestamp>,
    /// The memory of its file system, in bytes, retired generations and layout files included.
    pub memory: u64,
    /// The pod tokens of the last publish request; `None` if an earlier process received it.
    pub pod_credentials: Option<PodCredentials>,
}

impl VolumeSnapshot {
    pub(super) fn to_rotation_target(&self) -> RotationTarget {
        let stamps = |object: &MountedObject| (object.version.id.clone(), object.timestamps);
        RotationTarget {
            volume_id: self.volume_id.clone(),
            target: self.target.clone(),
            pod: self.pod.clone(),
            class_name: self.class_name.clone(),
            history: self.history.clone(),
            timestamps: self.objects.iter().map(stamps).collect(),
            pod_credentials: self.pod_credentials.clone(),
            generation: self.generation,
        }
    }
}
