//! Keys of clusters and objects: namespace and name.

use kube::api::DynamicObject;
use lanyard_desired::{ObjectKey, OwnedKind};

use crate::cluster_key::ClusterKey;

/// The namespace of the control plane of a cluster.
pub(crate) fn control_plane_namespace(key: &ClusterKey) -> String {
    lanyard_desired::hosted_cluster::control_plane_namespace(key.namespace(), key.name())
}

/// The control-plane namespace of an object; for a Namespace its own name.
pub(super) fn cache_namespace(key: &ObjectKey) -> String {
    key.namespace.clone().unwrap_or_else(|| key.name.clone())
}

pub(super) fn object_key(kind: OwnedKind, namespace: &str, name: String) -> ObjectKey {
    let namespace = kind.info().namespaced.then(|| namespace.to_owned());
    ObjectKey { kind, namespace, name }
}

pub(super) fn namespaced_name(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

pub(super) fn cluster_namespaced_name(key: &ClusterKey) -> (String, String) {
    (key.namespace().to_owned(), key.name().to_owned())
}
