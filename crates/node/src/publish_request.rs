//! What the kubelet ordered: one publish of one volume, parsed.

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

/// One publish of one volume, as the kubelet asked for it. It cannot be wrong inside: what was
/// missing or contradictory was refused when the request was parsed.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// The id of the volume: `csi-` and a digest of pod and volume name.
    pub volume_id: String,
    /// Where to mount. Absolute, lexically clean, below the kubelet's directory.
    pub target: PathBuf,
    /// Whose volume it is. The kubelet vouches for it: its own keys win over the user's.
    pub pod: VolumePod,
    /// The SecretProviderClass, in the pod's namespace.
    pub class_name: String,
    /// The volume's attributes as they came, without the tokens: the provider protocol carries
    /// them on. They override the class only where the node allows it.
    pub attributes: BTreeMap<String, String>,
    /// What the pod brings to prove who it is.
    pub proofs: PodCredentials,
    /// `volume_mount_group`: the pod's `fsGroup`.
    pub group: Option<u32>,
}
