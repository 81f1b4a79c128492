//! The example cluster, whole or changed, for tests.

use lanyard_api::HostedCluster;
use serde_json::Value;

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired::{Desired, desired};
use crate::hosted_cluster::names::Names;
use crate::hosted_cluster::validate::validate;

pub(crate) const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");
pub(crate) const AZURE: &str = "/spec/platform/azure";
pub(crate) const CONTROL_PLANE: &str =
    "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/controlPlane";
pub(crate) const KMS: &str = "/spec/secretEncryption/kms/azure";

/// The example as JSON, to change and to read with [`wire`].
pub(crate) fn example() -> Value {
    serde_json::to_value(HostedCluster::parse_yaml(EXAMPLE).unwrap()).unwrap()
}

pub(crate) fn wire(value: Value) -> HostedCluster {
    serde_json::from_value(value).unwrap()
}

/// The example with the value at each pointer replaced; a null removes it.
pub(crate) fn changed(changes: &[(String, Value)]) -> HostedCluster {
    let mut example = example();
    for (pointer, value) in changes {
        set(&mut example, pointer, value.clone());
    }
    wire(example)
}

pub(crate) fn set(root: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = root.pointer_mut(parent).unwrap_or_else(|| panic!("no `{parent}`"));
    let key = key.replace("~1", "/");
    if value.is_null() {
        parent.as_object_mut().unwrap().remove(&key);
    } else {
        parent.as_object_mut().unwrap().insert(key, value);
    }
}

pub(crate) fn valid(wire: &HostedCluster) -> ValidatedHostedCluster {
    validate(wire).unwrap().hosted_cluster
}

pub(crate) fn names() -> Names {
    Names { vault_reader: "7a1c0e94-3d52-4b8f-a6e7-90f4d2b5c831".parse().ok(), owner: None }
}

pub(crate) fn desired_of(wire: &HostedCluster) -> Desired {
    desired(&valid(wire), &names())
}
