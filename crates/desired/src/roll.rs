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

use std::collections::BTreeSet;

use aws_lc_rs::digest::{Context, SHA256};
use lanyard_vocabulary::component::Consumer;
use lanyard_vocabulary::{ClientId, Component};

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired::Desired;
use crate::hosted_cluster::wiring::Wiring;
use crate::objects::VolumeRefresh;

#[cfg(test)]
mod tests;

/// Annotation of pod templates: the part of the mounted classes for which the pod starts anew.
pub const CLASS_STAMP: &str = "lanyard.dev/class-stamp";

/// What changed in the way of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassChange {
    /// The name of the vault's secret, which is the name of the file.
    SecretName,
    /// How the credential is written into the secret.
    Encoding,
    /// The vault or its tenant.
    Vault,
    /// Who reads the vault.
    Reader,
    /// The cloud of the vault.
    Cloud,
}

/// What a consumer does about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Its pods start anew.
    Roll,
    /// It reads the file again when the volume has it, within an interval of the rotation.
    Reload,
}

/// A consumer, and what it does about the changes of its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerReaction {
    /// The component.
    pub component: Component,
    /// The pod that reads its credential.
    pub consumer: Consumer,
    /// What changed.
    pub changes: BTreeSet<ClassChange>,
    /// What it does.
    pub reaction: Reaction,
}

impl ClassChange {
    /// Every change.
    pub const ALL: [Self; 5] =
        [Self::SecretName, Self::Encoding, Self::Vault, Self::Reader, Self::Cloud];

    /// What a consumer does about it.
    pub const fn reaction(self, refresh: VolumeRefresh) -> Reaction {
        match (self, refresh) {
            (Self::SecretName, _) | (_, VolumeRefresh::AtMount) => Reaction::Roll,
            (_, VolumeRefresh::Polled) => Reaction::Reload,
        }
    }
}

/// A cluster with the reader of its vault.
pub type Read<'a> = (&'a ValidatedHostedCluster, Option<ClientId>);

/// What the consumers do when a cluster changes. Consumers whose class stays are not among them,
/// nor are those that come or go.
pub fn reactions(
    before: Read<'_>,
    after: Read<'_>,
    refresh: VolumeRefresh,
) -> Vec<ConsumerReaction> {
    let mut reactions = Vec::new();
    for component in after.0.identities.keys().copied() {
        let changes = changes(before, after, component);
        let reaction = if changes.iter().any(|change| change.reaction(refresh) == Reaction::Roll) {
            Reaction::Roll
        } else {
            Reaction::Reload
        };
        let consumers = component.consumers().iter().filter(|_| !changes.is_empty());
        reactions.extend(consumers.map(|consumer| ConsumerReaction {
            component,
            consumer: *consumer,
            changes: changes.clone(),
            reaction,
        }));
    }
    reactions
}

fn changes(before: Read<'_>, after: Read<'_>, component: Component) -> BTreeSet<ClassChange> {
    let identities = (before.0.identities.get(&component), after.0.identities.get(&component));
    let (Some(old), Some(new)) = identities else { return BTreeSet::new() };
    let found = [
        (ClassChange::SecretName, old.secret_name != new.secret_name),
        (ClassChange::Encoding, old.encoding != new.encoding),
        (ClassChange::Vault, before.0.vault != after.0.vault),
        (ClassChange::Reader, before.1 != after.1),
        (ClassChange::Cloud, before.0.azure.cloud != after.0.azure.cloud),
    ];
    found.into_iter().filter_map(|(change, is)| is.then_some(change)).collect()
}

/// The stamp of the classes that a pod mounts: a hash of the names of their files and, where
/// volumes stay as they were mounted, of everything that the classes say.
pub(crate) fn class_stamp(
    wirings: &[&Wiring],
    desired: &Desired,
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
