//! What a world shall contain, as plain data.

use std::collections::HashSet;

use lanyard_vocabulary::{
    ArmResourceId, ClientId, Cloud, Component, InfraId, ObjectEncoding, SecretName, SubscriptionId,
    TenantId, VaultName,
};
use serde::{Deserialize, Serialize};

use crate::drill::Drill;

/// What a world shall contain: the Azure side of one hosted cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorldPlan {
    /// The tenant of the components' identities.
    pub tenant: TenantId,
    /// The subscription of everything.
    pub subscription: SubscriptionId,
    /// The cloud.
    pub cloud: Cloud,
    /// The region, such as `eastus`.
    pub location: String,
    /// The name of the resource group of machines and disks.
    pub managed_resource_group: String,
    /// The virtual network.
    pub vnet_id: ArmResourceId,
    /// The subnet of the machines.
    pub subnet_id: ArmResourceId,
    /// The network security group of the machines.
    pub security_group_id: ArmResourceId,
    /// The public DNS zone: the base domain of the cluster.
    pub dns_zone: DnsZonePlan,
    /// The infrastructure id of the cluster.
    pub infra_id: InfraId,
    /// The vault with the credentials.
    pub vault: VaultPlan,
    /// The key that encrypts the cluster's secrets.
    #[serde(default)]
    pub kms_key: Option<KmsKeyPlan>,
    /// The identity of the node that reads the vault.
    pub vault_reader_client_id: ClientId,
    /// The identities of the components.
    pub identities: Vec<IdentityPlan>,
    /// What shall be broken.
    #[serde(default)]
    pub drills: Vec<Drill>,
    /// Whether to add principals and vault objects for other people's clients.
    #[serde(default)]
    pub guests: bool,
}

/// A public DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsZonePlan {
    /// The domain.
    pub name: String,
    /// The name of its resource group.
    pub resource_group: String,
}

/// The vault with the credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VaultPlan {
    /// The name.
    pub name: VaultName,
    /// The tenant whose tokens it accepts: that of the platform, not of the cluster.
    pub tenant: TenantId,
}

/// A vault key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KmsKeyPlan {
    /// The vault.
    pub vault: VaultName,
    /// The name.
    pub name: SecretName,
    /// The version, 32 hexadecimal digits; a new one if absent.
    #[serde(default)]
    pub version: Option<String>,
}

/// The identity of a component, and how its credential is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityPlan {
    /// The component.
    #[serde(with = "component_name")]
    pub component: Component,
    /// The client id; a new one if absent.
    #[serde(default)]
    pub client_id: Option<ClientId>,
    /// The name of the vault secret.
    pub secret_name: SecretName,
    /// How the credential document is encoded in the secret.
    pub encoding: ObjectEncoding,
    /// What `client_secret` of the document holds.
    pub bundle: Bundle,
}

/// A form of certificate and key, base64 of which is the `client_secret` of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bundle {
    /// PKCS#8 key and certificates as PEM.
    #[default]
    Pem,
    /// PKCS#12 with 3DES and a SHA-1 MAC, empty password: all that Go's `x/crypto/pkcs12` reads.
    LegacyPkcs12,
    /// PKCS#12 with AES-256 and a SHA-256 MAC, empty password: what OpenSSL 3 writes.
    ModernPkcs12,
}

/// Something in a plan that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {problem}")]
pub struct PlanProblem {
    /// The path of the field, such as `identities[2].secretName`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl WorldPlan {
    /// Everything in the plan that cannot be made; empty for a good plan.
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut problems = Vec::new();
        let mut add = |field: String, problem: &str| {
            problems.push(PlanProblem { field, problem: problem.to_owned() });
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
            let found = id.resource_type().unwrap_or_default();
            if !found.eq_ignore_ascii_case(expected) || id.resource_group().is_none() {
                add(field.to_owned(), &format!("the id is not of a `{expected}`"));
            } else if !id.subscription().eq_ignore_ascii_case(self.subscription.as_str()) {
                add(field.to_owned(), "the id is in another subscription");
            }
        }
        if !self.vnet_id.contains(&self.subnet_id) {
            add("subnetId".to_owned(), "the subnet is not in the virtual network");
        }
        if self.guests && self.tenant != self.vault.tenant {
            add("guests".to_owned(), "guests need one tenant for the subscription and the vault");
        }
        let (mut components, mut secrets, mut clients) =
            (HashSet::new(), HashSet::new(), HashSet::new());
        clients.insert(self.vault_reader_client_id);
        for (at, identity) in self.identities.iter().enumerate() {
            if !components.insert(identity.component) {
                add(format!("identities[{at}].component"), "the component comes twice");
            }
            if !secrets.insert(identity.secret_name.as_str().to_ascii_lowercase()) {
                add(format!("identities[{at}].secretName"), "another identity has this secret");
            }
            if identity.client_id.is_some_and(|client| !clients.insert(client)) {
                add(format!("identities[{at}].clientId"), "another identity has this client id");
            }
        }
        for (at, drill) in self.drills.iter().enumerate() {
            if !components.contains(&drill.component) {
                add(
                    format!("drills[{at}].component"),
                    "the plan has no identity for the component",
                );
            }
        }
        problems
    }
}

/// Components by their field in the HostedCluster API.
pub(crate) mod component_name {
    use lanyard_vocabulary::Component;
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(crate) fn serialize<S: Serializer>(
        component: &Component,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(component.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Component, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
