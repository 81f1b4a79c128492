//! The first stage of a reconciliation: collects the state of a cluster from the stores, without requests.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use lanyard_desired::hosted_cluster::control_plane_endpoint::ControlPlaneEndpoint;
use lanyard_desired::hosted_cluster::kms_api_version::KmsApiVersion;
use lanyard_desired::objects::ControlPlaneOwner;
use lanyard_desired::status::{ObservedPod, ObservedVolume};
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::ApiError;

use crate::cluster_key::ClusterKey;
use crate::context::ReconcileContext;
use crate::encryption_key::encryption_objects;
use crate::namespace_owner::NamespaceOwner;
use crate::store::{CachedCluster, IdentitiesReport, KindState, control_plane_namespace};
use crate::watched_kinds::WatchedKind;

/// The observed state of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ObservedCluster {
    pub(crate) key: ClusterKey,
    pub(crate) cluster: CachedCluster,
    /// The namespace of its control plane.
    pub(crate) namespace: String,
    /// The owner of that namespace.
    pub(crate) namespace_owner: NamespaceOwner,
    /// The oldest cluster whose control plane has this namespace.
    pub(crate) oldest_cluster: Option<ClusterKey>,
    /// The HostedControlPlane, if the operator created it.
    pub(crate) owner: ControlPlaneOwner,
    pub(crate) pods: Vec<ObservedPod>,
    pub(crate) volumes: Vec<ObservedVolume>,
    /// The address of the private router, through which components reach private vaults.
    pub(crate) private_router: Option<IpAddr>,
    /// The address of the hosted API server, from the status of the HostedControlPlane.
    pub(crate) control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// The KMS API version of the live `EncryptionConfiguration`.
    pub(crate) kms_api_version: KmsApiVersion,
    /// The names of all SecretProviderClasses, if they can be listed.
    pub(crate) classes: Option<BTreeSet<String>>,
    /// The watched kinds that cannot be used.
    pub(crate) unavailable_kinds: Vec<UnavailableWatchedKind>,
    /// The last reported status of the identities; only of this HostedCluster, not of a deleted one with the
    /// same name.
    pub(crate) last_report: Option<IdentitiesReport>,
    pub(crate) now: Timestamp,
}

/// Observes a cluster; `None` if it is deleted.
pub(crate) fn observe(context: &ReconcileContext, key: &ClusterKey) -> Option<ObservedCluster> {
    let stores = &context.stores;
    let cluster = stores.cluster(key)?;
    let uid = cluster.uid.clone();
    let namespace = control_plane_namespace(key);
    let (pods, volumes) = stores.pods_and_volumes(&namespace);
    let control_plane = control_plane_key(key, &namespace);
    let [encryption_config, _] = encryption_objects(&namespace);
    let owner = stores.uid(&namespace, &control_plane);
    let classes = match stores.kind_state(WatchedKind::Owned(OwnedKind::SecretProviderClass)) {
        KindState::Listed | KindState::Stale(_) => {
            Some(stores.object_names(&namespace, OwnedKind::SecretProviderClass))
        }
        KindState::Unlisted | KindState::Unusable(_) => None,
    };
    Some(ObservedCluster {
        key: key.clone(),
        cluster,
        namespace_owner: stores
            .ownership_marks(&namespace)
            .map_or(NamespaceOwner::Unchecked, |it| it.owner_for(&key.to_string())),
        oldest_cluster: stores.oldest_cluster_in(&namespace),
        owner: owner.map_or(ControlPlaneOwner::Absent, ControlPlaneOwner::Known),
        pods,
        volumes,
        private_router: stores.private_router(&namespace),
        control_plane_endpoint: stores
            .render_facts(&namespace, &control_plane)
            .control_plane_endpoint,
        kms_api_version: stores.render_facts(&namespace, &encryption_config).kms_api_version,
        classes,
        unavailable_kinds: list_unavailable_kinds(context),
        last_report: stores
            .identities_report(key)
            .filter(|report| report.owner.as_deref() == Some(&*uid)),
        now: context.api.clock().now(),
        namespace,
    })
}

/// A watched kind that cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct UnavailableWatchedKind {
    pub(crate) kind: WatchedKind,
    pub(crate) error: ApiError,
    /// Whether the reconciliation skips its objects. Otherwise the kind was listed once, and the cached
    /// objects may be outdated.
    pub(crate) is_skipped: bool,
}

impl ObservedCluster {
    /// Whether the reconciliation skips the objects of a kind.
    pub(crate) fn skips_kind(&self, kind: OwnedKind) -> bool {
        let kind = WatchedKind::Owned(kind);
        self.unavailable_kinds.iter().any(|it| it.kind == kind && it.is_skipped)
    }
}

fn list_unavailable_kinds(context: &ReconcileContext) -> Vec<UnavailableWatchedKind> {
    let kinds = WatchedKind::of(context.settings.role).into_iter();
    let lacking = kinds.filter_map(|kind| match context.stores.kind_state(kind) {
        KindState::Unusable(error) => {
            Some(UnavailableWatchedKind { kind, error, is_skipped: true })
        }
        KindState::Stale(error) => Some(UnavailableWatchedKind { kind, error, is_skipped: false }),
        KindState::Unlisted | KindState::Listed => None,
    });
    lacking.collect()
}

/// The key of a namespace object.
pub(crate) fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey { kind: OwnedKind::Namespace, namespace: None, name: name.to_owned() }
}

/// The key of the HostedControlPlane of a cluster.
pub(crate) fn control_plane_key(key: &ClusterKey, namespace: &str) -> ObjectKey {
    ObjectKey {
        kind: OwnedKind::HostedControlPlane,
        namespace: Some(namespace.to_owned()),
        name: key.name().to_owned(),
    }
}

#[cfg(test)]
impl ObservedCluster {
    /// The example cluster with a change, before anything was created for it.
    pub(crate) fn from_example(change: impl FnOnce(&mut serde_json::Value)) -> Self {
        const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");
        let wire = lanyard_api::HostedCluster::parse_yaml(EXAMPLE).unwrap();
        let mut object = serde_json::to_value(wire).unwrap();
        change(&mut object);
        Self {
            key: ClusterKey::of("clusters", "harbour"),
            cluster: CachedCluster::of(serde_json::from_value(object).unwrap(), &[]),
            namespace: "clusters-harbour".to_owned(),
            oldest_cluster: None,
            owner: ControlPlaneOwner::Absent,
            pods: Vec::new(),
            volumes: Vec::new(),
            private_router: None,
            control_plane_endpoint: None,
            kms_api_version: KmsApiVersion::default(),
            classes: None,
            namespace_owner: NamespaceOwner::Ours,
            unavailable_kinds: Vec::new(),
            last_report: None,
            now: "2026-01-02T00:00:00Z".parse().unwrap(),
        }
    }
}
