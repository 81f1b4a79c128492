//! Byte-exact expectations for the example cluster, written from HyperShift's formats and not from
//! lanyard's output. The hashes were computed by another program: SHA-256 over JSON with sorted keys.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::find_object;
use crate::fixture::{OWNER_UID, desired_objects_of, example_with_changes};
use crate::hash::DESIRED_STATE_HASH_ANNOTATION;
use crate::objects::{DesiredObject, ObjectWriter, OwnedKind, without_ownership_marks};

const WORKER_CONFIG: &str = r#"{
  "cloud": "AzurePublicCloud",
  "tenantId": "64dc69e4-d083-49fc-9569-ebece1dd1408",
  "useManagedIdentityExtension": true,
  "useFederatedWorkloadIdentityExtension": false,
  "subscriptionId": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
  "aadClientId": "",
  "aadClientSecret": "",
  "aadClientCertPath": "",
  "aadFederatedTokenFile": "",
  "aadMSIDataPlaneIdentityPath": "",
  "resourceGroup": "harbour-harbour-7kq2m",
  "location": "westeurope",
  "vnetName": "harbour-harbour-7kq2m",
  "vnetResourceGroup": "harbour-vnet-harbour-7kq2m",
  "subnetName": "default",
  "securityGroupName": "harbour-harbour-7kq2m-nsg",
  "securityGroupResourceGroup": "harbour-nsg-harbour-7kq2m",
  "routeTableName": "",
  "cloudProviderBackoff": true,
  "cloudProviderBackoffDuration": 6,
  "useInstanceMetadata": true,
  "loadBalancerSku": "standard",
  "disableOutboundSNAT": true,
  "loadBalancerName": "harbour-7kq2m",
  "clusterServiceLoadBalancerHealthProbeMode": "shared"
}"#;

const CONTROLLER_MANAGER_CONFIG: &str = r#"{
  "cloud": "AzurePublicCloud",
  "tenantId": "64dc69e4-d083-49fc-9569-ebece1dd1408",
  "useManagedIdentityExtension": false,
  "useFederatedWorkloadIdentityExtension": false,
  "subscriptionId": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
  "aadClientId": "",
  "aadClientSecret": "",
  "aadClientCertPath": "",
  "aadFederatedTokenFile": "",
  "aadMSIDataPlaneIdentityPath": "/mnt/certs/harbour-cloud-provider",
  "resourceGroup": "harbour-harbour-7kq2m",
  "location": "westeurope",
  "vnetName": "harbour-harbour-7kq2m",
  "vnetResourceGroup": "harbour-vnet-harbour-7kq2m",
  "subnetName": "default",
  "securityGroupName": "harbour-harbour-7kq2m-nsg",
  "securityGroupResourceGroup": "harbour-nsg-harbour-7kq2m",
  "routeTableName": "",
  "cloudProviderBackoff": true,
  "cloudProviderBackoffDuration": 6,
  "useInstanceMetadata": false,
  "loadBalancerSku": "standard",
  "disableOutboundSNAT": true,
  "loadBalancerName": "harbour-7kq2m",
  "clusterServiceLoadBalancerHealthProbeMode": "shared"
}"#;

const DISK_CONFIG: &str = r#"{
  "cloud": "AzurePublicCloud",
  "tenantId": "64dc69e4-d083-49fc-9569-ebece1dd1408",
  "useManagedIdentityExtension": false,
  "useFederatedWorkloadIdentityExtension": false,
  "subscriptionId": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
  "aadClientId": "",
  "aadClientSecret": "",
  "aadClientCertPath": "",
  "aadFederatedTokenFile": "",
  "aadMSIDataPlaneIdentityPath": "/mnt/certs/harbour-disk",
  "resourceGroup": "harbour-harbour-7kq2m",
  "location": "westeurope",
  "vnetName": "harbour-harbour-7kq2m",
  "vnetResourceGroup": "harbour-vnet-harbour-7kq2m",
  "subnetName": "",
  "securityGroupName": "",
  "securityGroupResourceGroup": "",
  "routeTableName": "",
  "cloudProviderBackoff": false,
  "cloudProviderBackoffDuration": 0,
  "useInstanceMetadata": false,
  "loadBalancerSku": "",
  "disableOutboundSNAT": false,
  "loadBalancerName": "",
  "clusterServiceLoadBalancerHealthProbeMode": ""
}"#;

const FILE_CONFIG: &str = r#"{
  "cloud": "AzurePublicCloud",
  "tenantId": "64dc69e4-d083-49fc-9569-ebece1dd1408",
  "useManagedIdentityExtension": false,
  "useFederatedWorkloadIdentityExtension": false,
  "subscriptionId": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
  "aadClientId": "",
  "aadClientSecret": "",
  "aadClientCertPath": "",
  "aadFederatedTokenFile": "",
  "aadMSIDataPlaneIdentityPath": "/mnt/certs/harbour-file",
  "resourceGroup": "harbour-harbour-7kq2m",
  "location": "westeurope",
  "vnetName": "harbour-harbour-7kq2m",
  "vnetResourceGroup": "harbour-vnet-harbour-7kq2m",
  "subnetName": "",
  "securityGroupName": "",
  "securityGroupResourceGroup": "",
  "routeTableName": "",
  "cloudProviderBackoff": false,
  "cloudProviderBackoffDuration": 0,
  "useInstanceMetadata": false,
  "loadBalancerSku": "",
  "disableOutboundSNAT": false,
  "loadBalancerName": "",
  "clusterServiceLoadBalancerHealthProbeMode": ""
}"#;

const KMS_CONFIG: &str = r#"{
  "cloud": "AzurePublicCloud",
  "tenantId": "64dc69e4-d083-49fc-9569-ebece1dd1408",
  "useManagedIdentityExtension": false,
  "useWorkloadIdentityExtension": false,
  "subscriptionId": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
  "aadClientId": "",
  "aadClientCertPath": "",
  "aadMSIDataPlaneIdentityPath": "/mnt/certs/harbour-kms",
  "resourceGroup": "harbour-harbour-7kq2m",
  "location": "westeurope",
  "vnetName": "",
  "vnetResourceGroup": "",
  "subnetName": "",
  "securityGroupName": "",
  "securityGroupResourceGroup": "",
  "routeTableName": "",
  "cloudProviderBackoff": true,
  "cloudProviderBackoffDuration": 6,
  "useInstanceMetadata": false,
  "loadBalancerSku": "standard",
  "disableOutboundSNAT": true,
  "loadBalancerName": "harbour-7kq2m"
}"#;

const ENCRYPTION_CONFIG: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- providers:
  - kms:
      apiVersion: v2
      endpoint: unix:///opt/azurekmsactive.socket
      name: azure-61a57d42
      timeout: 35s
  - identity: {}
  resources:
  - secrets
  - configmaps
  - routes.route.openshift.io
  - oauthaccesstokens.oauth.openshift.io
  - oauthauthorizetokens.oauth.openshift.io
";

/// The name of a class, its hash, and the name and encoding of its vault secret.
type ExpectedClass = (&'static str, &'static str, &'static str, &'static str);

const CLASSES: [ExpectedClass; 9] = [
    (
        "managed-azure-cloud-provider",
        "a2f10e3ec83b23fd4bf787e59ef6ceecc23789def5af72ad80b28769ce546cf6",
        "harbour-cloud-provider",
        "utf-8",
    ),
    (
        "managed-azure-nodepool-management",
        "c57a01afd648c2466fb6e0c4ee74f9a93f9b16a42f5d8571206ece2b7c232648",
        "harbour-nodepool-mgmt",
        "utf-8",
    ),
    (
        "managed-azure-cpo",
        "f793156c7ff3871b657275aa9a0c6ebbd5d51300b627a450434faa09099dcfe9",
        "harbour-cpo",
        "base64",
    ),
    (
        "managed-azure-image-registry",
        "906fad42ca1ecf5850e0d672e5ff690c858d9f8452032cd0679bd7865b06d37e",
        "harbour-image-registry",
        "hex",
    ),
    (
        "managed-azure-ingress",
        "7b7c7743dc8de1d170bd140ee256e9d7bacbd4180a4a3b158e219827ce935708",
        "harbour-ingress",
        "base64",
    ),
    (
        "managed-azure-network",
        "f6336a7c5357085581d242da9536ecea77b522ddaa2fbe50e7618dc97df04e0c",
        "harbour-network",
        "utf-8",
    ),
    (
        "managed-azure-disk-csi",
        "09e749ace97dfa0dcc9cd43472f2b18210ccf783717792ea60c0acccc6281a47",
        "harbour-disk",
        "hex",
    ),
    (
        "managed-azure-file-csi",
        "15cc3d403e6bcd24e85daee37c1966b16863339bcb36579dc67098f017f26bb8",
        "harbour-file",
        "base64",
    ),
    (
        "managed-azure-kms",
        "adaf5c4685df42133deadd105a4a9aaba8b6a6425c4ddd0d9c0212c5bde258e0",
        "harbour-kms",
        "utf-8",
    ),
];

/// Kind, name and key of a configuration, its text, and the hash of the object.
type ExpectedConfig = (OwnedKind, &'static str, &'static str, &'static str, &'static str);

const CONFIGS: [ExpectedConfig; 6] = [
    (
        OwnedKind::ConfigMap,
        "azure-cloud-config",
        "cloud.conf",
        WORKER_CONFIG,
        "12374d40a01f6b178ed6abe124b74ff87dffc4072e95d7f2b5f405c858271e51",
    ),
    (
        OwnedKind::Secret,
        "azure-cloud-config",
        "cloud.conf",
        CONTROLLER_MANAGER_CONFIG,
        "7b2d2ef66797f082c1625fd766dca28f769758cadc10b5206cdabbdadb187629",
    ),
    (
        OwnedKind::Secret,
        "azure-disk-csi-config",
        "cloud.conf",
        DISK_CONFIG,
        "aa610796ecc8f6a31ca348eecacee98bc419cc5a54ba3f5f6a225873da702f0a",
    ),
    (
        OwnedKind::Secret,
        "azure-file-csi-config",
        "cloud.conf",
        FILE_CONFIG,
        "f9b7f4939ab52601a8ebcce83f6fba172e0fcebd18fe5d810987a70f2eb42ba8",
    ),
    (
        OwnedKind::Secret,
        "azure-kms-config",
        "cloud.conf",
        KMS_CONFIG,
        "ac7b047a1ed17d5ab21636f02c426e3070ef8237200eb162ccbe4339c26ee1bf",
    ),
    (
        OwnedKind::Secret,
        "kas-secret-encryption-config",
        "config.yaml",
        ENCRYPTION_CONFIG,
        "20f29a61fe3ac51555907c52437e5d2798ed698e29f6f9ae99014cccbb003ff1",
    ),
];

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "clusters-harbour",
        "ownerReferences": [{
            "apiVersion": "hypershift.openshift.io/v1beta1",
            "kind": "HostedControlPlane",
            "name": "harbour",
            "uid": OWNER_UID,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

/// Compares an object without lanyard's marks, and its hash.
fn assert_object(object: &DesiredObject, expected: &Value, hash: &str) {
    let mut found = without_ownership_marks(&object.value);
    let mut annotations = found["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
    let found_hash = annotations.as_object_mut().unwrap().remove(DESIRED_STATE_HASH_ANNOTATION);
    assert_eq!(annotations, json!({}), "{}", object.key);
    assert_eq!(found, *expected, "{}", object.key);
    assert_eq!(found_hash, Some(json!(hash)), "{}", object.key);
}

#[test]
fn the_nine_classes_are_those_of_the_reference() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let is_class = |it: &&DesiredObject| it.key.kind == OwnedKind::SecretProviderClass;
    for (name, hash, secret, encoding) in CLASSES {
        let entry = format!(
            "\narray:\n  - |\n    objectName: {secret}\n    objectEncoding: {encoding}\n    objectType: secret\n"
        );
        let expected = json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": metadata(name),
            "spec": {
                "provider": "azure",
                "parameters": {
                    "usePodIdentity": "false",
                    "useVMManagedIdentity": "true",
                    "userAssignedIdentityID": "7a1c0e94-3d52-4b8f-a6e7-90f4d2b5c831",
                    "keyvaultName": "harbour-identities",
                    "tenantId": "9d3f5b7a-1c24-4f8e-a6d0-53b8e2c7f914",
                    "objects": entry,
                },
            },
        });
        let mut classes = objects.iter().filter(is_class).filter(|it| it.key.name == name);
        // Of the KMS class, only one of the two writers sets the hash.
        let last = classes.next_back().unwrap();
        assert_object(last, &expected, hash);
        assert!(name != "managed-azure-kms" || last.writer == ObjectWriter::ControlPlane);
    }
    let count = objects.iter().filter(is_class).count();
    assert_eq!(count, CLASSES.len() + 1, "both writers apply the KMS class");
}

#[test]
fn the_configurations_are_those_of_the_reference() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    for (kind, name, key, text, hash) in CONFIGS {
        let object = find_object(&objects, kind, name);
        let value = match kind {
            OwnedKind::Secret => json!(ByteString(text.as_bytes().to_vec())),
            _ => json!(text),
        };
        let mut expected = json!({
            "apiVersion": "v1",
            "kind": kind.info().kind,
            "metadata": metadata(name),
            "data": {(key): value},
        });
        if name == "kas-secret-encryption-config" {
            expected["type"] = json!("Opaque");
        }
        assert_object(object, &expected, hash);
    }
}

#[test]
fn the_objects_of_cluster_api_are_those_of_the_reference() {
    let objects = desired_objects_of(&example_with_changes(&[]));
    let spec = |kind| find_object(&objects, kind, "harbour").value["spec"].clone();
    assert_eq!(
        spec(OwnedKind::AzureClusterIdentity),
        json!({
            "type": "UserAssignedIdentityCredential",
            "tenantID": "64dc69e4-d083-49fc-9569-ebece1dd1408",
            "clientID": "",
            "userAssignedIdentityCredentialsPath": "/mnt/certs/harbour-nodepool-mgmt",
            "userAssignedIdentityCredentialsCloudType": "public",
            "allowedNamespaces": {"list": ["clusters-harbour"]},
        })
    );
    let vnet = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/harbour-vnet-harbour-7kq2m/providers/Microsoft.Network/virtualNetworks/harbour-harbour-7kq2m";
    assert_eq!(
        spec(OwnedKind::AzureCluster),
        json!({
            "location": "westeurope",
            "resourceGroup": "harbour-harbour-7kq2m",
            "subscriptionID": "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40",
            "networkSpec": {
                "vnet": {
                    "id": vnet,
                    "name": "harbour-harbour-7kq2m",
                    "resourceGroup": "harbour-vnet-harbour-7kq2m",
                },
                "nodeOutboundLB": {
                    "name": "harbour-7kq2m",
                    "backendPool": {"name": "harbour-7kq2m"},
                },
            },
            "identityRef": {"name": "harbour", "namespace": "clusters-harbour"},
        })
    );
    let cluster = &find_object(&objects, OwnedKind::AzureCluster, "harbour").value;
    assert_eq!(cluster["apiVersion"], "infrastructure.cluster.x-k8s.io/v1beta1");
    assert_eq!(cluster["metadata"]["annotations"]["cluster.x-k8s.io/managed-by"], "external");
}
