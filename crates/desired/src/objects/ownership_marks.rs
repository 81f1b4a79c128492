//! The labels and annotations that identify the objects of a hosted cluster.
//!
//! The desired-state hash covers the object without these marks, so an object has the same hash
//! whether lanyard or HyperShift renders it.

use lanyard_api::HostedCluster;
use serde_json::{Map, Value, json};

use crate::hash::{DESIRED_STATE_HASH_ANNOTATION, desired_state_hash_with, fnv1a, remove_entry};
use crate::hosted_cluster::ValidatedHostedCluster;

/// Label: the program that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY_VALUE: &str = "lanyard";
/// Label: the hosted cluster that an object belongs to, in the format of [`cluster_label`].
pub const CLUSTER_LABEL: &str = "lanyard.dev/hosted-cluster";

const MAX_LABEL_VALUE_LENGTH: usize = 63;

/// Returns the name of a hosted cluster as a label value. A name that is too long is truncated and
/// ends in a hash of the whole name.
pub fn cluster_label(name: &str) -> String {
    if name.len() <= MAX_LABEL_VALUE_LENGTH {
        return name.to_owned();
    }
    let hash = fnv1a(name.as_bytes());
    let cut = name.floor_char_boundary(MAX_LABEL_VALUE_LENGTH - hash.len() - 1);
    let stem = name[..cut].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{stem}-{hash}")
}

/// Returns whether an object has lanyard's labels for this cluster.
pub fn has_ownership_labels(object: &Value, cluster_label: &str) -> bool {
    let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
    label(MANAGED_BY_LABEL) == Some(MANAGED_BY_VALUE) && label(CLUSTER_LABEL) == Some(cluster_label)
}

/// Returns the object without lanyard's marks, as HyperShift would render it.
pub fn without_ownership_marks(object: &Value) -> Value {
    let mut shape = object.clone();
    if let Some(metadata) = shape.get_mut("metadata") {
        remove_ownership_marks(metadata);
    }
    shape
}

fn remove_ownership_marks(metadata: &mut Value) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    remove_entry(metadata, "labels", MANAGED_BY_LABEL);
    remove_entry(metadata, "labels", CLUSTER_LABEL);
    remove_entry(metadata, "annotations", HostedCluster::CLUSTER_ANNOTATION);
}

/// Adds the labels and the annotation with the cluster's namespace and name.
pub(super) fn add_ownership_marks(object: &mut Value, cluster: &ValidatedHostedCluster) {
    let labels =
        [(MANAGED_BY_LABEL, MANAGED_BY_VALUE), (CLUSTER_LABEL, &cluster_label(&cluster.name))];
    for (key, value) in labels {
        set_metadata_entry(object, "labels", key, value);
    }
    set_metadata_entry(
        object,
        "annotations",
        HostedCluster::CLUSTER_ANNOTATION,
        &cluster.namespaced_name(),
    );
}

/// Adds the hash of the object [`without_ownership_marks`].
pub(crate) fn set_desired_state_hash(object: &mut Value) {
    let mut metadata = object.get("metadata").cloned();
    metadata.iter_mut().for_each(remove_ownership_marks);
    let hash = desired_state_hash_with(object, metadata);
    set_metadata_entry(object, "annotations", DESIRED_STATE_HASH_ANNOTATION, &hash);
}

fn set_metadata_entry(object: &mut Value, map: &str, key: &str, value: &str) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let entries = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
    if let Some(entries) = entries.as_object_mut() {
        entries.insert(key.to_owned(), json!(value));
    }
}
