//! Compares the rendering of HyperShift's fixture of managed Azure with HyperShift's own output.
//!
//! The fixture has no encodings, tenant, subscription, resource group, region and infra id, so no
//! API server would accept it. The test adds placeholders and removes them from the rendered text,
//! so that the product's validation needs no bypass.

use std::collections::BTreeMap;

use lanyard_api::HostedCluster;
use lanyard_vocabulary::{Cloud, Component, ObjectEncoding};
use serde_json::{Value, json};

use super::super::*;
use crate::hash::{DESIRED_STATE_HASH_ANNOTATION, MountedValue, config_hash, desired_state_hash};
use crate::hosted_cluster::kms_api_version::KmsApiVersion;
use crate::hosted_cluster::{
    AzurePlacement, ClusterTenant, ControlPlaneIdentity, CredentialVault, DataPlaneClientIds,
    EncryptionKey, KmsEncryption, LoadBalancerHealthProbe, ValidatedHostedCluster, VaultTenant,
};
use crate::templates::WorkloadTemplates;

const PLACEHOLDER: &str = "stand-in";

fn reference_cluster() -> ValidatedHostedCluster {
    let network = "/subscriptions/mySubscriptionID/resourceGroups/myResourceGroupName/providers/Microsoft.Network";
    let vnet = format!("{network}/virtualNetworks/myVnetName");
    let identity = |component: Component| {
        let name = match component {
            Component::NodePoolManagement => "nodepool-mgmt-creds".to_owned(),
            Component::Kms => "test-kms-creds".to_owned(),
            _ => format!("{}-creds", component.definition().secret_suffix),
        };
        ControlPlaneIdentity {
            client_id: None,
            secret_name: name.parse().unwrap(),
            encoding: ObjectEncoding::Utf8,
        }
    };
    ValidatedHostedCluster {
        // The namespace of the control plane consists of both.
        namespace: "hcp".to_owned(),
        name: "namespace".to_owned(),
        infra_id: PLACEHOLDER.parse().unwrap(),
        base_domain: None,
        issuer_url: "https://test-oidc-bucket.s3.us-east-1.amazonaws.com/test-cluster".to_owned(),
        azure: AzurePlacement {
            cloud: Cloud::Public,
            location: PLACEHOLDER.to_owned(),
            tenant: ClusterTenant(PLACEHOLDER.parse().unwrap()),
            subscription: PLACEHOLDER.parse().unwrap(),
            resource_group: PLACEHOLDER.to_owned(),
            vnet: vnet.parse().ok(),
            subnet: format!("{vnet}/subnets/mySubnetName").parse().unwrap(),
            security_group: format!("{network}/networkSecurityGroups/myNSGName").parse().ok(),
            registry_identity: None,
            health_probe: Some(LoadBalancerHealthProbe::Shared),
        },
        vault: CredentialVault {
            name: "test-keyvault".parse().unwrap(),
            tenant: VaultTenant("00000000-0000-0000-0000-000000000000".parse().unwrap()),
        },
        identities: Component::ALL.map(|component| (component, identity(component))).into(),
        data_plane: DataPlaneClientIds { image_registry: None, disk: None, file: None },
        encryption: Some(KmsEncryption {
            active_key: EncryptionKey {
                vault: "test-kms-keyvault".parse().unwrap(),
                name: "test-key".parse().unwrap(),
                version: "1".parse().unwrap(),
            },
            backup_key: None,
            is_managed_hsm: false,
            is_private_access: true,
            routed_vault: "test-kms-keyvault".parse().unwrap(),
        }),
    }
}

/// Returns the objects in HyperShift's form, without the placeholders.
fn rendered_reference_objects() -> BTreeMap<String, Value> {
    let wire = HostedCluster::default();
    let templates = WorkloadTemplates::default();
    let inputs = DesiredObjectInputs {
        wire: &wire,
        mode: OperatorMode::All,
        owner: ControlPlaneOwner::WithoutUid,
        vault_reader: None,
        templates: &templates,
        refresh: VolumeRefresh::Polled,
        private_router: None,
        control_plane_endpoint: None,
        kms_api_version: KmsApiVersion::default(),
    };
    let objects = desired_objects(&reference_cluster(), &inputs);
    objects
        .into_iter()
        .filter(|object| object.writer == ObjectWriter::ControlPlane)
        .map(|object| {
            let mut shape = without_ownership_marks(&object.value);
            shape["metadata"]["ownerReferences"][0]["name"] = json!("hcp");
            if let Some(objects) = shape.pointer_mut("/spec/parameters/objects") {
                *objects =
                    json!(objects.as_str().unwrap().replace("Encoding: utf-8", "Encoding: "));
            }
            if let Some(text) = shape.pointer_mut("/data/cloud.conf") {
                *text = json!(without_placeholders(text.as_str().unwrap()));
            }
            (object.key.to_string(), shape)
        })
        .collect()
}

fn without_placeholders(text: &str) -> String {
    use k8s_openapi::ByteString;

    if text.starts_with('{') {
        return text.replace(PLACEHOLDER, "");
    }
    let bytes: ByteString = serde_json::from_value(json!(text)).unwrap();
    let text = String::from_utf8(bytes.0).unwrap().replace(PLACEHOLDER, "");
    serde_json::to_value(ByteString(text.into_bytes())).unwrap().as_str().unwrap().to_owned()
}

/// The hashes of the classes and of the `EncryptionConfiguration` are copied from HyperShift's
/// fixtures. Those of the cloud configurations were computed with the same algorithm, by another
/// program, from the bytes of the fixtures.
const REFERENCE_HASHES: [(&str, &str); 12] = [
    (
        "SecretProviderClass hcp-namespace/managed-azure-network",
        "ab4c90f5f78e557c86e88b5c5af8362d53f6fd73dbc58f112f60ae86791ef835",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-disk-csi",
        "60edbe4e46edbf33dfbabaf4b70bc802f2c39e00009a085d09e8c455cc00562d",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-file-csi",
        "586f2f5c05e1c7e6a33b58ed357d75ca2e0a760ea63ef172bbb62b77bbd9c36c",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-kms",
        "2a05a4031bdcb5b8cbacf8a05beea22be1050486764cbbafaa8dd6c0fa01c8c5",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-image-registry",
        "9e4e17e2e18a1ebeea175b5da0d29e658fb317ad17c120b731a154c6a7fd4031",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-ingress",
        "975eabfd09a20577d7e92b576afbd09d013d874daff08a8a227e4320161f7b8b",
    ),
    (
        "SecretProviderClass hcp-namespace/managed-azure-cloud-provider",
        "bfc5e865f1adb1119a632fcd284657a22f650a0233163fcbc4e68d75d28118c8",
    ),
    (
        "Secret hcp-namespace/kas-secret-encryption-config",
        "5f27da823645c3158bf3d424e49f6d8fdf87eb9caf8a6fe4f683ebbddbe1037a",
    ),
    (
        "Secret hcp-namespace/azure-disk-csi-config",
        "0d43c9e062c9a0cab118734d9eeedf20153a38eda5d3e9c129aa63c485331cae",
    ),
    (
        "Secret hcp-namespace/azure-file-csi-config",
        "b98e1c3ce1aa56b5660de641589357f6bf1009d102ca9343f0e30f434f173bcf",
    ),
    (
        "Secret hcp-namespace/azure-cloud-config",
        "8f22a44964f9530c4a550f4534f94ad10977e40c1fd803ca367794c7d49aa835",
    ),
    (
        "ConfigMap hcp-namespace/azure-cloud-config",
        "d9366bf3b0e93d935f0475823c48a54e26ff025320ffa7f42b1509ac83b5b024",
    ),
];

#[test]
fn the_fixture_hashes_as_in_the_reference() {
    let rendered = rendered_reference_objects();
    for (key, expected) in REFERENCE_HASHES {
        assert_eq!(desired_state_hash(&rendered[key]), expected, "{key}");
    }
}

#[test]
fn ownership_marks_do_not_change_the_hash() {
    let wire = crate::fixture::example_with_changes(&[]);
    for object in crate::fixture::desired_objects_of(&wire) {
        let stored = object.value["metadata"]["annotations"].get(DESIRED_STATE_HASH_ANNOTATION);
        let is_marked =
            object.writer == ObjectWriter::ControlPlane || object.key.name != "managed-azure-kms";
        assert_eq!(stored.is_some(), is_marked, "{}", object.key);
        if let Some(stored) = stored {
            assert_eq!(
                *stored,
                desired_state_hash(&without_ownership_marks(&object.value)),
                "{}",
                object.key
            );
        }
    }
}

/// Checks the hash of a mounted configuration against HyperShift's Deployment.
#[test]
fn the_cloud_controller_manager_has_the_config_hash_of_the_reference() {
    use k8s_openapi::ByteString;

    let rendered = rendered_reference_objects();
    let text = &rendered["Secret hcp-namespace/azure-cloud-config"]["data"]["cloud.conf"];
    let bytes: ByteString = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(config_hash([MountedValue::Bytes(&bytes.0)]), "23427fb4");
}

#[test]
fn the_keys_of_the_api_server_hash_as_in_the_reference() {
    let rendered = rendered_reference_objects();
    let pods = &rendered["Deployment hcp-namespace/kube-apiserver"]["spec"]["template"];
    assert_eq!(
        pods["metadata"]["annotations"]["kube-apiserver.hypershift.openshift.io/encryption-config-hash"],
        "sha256:89909e55b7962a3be09e580ed103db17f5b38ae558366dd4d87b5245de8c79b6"
    );
}
