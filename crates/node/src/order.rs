//! What the kubelet ordered: one publish of one volume, parsed.

mod parse;
mod problem;
mod target;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanyard_keyvault::{Pod, Proofs};

pub use self::parse::OrderRules;
pub use self::problem::{InvalidOrder, OrderProblem};
pub use self::tokens::TokensProblem;

/// One publish of one volume, as the kubelet asked for it. It cannot be wrong inside: what was
/// missing or contradictory was refused when the request was parsed.
#[derive(Debug, Clone)]
pub struct MountOrder {
    /// The id of the volume: `csi-` and a digest of pod and volume name.
    pub volume_id: String,
    /// Where to mount. Absolute, lexically clean, below the kubelet's directory.
    pub target: PathBuf,
    /// Whose volume it is. The kubelet vouches for it: its own keys win over the user's.
    pub pod: Pod,
    /// The SecretProviderClass, in the pod's namespace.
    pub class_name: String,
    /// The volume's attributes as they came, without the tokens: the provider protocol carries
    /// them on. They override the class only where the node allows it.
    pub attributes: BTreeMap<String, String>,
    /// What the pod brings to prove who it is.
    pub proofs: Proofs,
    /// `volume_mount_group`: the pod's `fsGroup`.
    pub group: Option<u32>,
}
