//! Managed clusters (AKS).

use std::collections::BTreeMap;

use lanyard_vocabulary::{ArmResourceId, EntraClientId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::arm_body::{ArmBody, ResourceTags};

/// A managed cluster.
///
/// Only for a new cluster: a PUT resets what its body omits, so a change of a live cluster starts from the body
/// of its GET.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedClusterBody {
    /// The region.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The identity of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ManagedClusterIdentity>,
    /// The settings.
    pub properties: ManagedClusterProperties,
}

/// The identity of the control plane of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterIdentity {
    /// `UserAssigned` or `SystemAssigned`.
    #[serde(rename = "type")]
    pub identity_type: String,
    /// The ids of the user-assigned identities. Azure completes their empty values.
    #[serde(default)]
    pub user_assigned_identities: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}

/// The properties of a [`ManagedClusterBody`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterProperties {
    /// The first label of the cluster's host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_prefix: Option<String>,
    /// The pools of nodes.
    pub agent_pool_profiles: Vec<AgentPoolProfile>,
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_profile: Option<ClusterNetworkProfile>,
    /// The add-ons by name.
    pub addon_profiles: BTreeMap<String, ClusterAddOn>,
    /// The identities by purpose; `kubeletidentity` is that of the kubelets.
    pub identity_profile: BTreeMap<String, ClusterIdentityReference>,
    /// The issuer of service account tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_issuer_profile: Option<ClusterOidcIssuer>,
    /// Workload identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_profile: Option<ClusterSecurityProfile>,
    /// The settings of the cluster autoscaler. All values are texts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auto_scaler_profile: BTreeMap<String, String>,
    /// The accounts of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux_profile: Option<ClusterLinuxProfile>,
    /// `Succeeded` if no operation runs; Azure sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_state: Option<String>,
    /// Whether the cluster is stopped; Azure sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<ClusterPowerState>,
}

/// A pool of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPoolProfile {
    /// The name.
    pub name: String,
    /// The number of nodes.
    pub count: u32,
    /// The size of the virtual machines, for example `Standard_D4s_v4`.
    pub vm_size: String,
    /// `AzureLinux` or `Ubuntu`.
    #[serde(rename = "osSKU")]
    pub os_sku: String,
    /// The maximum number of pods of a node.
    pub max_pods: u32,
    /// Whether the nodes use cryptography that FIPS 140 allows.
    #[serde(rename = "enableFIPS", default)]
    pub enable_fips: bool,
    /// `System` or `User`. A cluster has at least one system pool.
    pub mode: String,
    /// Whether the autoscaler changes the number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_auto_scaling: Option<bool>,
    /// The smallest number of nodes with the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u32>,
    /// The largest number of nodes with the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// The subnet; absent for a network that AKS creates.
    #[serde(rename = "vnetSubnetID", default, skip_serializing_if = "Option::is_none")]
    pub vnet_subnet_id: Option<ArmResourceId>,
}

/// The network of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkProfile {
    /// `azure`.
    pub network_plugin: String,
    /// `azure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<String>,
    /// `standard`.
    pub load_balancer_sku: String,
}

/// An add-on of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterAddOn {
    /// Whether the add-on is installed.
    pub enabled: bool,
    /// Its settings. All values are texts.
    #[serde(default)]
    pub config: Option<BTreeMap<String, String>>,
    /// Its identity; Azure sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<ClusterIdentityReference>,
}

/// A user-assigned identity that a cluster uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentityReference {
    /// The id of the identity.
    pub resource_id: ArmResourceId,
    /// The client id.
    pub client_id: EntraClientId,
    /// The object id of the service principal.
    pub object_id: Uuid,
}

/// The issuer of service account tokens of a cluster. It cannot be disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOidcIssuer {
    /// Whether the cluster has a public issuer.
    #[serde(default)]
    pub enabled: bool,
    /// The URL of the issuer, with a trailing slash; Azure sets it.
    #[serde(rename = "issuerURL", default, skip_serializing_if = "Option::is_none")]
    pub issuer_url: Option<String>,
}

/// The security settings of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSecurityProfile {
    /// The webhook of workload identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<ClusterFeature>,
}

/// A feature that can be enabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFeature {
    /// Whether the feature is enabled.
    pub enabled: bool,
}

/// The accounts of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLinuxProfile {
    /// The name of the account.
    pub admin_username: String,
    /// Its keys.
    pub ssh: ClusterSshKeys,
}

/// The SSH keys of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSshKeys {
    /// The public keys; exactly one.
    pub public_keys: Vec<ClusterSshKey>,
}

/// A public SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSshKey {
    /// The key in the format of `authorized_keys`.
    pub key_data: String,
}

/// Whether a cluster is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPowerState {
    /// `Running` or `Stopped`.
    pub code: String,
}

/// The name of the add-on that mounts secrets of vaults.
pub const SECRETS_PROVIDER_ADD_ON: &str = "azureKeyvaultSecretsProvider";

impl ArmBody for ManagedClusterBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.ContainerService/managedClusters";
    const API_VERSION: &'static str = "2025-10-01";
}

impl ManagedClusterBody {
    /// A cluster with one pool, the Secrets Store add-on with rotation, an OIDC issuer and workload identity.
    ///
    /// The control plane's identity needs the role Managed Identity Operator on that of the kubelets before
    /// the PUT.
    pub fn new(
        location: impl Into<String>,
        tags: ResourceTags,
        dns_prefix: impl Into<String>,
        identity: &ArmResourceId,
        kubelet: ClusterIdentityReference,
        pool: AgentPoolProfile,
    ) -> Self {
        let identity = ManagedClusterIdentity {
            identity_type: "UserAssigned".to_owned(),
            user_assigned_identities: BTreeMap::from([(
                identity.to_string(),
                serde_json::Map::new(),
            )]),
        };
        let rotation = [("enableSecretRotation", "true"), ("rotationPollInterval", "1m")];
        let rotation = rotation.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let add_on = ClusterAddOn { enabled: true, config: Some(rotation.into()), identity: None };
        let workload_identity = Some(ClusterFeature { enabled: true });
        let properties = ManagedClusterProperties {
            dns_prefix: Some(dns_prefix.into()),
            agent_pool_profiles: vec![pool],
            network_profile: Some(ClusterNetworkProfile {
                network_plugin: "azure".to_owned(),
                network_policy: Some("azure".to_owned()),
                load_balancer_sku: "standard".to_owned(),
            }),
            addon_profiles: BTreeMap::from([(SECRETS_PROVIDER_ADD_ON.to_owned(), add_on)]),
            identity_profile: BTreeMap::from([("kubeletidentity".to_owned(), kubelet)]),
            oidc_issuer_profile: Some(ClusterOidcIssuer { enabled: true, issuer_url: None }),
            security_profile: Some(ClusterSecurityProfile { workload_identity }),
            ..ManagedClusterProperties::default()
        };
        Self { location: location.into(), tags, identity: Some(identity), properties }
    }
}

impl AgentPoolProfile {
    /// A system pool of Azure Linux nodes with FIPS cryptography.
    pub fn system(name: impl Into<String>, vm_size: impl Into<String>, count: u32) -> Self {
        Self {
            name: name.into(),
            count,
            vm_size: vm_size.into(),
            os_sku: "AzureLinux".to_owned(),
            max_pods: 250,
            enable_fips: true,
            mode: "System".to_owned(),
            enable_auto_scaling: None,
            min_count: None,
            max_count: None,
            vnet_subnet_id: None,
        }
    }

    /// The same pool with the autoscaler between two numbers of nodes.
    #[must_use]
    pub fn with_autoscaler(self, min_count: u32, max_count: u32) -> Self {
        let (min_count, max_count) = (Some(min_count), Some(max_count));
        Self { enable_auto_scaling: Some(true), min_count, max_count, ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn cluster_has_this_json() {
        let identity = resource_id("Microsoft.ManagedIdentity/userAssignedIdentities/aks");
        let kubelet = ClusterIdentityReference {
            resource_id: resource_id("Microsoft.ManagedIdentity/userAssignedIdentities/kubelet"),
            client_id: EntraClientId::from(Uuid::from_u128(1)),
            object_id: Uuid::from_u128(2),
        };
        let pool =
            AgentPoolProfile::system("nodepool1", "Standard_D4s_v4", 3).with_autoscaler(3, 6);
        let cluster = ManagedClusterBody::new(
            "westeurope",
            ResourceTags::new(),
            "p",
            &identity,
            kubelet.clone(),
            pool,
        );
        assert_body(
            &cluster,
            json!({
                "location": "westeurope",
                "tags": {},
                "identity": {
                    "type": "UserAssigned",
                    "userAssignedIdentities": { identity.as_str(): {} },
                },
                "properties": {
                    "dnsPrefix": "p",
                    "agentPoolProfiles": [{
                        "name": "nodepool1",
                        "count": 3,
                        "vmSize": "Standard_D4s_v4",
                        "osSKU": "AzureLinux",
                        "maxPods": 250,
                        "enableFIPS": true,
                        "mode": "System",
                        "enableAutoScaling": true,
                        "minCount": 3,
                        "maxCount": 6,
                    }],
                    "networkProfile": {
                        "networkPlugin": "azure",
                        "networkPolicy": "azure",
                        "loadBalancerSku": "standard",
                    },
                    "addonProfiles": { "azureKeyvaultSecretsProvider": {
                        "enabled": true,
                        "config": { "enableSecretRotation": "true", "rotationPollInterval": "1m" },
                    } },
                    "identityProfile": { "kubeletidentity": {
                        "resourceId": kubelet.resource_id,
                        "clientId": kubelet.client_id,
                        "objectId": kubelet.object_id,
                    } },
                    "oidcIssuerProfile": { "enabled": true },
                    "securityProfile": { "workloadIdentity": { "enabled": true } },
                },
            }),
        );
    }

    #[test]
    fn live_cluster_can_be_read() {
        let live: ManagedClusterBody = serde_json::from_value(json!({
            "location": "westeurope",
            "properties": {
                "provisioningState": "Succeeded",
                "powerState": { "code": "Running" },
                "addonProfiles": { "azurepolicy": { "enabled": false, "config": null } },
                "oidcIssuerProfile": { "enabled": true, "issuerURL": "https://oidc.example/" },
                "securityProfile": {},
            },
        }))
        .unwrap();
        let issuer = live.properties.oidc_issuer_profile.unwrap();
        assert_eq!(issuer.issuer_url.as_deref(), Some("https://oidc.example/"));
    }
}
