//! What happened.

use std::fmt;

use tonic::Code;

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey {
    /// The UID of the pod.
    pub pod_uid: String,
    /// The name of the volume in the pod.
    pub volume: String,
}

impl VolumeKey {
    /// The volume of this name in the pod of this UID.
    pub fn new(pod_uid: impl Into<String>, volume: impl Into<String>) -> Self {
        Self { pod_uid: pod_uid.into(), volume: volume.into() }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.pod_uid, self.volume)
    }
}

/// Something that the stand-in did, or met.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KubeletEvent {
    /// A driver can be called now.
    Registered {
        /// The driver.
        driver: String,
        /// What it calls this node.
        node_id: String,
    },
    /// A registration socket was there, and what answered cannot be used.
    RegistrationFailed {
        /// The file name of the socket.
        socket: String,
        /// What came back.
        message: String,
    },
    /// The registration socket of a driver is gone.
    Deregistered {
        /// The driver.
        driver: String,
    },
    /// The driver said that a volume is there.
    Published {
        /// The volume.
        key: VolumeKey,
        /// The how-manyeth success in a row this is, from 1 on.
        count: u32,
    },
    /// The driver refused or failed: `FailedMount` on the pod.
    PublishFailed {
        /// The volume.
        key: VolumeKey,
        /// The code.
        code: Code,
        /// The message.
        message: String,
        /// Whether the volume was there before, and stays.
        was_published: bool,
    },
    /// A volume could not be asked for: `FailedMount` on the pod.
    PublishNotSent {
        /// The volume.
        key: VolumeKey,
        /// Why.
        message: String,
    },
    /// The driver said that a volume is gone.
    Unpublished {
        /// The volume.
        key: VolumeKey,
        /// Whether something is mounted there all the same: a fault of the driver, which the
        /// kubelet does not notice.
        still_mounted: bool,
    },
    /// A volume could not be taken away: the pod stays.
    UnpublishFailed {
        /// The volume.
        key: VolumeKey,
        /// The code.
        code: Code,
        /// The message.
        message: String,
    },
}
