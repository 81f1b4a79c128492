//! The seed plan: the initial Azure state as plain data.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use lanyard_emulator_state::certificate_bundle::CredentialBundleFormat;
use lanyard_emulator_state::imds_node::is_valid_node_name;
use lanyard_emulator_state::seed_plan_fingerprint::SeedPlanFingerprint;
use lanyard_vocabulary::{
    ArmResourceId, Cloud, Component, EntraClientId, EntraTenantId, InfraId, ObjectEncoding,
    SecretName, SubscriptionId, VaultName,
};
use serde::{Deserialize, Serialize};

use super::seed_error::{SeedError, SeedPlanProblem};
use crate::fault_plan::FaultPlan;

/// The initial Azure state: the Azure side of one hosted cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedPlan {
    /// The tenant of the components' identities.
    pub tenant: EntraTenantId,
    /// The subscription of all resources, except network resources whose ids name another one.
    pub subscription: SubscriptionId,
    pub cloud: Cloud,
    /// The region, such as `eastus`.
    pub location: String,
    /// The name of the resource group with virtual machines and disks.
    pub managed_resource_group: String,
    /// The virtual network.
    pub vnet_id: ArmResourceId,
    /// The subnet of the virtual machines.
    pub subnet_id: ArmResourceId,
    /// The network security group of the virtual machines.
    pub security_group_id: ArmResourceId,
    /// The public DNS zone: the base domain of the cluster.
    pub dns_zone: DnsZonePlan,
    /// The infrastructure id of the cluster.
    pub infra_id: InfraId,
    /// The vault with the components' credentials.
    pub vault: VaultPlan,
    /// The vault key that encrypts the Secrets of the hosted cluster.
    #[serde(default)]
    pub kms_key: Option<KmsKeyPlan>,
    /// The client id of the identity with which the node reads the vault.
    pub vault_reader_client_id: EntraClientId,
    /// Further nodes of the metadata service. The first node has the identity that reads the vault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodePlan>,
    /// The identities of the components. Entries with the same secret or client id are one identity.
    pub identities: Vec<IdentityPlan>,
    /// The faults to apply to the new state.
    #[serde(default)]
    pub drills: Vec<FaultPlan>,
    /// Whether to add principals and a vault for test clients.
    #[serde(default, rename = "testClients")]
    pub test_clients: bool,
    /// The Microsoft Graph permissions of the test client with a client secret.
    #[serde(default)]
    pub directory_access: DirectoryAccess,
}

/// The application permissions of Microsoft Graph that a test client has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryAccess {
    /// No permission: every request to Microsoft Graph returns 403.
    None,
    /// `Directory.Read.All`.
    Read,
    /// Also the permissions to change applications, users and groups, and to grant permissions.
    #[default]
    Full,
}

/// A public DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsZonePlan {
    /// The domain name of the zone.
    pub name: String,
    /// The name of the zone's resource group.
    pub resource_group: String,
}

/// The vault with the components' credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultPlan {
    pub name: VaultName,
    /// The tenant whose tokens the vault accepts: that of the platform, not that of the cluster.
    pub tenant: EntraTenantId,
}

/// A vault key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KmsKeyPlan {
    pub vault: VaultName,
    pub name: SecretName,
    /// The version, 32 hexadecimal digits. Without it, the version gets a new id.
    #[serde(default)]
    pub version: Option<String>,
}

/// A node of the metadata service, with its own identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// The name, by which clients select the node: lower-case letters, digits and `-`.
    pub name: String,
    /// The client ids of user-assigned identities.
    #[serde(default)]
    pub identities: Vec<EntraClientId>,
    /// The IP addresses from which requests of the node come.
    #[serde(default)]
    pub client_addresses: Vec<IpAddr>,
}

/// The identity of a component, and the form of its stored credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityPlan {
    #[serde(with = "lanyard_emulator_state::component_name")]
    pub component: Component,
    /// The client id. Without it, the identity gets a new one.
    #[serde(default)]
    pub client_id: Option<EntraClientId>,
    /// The name of the vault secret.
    pub secret_name: SecretName,
    /// The encoding of the credential document in the secret.
    pub encoding: ObjectEncoding,
    /// The format of `client_secret` in the document.
    pub bundle: CredentialBundleFormat,
}

impl SeedPlan {
    /// Returns all problems of the plan; empty for a valid plan.
    ///
    /// Unusual plans are valid: network resources in another subscription, a subnet outside of the virtual
    /// network, one identity for several components.
    pub fn validation_problems(&self) -> Vec<SeedPlanProblem> {
        let mut problems = Vec::new();
        let mut add = |field: String, problem: &str| {
            problems.push(SeedPlanProblem { field, problem: problem.to_owned() });
        };
        if self.cloud.endpoints().is_none() {
            add("cloud".to_owned(), "Azure Stack has no fixed endpoints");
        }
        let networks = [
            ("vnetId", &self.vnet_id, "Microsoft.Network/virtualNetworks"),
            ("subnetId", &self.subnet_id, "Microsoft.Network/virtualNetworks/subnets"),
            ("securityGroupId", &self.security_group_id, "Microsoft.Network/networkSecurityGroups"),
        ];
        for (field, id, expected) in networks {
            if !id.has_type(expected) || id.resource_group().is_none() {
                add(field.to_owned(), &format!("the id is not of a `{expected}`"));
            }
        }
        if self.test_clients
            && self.test_client_vault_name().is_none_or(|name| self.has_vault(&name))
        {
            add("infraId".to_owned(), "it gives the vault of the test clients no name of its own");
        }
        self.check_identities(&mut add);
        self.check_nodes(&mut add);
        for (at, fault) in self.drills.iter().enumerate() {
            if !self.identities.iter().any(|identity| identity.component == fault.component) {
                add(
                    format!("drills[{at}].component"),
                    "the plan has no identity for the component",
                );
            }
        }
        problems
    }

    /// The fingerprint that identifies a saved state of this plan: SHA-256 of its JSON.
    pub(crate) fn fingerprint(&self) -> Result<SeedPlanFingerprint, SeedError> {
        let json = serde_json::to_vec(self).map_err(SeedError::PlanFingerprint)?;
        Ok(SeedPlanFingerprint::of_json(&json))
    }

    /// Checks that each secret holds one credential in one encoding.
    fn check_identities(&self, add: &mut impl FnMut(String, &str)) {
        let mut components = HashSet::new();
        let mut first_with: HashMap<String, &IdentityPlan> = HashMap::new();
        for (at, identity) in self.identities.iter().enumerate() {
            if !components.insert(identity.component) {
                add(format!("identities[{at}].component"), "the component comes twice");
            }
            let first = *first_with.entry(identity.secret_name_key()).or_insert(identity);
            if identity.client_id.is_some() && identity.client_id != self.client_id_of(first) {
                add(
                    format!("identities[{at}].secretName"),
                    "another client id has its credential in this secret",
                );
            }
            if identity.encoding != first.encoding {
                add(
                    format!("identities[{at}].encoding"),
                    "another component reads this secret in another encoding",
                );
            }
            if identity.client_id == Some(self.vault_reader_client_id) {
                add(format!("identities[{at}].clientId"), "the reader of the vault has it");
            }
        }
    }

    /// Checks that clients can select each node.
    fn check_nodes(&self, add: &mut impl FnMut(String, &str)) {
        let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
        for (at, node) in self.nodes.iter().enumerate() {
            if !is_valid_node_name(&node.name) {
                add(
                    format!("nodes[{at}].name"),
                    "it is not 1 to 63 lower-case letters, digits and `-`",
                );
            }
            if !names.insert(&node.name) {
                add(format!("nodes[{at}].name"), "the name comes twice");
            }
            if node.client_addresses.iter().any(|address| !addresses.insert(address)) {
                add(format!("nodes[{at}].clientAddresses"), "an address comes twice");
            }
        }
    }

    /// Returns the client id in the plan for an identity, from its own entry or from another entry
    /// with the same secret. `None` if the identity needs a new client id.
    pub(super) fn client_id_of(&self, identity: &IdentityPlan) -> Option<EntraClientId> {
        let key = identity.secret_name_key();
        identity.client_id.or_else(|| {
            let mut twins = self.identities.iter().filter(|other| other.secret_name_key() == key);
            twins.find_map(|twin| twin.client_id)
        })
    }

    /// Returns the name of the test clients' vault: `test-` and the end of the infrastructure id,
    /// which makes it unique. `None` if that is not a valid name of a vault.
    pub(super) fn test_client_vault_name(&self) -> Option<VaultName> {
        let infra_id = self.infra_id.as_str().to_ascii_lowercase();
        let parts: Vec<_> = infra_id.split(['-', '.']).filter(|part| !part.is_empty()).collect();
        let joined = parts.join("-");
        let end = joined.get(joined.len().saturating_sub(17)..)?.trim_start_matches('-');
        format!("test-{end}").trim_end_matches('-').parse().ok()
    }

    fn has_vault(&self, name: &VaultName) -> bool {
        let kms = self.kms_key.as_ref().map(|key| &key.vault);
        [Some(&self.vault.name), kms]
            .into_iter()
            .flatten()
            .any(|known| known.as_str().eq_ignore_ascii_case(name.as_str()))
    }
}

impl IdentityPlan {
    /// Returns the secret name for comparisons: a vault ignores the case of names.
    pub(super) fn secret_name_key(&self) -> String {
        self.secret_name.as_str().to_ascii_lowercase()
    }
}
