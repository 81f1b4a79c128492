//! The first stage: what is known of a cluster now. Nothing is asked that a watch told.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use lanyard_desired::objects::Owner;
use lanyard_desired::status::{ObservedPod, ObservedVolume};
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::ApiError;

use crate::claim::Claim;
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
    /// Whose that namespace is.
    pub(crate) claim: Claim,
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
    /// Kinds that cannot be used.
    pub(crate) lacking: Vec<Lacking>,
    /// How the identities are, as it was told last; of this HostedCluster, and not of a former one of
    /// its name.
    pub(crate) previous: Option<Told>,
    pub(crate) now: Timestamp,
}

/// What is known of a cluster; nothing where it is gone.
pub(crate) fn observe(context: &Context, key: &ClusterKey) -> Option<Observed> {
    let stores = &context.stores;
    let cluster = stores.cluster(key)?;
    let uid = cluster.uid.clone();
    let namespace = control_plane_namespace(key);
    let (pods, volumes) = stores.facts(&namespace);
    let owner = stores.uid(&namespace, &control_plane_key(key, &namespace));
    let classes = match stores.kind(WatchedKind::Owned(OwnedKind::SecretProviderClass)) {
        Kind::Listed | Kind::Stale(_) => {
            Some(stores.names(&namespace, OwnedKind::SecretProviderClass))
        }
        Kind::Unlisted | Kind::Unusable(_) => None,
    };
    Some(Observed {
        key: key.clone(),
        cluster,
        claim: stores.marks(&namespace).map_or(Claim::Unasked, |it| it.claim(&key.to_string())),
        tenant: stores.first_tenant(&namespace),
        owner: owner.map_or(Owner::NotYet, Owner::Known),
        pods,
        volumes,
        private_router: stores.private_router(&namespace),
        classes,
        lacking: lacking(context),
        previous: stores.identities(key).filter(|told| told.owner.as_deref() == Some(&*uid)),
        now: context.api.clock().now(),
        namespace,
    })
}

/// A kind that cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct Lacking {
    pub(crate) kind: WatchedKind,
    pub(crate) error: ApiError,
    /// Whether nothing is done about its objects. Otherwise it was listed once, and what is known of
    /// it grows old.
    pub(crate) is_left_out: bool,
}

impl Observed {
    /// Whether nothing is done about the objects of a kind.
    pub(crate) fn leaves_out(&self, kind: OwnedKind) -> bool {
        let kind = WatchedKind::Owned(kind);
        self.lacking.iter().any(|it| it.kind == kind && it.is_left_out)
    }
}

fn lacking(context: &Context) -> Vec<Lacking> {
    let kinds = WatchedKind::of(context.settings.role).into_iter();
    let lacking = kinds.filter_map(|kind| match context.stores.kind(kind) {
        Kind::Unusable(error) => Some(Lacking { kind, error, is_left_out: true }),
        Kind::Stale(error) => Some(Lacking { kind, error, is_left_out: false }),
        Kind::Unlisted | Kind::Listed => None,
    });
    lacking.collect()
}

/// The namespace of a control plane.
pub(crate) fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey { kind: OwnedKind::Namespace, namespace: None, name: name.to_owned() }
}

/// The HostedControlPlane of a cluster.
pub(crate) fn control_plane_key(key: &ClusterKey, namespace: &str) -> ObjectKey {
    ObjectKey {
        kind: OwnedKind::HostedControlPlane,
        namespace: Some(namespace.to_owned()),
        name: key.name().to_owned(),
    }
}

#[cfg(test)]
impl Observed {
    /// The example, changed, as it is before anything was made for it.
    pub(crate) fn of_example(change: impl FnOnce(&mut serde_json::Value)) -> Self {
        const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");
        let wire = lanyard_api::HostedCluster::parse_yaml(EXAMPLE).unwrap();
        let mut object = serde_json::to_value(wire).unwrap();
        change(&mut object);
        Self {
            key: ClusterKey::of("clusters", "harbour"),
            cluster: Cluster::of(serde_json::from_value(object).unwrap(), &[]),
            namespace: "clusters-harbour".to_owned(),
            tenant: None,
            owner: Owner::NotYet,
            pods: Vec::new(),
            volumes: Vec::new(),
            private_router: None,
            classes: None,
            claim: Claim::Ours,
            lacking: Vec::new(),
            previous: None,
            now: "2026-01-02T00:00:00Z".parse().unwrap(),
        }
    }
}
