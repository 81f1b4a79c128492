//! Publish requests of the kubelet, parsed and validated.

mod error;
mod parse;
mod target;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanyard_keyvault::{PodCredentials, VolumePod};

pub use self::error::{InvalidPublishRequest, PublishRequestProblem};
pub use self::parse::VolumeRequestParser;
pub use self::tokens::ParseTokensError;

/// One validated request of the kubelet to publish one volume. The parser has rejected requests with missing
/// or contradictory fields.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// The volume id: `csi-` and a digest of pod and volume name.
    pub volume_id: String,
    /// The target path of the mount: absolute, lexically normalized, below the kubelet's directory.
    pub target: PathBuf,
    /// The pod of the volume. The values of the kubelet's own keys take precedence over those of the user.
    pub pod: VolumePod,
    /// The SecretProviderClass, in the pod's namespace.
    pub class_name: String,
    /// The volume attributes as received, without the tokens. They are forwarded with the provider protocol,
    /// and override the class only if the node allows it.
    pub attributes: BTreeMap<String, String>,
    /// The pod's credentials: its ServiceAccount tokens and node publish secrets.
    pub pod_credentials: PodCredentials,
    /// `volume_mount_group`: the pod's `fsGroup`.
    pub group: Option<u32>,
}
