//! Events of the fake kubelet.

use std::fmt;

use tonic::Code;

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey {
    pub pod_uid: String,
    /// The name of the volume in the pod.
    pub volume: String,
}

impl VolumeKey {
    /// Creates a key from the UID of the pod and the name of the volume.
    pub fn new(pod_uid: impl Into<String>, volume: impl Into<String>) -> Self {
        Self { pod_uid: pod_uid.into(), volume: volume.into() }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.pod_uid, self.volume)
    }
}

/// An event that the fake kubelet emits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KubeletEvent {
    /// A driver was registered and can be called.
    Registered {
        driver: String,
        /// The node id that the driver returned.
        node_id: String,
    },
    /// A registration socket exists, but its plugin cannot be used.
    RegistrationFailed {
        /// The file name of the socket.
        socket: String,
        /// Why the registration failed.
        message: String,
    },
    /// The registration socket of a driver was removed.
    Deregistered { driver: String },
    /// The driver published a volume.
    Published {
        /// The volume.
        key: VolumeKey,
        /// The number of successful publishes in a row, from 1 on.
        count: u32,
    },
    /// The driver returned an error: `FailedMount` on the pod.
    PublishFailed {
        /// The volume.
        key: VolumeKey,
        /// The gRPC code.
        code: Code,
        /// The gRPC message.
        message: String,
        /// Whether the volume was published before, and stays.
        was_published: bool,
    },
    /// No publish call was made: `FailedMount` on the pod.
    PublishNotSent {
        /// The volume.
        key: VolumeKey,
        /// Why no call was made.
        message: String,
    },
    /// The driver unpublished a volume.
    Unpublished {
        /// The volume.
        key: VolumeKey,
        /// Whether a file system is still mounted on the target: an error of the driver that the real kubelet
        /// does not detect.
        still_mounted: bool,
    },
    /// The driver failed to unpublish a volume, so the pod stays.
    UnpublishFailed {
        /// The volume.
        key: VolumeKey,
        /// The gRPC code.
        code: Code,
        /// The gRPC message.
        message: String,
    },
}
