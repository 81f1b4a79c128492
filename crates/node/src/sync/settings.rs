//! Settings of the Secret sync.

use std::path::PathBuf;

use lanyard_provider::PollInterval;

/// Settings of a [`SecretSync`](super::SecretSync).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSyncSettings {
    /// The name of this node.
    pub node: String,
    /// The name of the driver. Volumes of other drivers are not read.
    pub driver: String,
    /// The kubelet's root directory.
    pub kubelet_directory: PathBuf,
    /// The poll interval of volumes whose class sets none.
    pub interval: PollInterval,
}
