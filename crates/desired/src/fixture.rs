//! The example cluster for tests, optionally with changes.

use lanyard_api::HostedCluster;
use lanyard_vocabulary::Component;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::hosted_cluster::ValidatedHostedCluster;
use crate::hosted_cluster::desired_state::{DesiredState, desired_state};
use crate::hosted_cluster::kms_api_version::KmsApiVersion;
use crate::hosted_cluster::render_context::RenderContext;
use crate::hosted_cluster::validate::validate;
use crate::objects::{
    ControlPlaneOwner, DesiredObject, DesiredObjectInputs, OperatorMode, VolumeRefresh,
    desired_objects,
};
use crate::templates::WorkloadTemplates;

pub(crate) const EXAMPLE_YAML: &str = include_str!("../../../examples/hostedcluster.yaml");
pub(crate) const AZURE: &str = "/spec/platform/azure";
pub(crate) const CONTROL_PLANE: &str =
    "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/controlPlane";
pub(crate) const KMS: &str = "/spec/secretEncryption/kms/azure";

/// Returns the example as JSON.
pub(crate) fn example_json() -> Value {
    serde_json::to_value(HostedCluster::parse_yaml(EXAMPLE_YAML).unwrap()).unwrap()
}

pub(crate) fn parse_hosted_cluster_json(value: Value) -> HostedCluster {
    serde_json::from_value(value).unwrap()
}

/// Returns the example with the value at each JSON pointer replaced; a null removes the field.
pub(crate) fn example_with_changes(changes: &[(String, Value)]) -> HostedCluster {
    let mut example = example_json();
    for (pointer, value) in changes {
        set_at_pointer(&mut example, pointer, value.clone());
    }
    parse_hosted_cluster_json(example)
}

pub(crate) fn set_at_pointer(root: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = root.pointer_mut(parent).unwrap_or_else(|| panic!("no `{parent}`"));
    let key = key.replace("~1", "/");
    if value.is_null() {
        parent.as_object_mut().unwrap().remove(&key);
    } else {
        parent.as_object_mut().unwrap().insert(key, value);
    }
}

pub(crate) fn validated_cluster(wire: &HostedCluster) -> ValidatedHostedCluster {
    validate(wire).unwrap().hosted_cluster
}

pub(crate) fn example_render_context() -> RenderContext {
    RenderContext {
        vault_reader: "7a1c0e94-3d52-4b8f-a6e7-90f4d2b5c831".parse().ok(),
        ..RenderContext::default()
    }
}

pub(crate) fn desired_state_of(wire: &HostedCluster) -> DesiredState {
    desired_state(&validated_cluster(wire), &example_render_context())
}

pub(crate) const OWNER_UID: &str = "1f0c6a8e-52d7-4b39-9a41-e8d03c7b5f26";

/// Returns rendering inputs for a cluster whose HostedControlPlane exists.
pub(crate) fn example_inputs<'a>(
    wire: &'a HostedCluster,
    templates: &'a WorkloadTemplates,
) -> DesiredObjectInputs<'a> {
    DesiredObjectInputs {
        wire,
        mode: OperatorMode::All,
        owner: ControlPlaneOwner::Known(OWNER_UID.to_owned()),
        vault_reader: example_render_context().vault_reader,
        templates,
        refresh: VolumeRefresh::Polled,
        private_router: None,
        control_plane_endpoint: None,
        kms_api_version: KmsApiVersion::default(),
    }
}

pub(crate) fn desired_objects_of(wire: &HostedCluster) -> Vec<DesiredObject> {
    desired_objects(&validated_cluster(wire), &example_inputs(wire, &WorkloadTemplates::default()))
}

/// Generates changes that cover every kind of managed Azure cluster: names, encodings, vault,
/// cloud, and the set of components.
pub(crate) fn any_changes() -> impl Strategy<Value = Vec<(String, Value)>> {
    let encodings = prop::collection::vec(prop::sample::select(vec!["utf-8", "hex", "base64"]), 9);
    let clouds =
        vec!["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud"];
    let switches = any::<[bool; 6]>();
    ("[a-zA-Z0-9-]{1,60}", encodings, "[a-z][a-z0-9]{2,20}", prop::sample::select(clouds), switches)
        .prop_map(|(stem, encodings, vault, cloud, switches)| {
            let [kms, registry, ingress, backup, private, hsm] = switches;
            let mut changes = vec![
                (format!("{CONTROL_PLANE}/managedIdentitiesKeyVault/name"), json!(vault)),
                (format!("{AZURE}/cloud"), json!(cloud)),
            ];
            for (component, encoding) in Component::ALL.into_iter().zip(encodings) {
                let parent = if component == Component::Kms { KMS } else { CONTROL_PLANE };
                let name = format!("{stem}-{component}");
                changes.push((format!("{parent}/{component}/credentialsSecretName"), json!(name)));
                changes.push((format!("{parent}/{component}/objectEncoding"), json!(encoding)));
            }
            let off = [(registry, "ImageRegistry"), (ingress, "Console"), (ingress, "Ingress")];
            let off: Vec<_> = off.iter().filter(|(on, _)| !on).map(|(_, name)| *name).collect();
            changes.push(("/spec/capabilities".to_owned(), json!({"disabled": off})));
            if backup {
                let key =
                    json!({"keyVaultName": "harbour-keys", "keyName": "old", "keyVersion": "1"});
                changes.push((format!("{KMS}/backupKey"), key));
            }
            let access = if private { "Private" } else { "Public" };
            changes.push((format!("{KMS}/keyVaultAccess"), json!(access)));
            let kind = if hsm { "ManagedHSM" } else { "KeyVault" };
            changes.push((format!("{KMS}/keyVaultType"), json!(kind)));
            if !kms {
                changes.push(("/spec/secretEncryption".to_owned(), Value::Null));
            }
            changes
        })
}
