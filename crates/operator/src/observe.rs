//! The first stage: what is known of a cluster now. Nothing is asked that a watch told.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use lanyard_desired::objects::Owner;
use lanyard_desired::status::{ObservedPod, ObservedVolume};
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::ApiError;

use crate::context::Context;
use crate::key::ClusterKey;
use crate::kinds::WatchedKind;
use crate::store::{Cluster, Kind, Told, control_plane_namespace};

/// What is known of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) key: ClusterKey,
    pub(crate) cluster: Cluster,
    /// The namespace of its control plane.
    pub(crate) namespace: String,
    /// Whose control plane the namespace is for.
    pub(crate) tenant: Option<ClusterKey>,
    /// The HostedControlPlane, if it was made here.
    pub(crate) owner: Owner,
    pub(crate) pods: Vec<ObservedPod>,
    pub(crate) volumes: Vec<ObservedVolume>,
    /// The address of the router to private vaults.
    pub(crate) private_router: Option<IpAddr>,
    /// The names of all classes, where they can be listed.
    pub(crate) classes: Option<BTreeSet<String>>,
    /// Kinds that cannot be used: nothing is done about their objects.
    pub(crate) unusable: Vec<(OwnedKind, ApiError)>,
    /// How the identities are, as it was told last.
    pub(crate) previous: Option<Told>,
    pub(crate) now: Timestamp,
}

/// What is known of a cluster; nothing where it is gone.
pub(crate) fn observe(context: &Context, key: &ClusterKey) -> Option<Observed> {
    let stores = &context.stores;
    let cluster = stores.cluster(key)?;
    let namespace = control_plane_namespace(key);
    let (pods, volumes) = stores.facts(&namespace);
    let owner = stores.uid(&namespace, &control_plane_key(key, &namespace));
    let unusable =
        OwnedKind::ALL.into_iter().filter_map(|kind| match stores.kind(WatchedKind::Owned(kind)) {
            Kind::Unusable(error) => Some((kind, error)),
            Kind::Unlisted | Kind::Listed => None,
        });
    let classes = match stores.kind(WatchedKind::Owned(OwnedKind::SecretProviderClass)) {
        Kind::Listed => Some(stores.names(&namespace, OwnedKind::SecretProviderClass)),
        Kind::Unlisted | Kind::Unusable(_) => None,
    };
    Some(Observed {
        key: key.clone(),
        cluster,
        tenant: stores.first_tenant(&namespace),
        owner: owner.map_or(Owner::NotYet, Owner::Known),
        pods,
        volumes,
        private_router: stores.private_router(&namespace),
        classes,
        unusable: unusable.collect(),
        previous: stores.identities(key),
        now: context.api.clock().now(),
        namespace,
    })
}

/// The HostedControlPlane of a cluster.
pub(crate) fn control_plane_key(key: &ClusterKey, namespace: &str) -> ObjectKey {
    ObjectKey {
        kind: OwnedKind::HostedControlPlane,
        namespace: Some(namespace.to_owned()),
        name: key.name().to_owned(),
    }
}
