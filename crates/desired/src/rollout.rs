//! Whether pods must start anew when the way of their credential changes, or reload by themselves.
//!
//! The file of a credential is named after the vault's secret. Another name is another path, which
//! a process learns when it starts: it must start anew. Whatever else changes — the encoding, the
//! vault, who reads it — comes to the same path, and every consumer watches its file: where volumes
//! are read again it reloads, and nothing is restarted, least of all the API server with the plugin
//! of its key. Where volumes stay as they were mounted nothing would ever reload, so everything
//! starts anew.
//!
//! In the reference a consumer starts anew only where its variables or configurations happen to
//! change; the control plane operator, Cluster API and the storage drivers keep an old path.

use aws_lc_rs::digest::{Context, SHA256};

use crate::hosted_cluster::credential_injection::CredentialInjection;
use crate::hosted_cluster::desired_state::DesiredState;
use crate::objects::VolumeRefresh;

#[cfg(test)]
mod tests;

/// Annotation of pod templates: the part of the mounted classes for which the pod starts anew.
pub const CLASS_STAMP_ANNOTATION: &str = "lanyard.dev/class-stamp";

/// The stamp of the classes that a pod mounts: a hash of the names of their files and, where
/// volumes stay as they were mounted, of everything that the classes say.
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
