//! Decides whether a change of the credential restarts pods or whether processes reload the file.
//!
//! The credential file is named after the vault secret. A new name is a new path, which a process
//! learns only at startup, so its pods must restart. All other changes (encoding, vault, vault
//! reader) keep the path, and every consumer watches its file: with rotation enabled the process
//! reloads the file and no pod restarts, in particular not the API server with its KMS plugin. With
//! rotation disabled no volume is updated, so every change restarts the pods.
//!
//! HyperShift restarts a consumer only if its variables or configurations happen to change: the
//! control plane operator, Cluster API and the storage drivers keep using an old path.

use aws_lc_rs::digest::{Context, SHA256};

use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::desired_state::DesiredState;
use crate::objects::VolumeRefresh;

#[cfg(test)]
mod tests;

/// Annotation of pod templates: a hash of the fields of the mounted classes whose change restarts
/// the pod.
pub const CLASS_STAMP_ANNOTATION: &str = "lanyard.dev/class-stamp";

/// Returns the value of [`CLASS_STAMP_ANNOTATION`] for the classes that a pod mounts: a hash of the
/// names of their files and, with rotation disabled, of the whole class specs.
pub(crate) fn class_stamp(
    wirings: &[&CredentialInjection],
    desired: &DesiredState,
    refresh: VolumeRefresh,
) -> Option<String> {
    let mut hashed = Context::new(&SHA256);
    for wiring in wirings {
        hashed.update(wiring.secret_name.as_str().as_bytes());
        hashed.update(b"\n");
        let class = wiring.class_name().and_then(|name| desired.secret_provider_class(name));
        let class = class.filter(|_| refresh == VolumeRefresh::AtMount);
        let parameters = class.and_then(|class| class.spec.parameters.as_ref());
        for (key, value) in parameters.into_iter().flatten() {
            hashed.update(format!("{key}={value}\n").as_bytes());
        }
    }
    (!wirings.is_empty()).then(|| hex::encode(&hashed.finish().as_ref()[..8]))
}
