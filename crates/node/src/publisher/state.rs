//! What rotation and status know about a mounted volume.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_keyvault::{PodCredentials, VolumePod};

use crate::marker::{MountedObject, VolumeLastError};
use crate::rotation::{PollHistory, RotatingVolume};

/// What is known about a mounted volume. A copy: it does not change under its reader.
#[derive(Debug, Clone)]
pub struct VolumeState {
    /// The id of the volume.
    pub volume_id: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// Whose it is.
    pub pod: VolumePod,
    /// Its class, in the pod's namespace.
    pub class_name: String,
    /// Who filled it, as the class names it; nothing where that was done for an earlier process.
    pub provider: Option<Arc<str>>,
    /// The number of the generation that readers see.
    pub generation: u64,
    /// What it holds, sorted by id.
    pub objects: Vec<MountedObject>,
    /// When its content changed last.
    pub content_changed: Timestamp,
    /// When its source was asked, and how that went. It is new where nobody knows what the volume
    /// holds: it was taken over from another driver, a crash fell into a publish, or the pod asks
    /// for something else than what is mounted.
    pub history: PollHistory,
    /// What is wrong with it, while something is.
    pub last_error: Option<VolumeLastError>,
    /// Since when the cache of the node answers in the place of the vault, while it does.
    pub stale_since: Option<Timestamp>,
    /// What its file system holds, in bytes: retired generations and what belongs to the layout
    /// included.
    pub memory: u64,
    /// What the kubelet brought last; nothing where that was to an earlier process.
    pub proofs: Option<PodCredentials>,
}

impl VolumeState {
    /// The same for rotation.
    pub(super) fn to_rotating_volume(&self) -> RotatingVolume {
        let stamps = |object: &MountedObject| (object.version.id.clone(), object.timestamps);
        RotatingVolume {
            volume_id: self.volume_id.clone(),
            target: self.target.clone(),
            pod: self.pod.clone(),
            class_name: self.class_name.clone(),
            history: self.history.clone(),
            timestamps: self.objects.iter().map(stamps).collect(),
            proofs: self.proofs.clone(),
            generation: self.generation,
        }
    }
}
