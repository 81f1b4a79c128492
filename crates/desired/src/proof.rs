//! Two read-only requests for every component: one that its role grants and one that its role
//! denies.
//!
//! The canary sends them to prove the last hops of the flow. Azure authorizes a request before it
//! looks the object up, so a granted request for a missing object returns 404 and still proves the
//! permission. No request depends on an object that the HostedCluster does not name.
//!
//! The denied request asks for a permission that the role has in no scope, and never relies on a
//! missing role assignment in some resource group. It therefore stays denied in a cluster that uses
//! one resource group for everything.
//!
//! Source: the permissions of Azure's built-in roles. A GET of a resource type needs `<type>/read`.

use std::collections::BTreeMap;

use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{ArmResourceId, Component, SecretName, VaultName};
use serde::Serialize;

use crate::hosted_cluster::ValidatedHostedCluster;

#[cfg(test)]
mod tests;

/// The granted and the denied request of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofCalls {
    /// The request that Azure must grant.
    pub granted: ProofCall,
    /// The request that Azure must deny.
    pub refused: ProofCall,
}

/// A GET request with the identity of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofCall {
    /// The service and the path of the request.
    pub target: ProofTarget,
    /// The query parameter `api-version`.
    pub api_version: &'static str,
    /// The permission that the request needs.
    pub permission: &'static str,
    /// The expected response.
    pub expected: ExpectedAuthorization,
}

impl ProofCall {
    /// Returns the URL of the request, including `api-version`, in the cloud with these endpoints.
    pub fn url(&self, endpoints: &CloudEndpoints) -> String {
        let address = match &self.target {
            ProofTarget::Arm { path } => format!("{}{path}", endpoints.arm_url()),
            ProofTarget::Vault { vault, object } => {
                format!("https://{vault}.{}{}", endpoints.vault_suffix, object.path())
            }
        };
        format!("{address}?api-version={}", self.api_version)
    }

    /// Returns the request in the format of `lanyard canary --call`: `GET https://…`.
    pub fn request_line(&self, endpoints: &CloudEndpoints) -> String {
        format!("GET {}", self.url(endpoints))
    }

    /// See [`ExpectedAuthorization::is_met_by`].
    pub fn is_met_by(&self, status: u16, code: &str) -> bool {
        self.expected.is_met_by(status, code)
    }
}

/// The service and the path of a proof call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofTarget {
    /// Azure Resource Manager.
    Arm {
        /// The path of the URL, from `/subscriptions`.
        path: String,
    },
    /// The data plane of a vault.
    Vault {
        /// The name of the vault.
        vault: VaultName,
        /// The object in the vault.
        object: ProofVaultObject,
    },
}

/// An object in a vault that a proof call reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofVaultObject {
    Secret(SecretName),
    Key(SecretName),
}

impl ProofVaultObject {
    /// Returns the path of the URL.
    pub fn path(&self) -> String {
        match self {
            Self::Secret(name) => format!("/secrets/{name}"),
            Self::Key(name) => format!("/keys/{name}"),
        }
    }
}

/// The expected authorization result of a proof call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpectedAuthorization {
    /// 200, 404 for a missing object, or 403 for a key that is disabled, expired or not yet valid.
    Granted,
    /// 403: `AuthorizationFailed` from Azure Resource Manager, `ForbiddenByRbac` from a vault.
    Refused,
}

impl ExpectedAuthorization {
    /// Returns whether a response with this status and error code meets the expectation. For a
    /// vault, `code` is the inner error code.
    ///
    /// Not every 404 proves the permission: Azure Resource Manager reports an unknown subscription
    /// before it authorizes the request.
    pub fn is_met_by(self, status: u16, code: &str) -> bool {
        const ABSENT: [&str; 4] =
            ["ResourceNotFound", "ResourceGroupNotFound", "SecretNotFound", "KeyNotFound"];
        // Not every 403 denies the permission: a vault checks the state of the key after it
        // authorized the identity.
        const UNUSABLE: [&str; 3] = ["KeyDisabled", "KeyExpired", "KeyNotYetValid"];
        const REFUSED: [&str; 2] = ["AuthorizationFailed", "ForbiddenByRbac"];
        match self {
            Self::Granted => {
                (200..300).contains(&status)
                    || (status == 404 && ABSENT.contains(&code))
                    || (status == 403 && UNUSABLE.contains(&code))
            }
            Self::Refused => status == 403 && REFUSED.contains(&code),
        }
    }
}

/// The resource that a proof call requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProofResource {
    Vnet,
    Subnet,
    SecurityGroup,
    VirtualMachines,
    Disks,
    NetworkInterfaces,
    LoadBalancer,
    StorageAccounts,
    /// A record of the cluster's private DNS zone; requires a base domain.
    PrivateRecord,
    /// The active encryption key, in its own vault.
    EncryptionKey,
    /// A secret in the vault of the encryption key.
    EncryptionVaultSecret,
}

/// For each component, a resource that its role grants and one that its role grants in no scope.
///
/// The HostedCluster does not contain the name of the image registry's storage account, so that row
/// lists the accounts of the resource group.
const PROOF_RESOURCES: [(Component, ProofResource, ProofResource); 9] = [
    (Component::CloudProvider, ProofResource::LoadBalancer, ProofResource::Vnet),
    (Component::NodePoolManagement, ProofResource::VirtualMachines, ProofResource::SecurityGroup),
    (Component::ControlPlaneOperator, ProofResource::Vnet, ProofResource::Subnet),
    (Component::ImageRegistry, ProofResource::StorageAccounts, ProofResource::Disks),
    (Component::Ingress, ProofResource::Subnet, ProofResource::PrivateRecord),
    (Component::Network, ProofResource::Vnet, ProofResource::Subnet),
    (Component::Disk, ProofResource::Disks, ProofResource::NetworkInterfaces),
    (Component::File, ProofResource::StorageAccounts, ProofResource::SecurityGroup),
    (Component::Kms, ProofResource::EncryptionKey, ProofResource::EncryptionVaultSecret),
];

const NETWORK_API_VERSION: &str = "2023-11-01";
const VIRTUAL_MACHINES_API_VERSION: &str = "2024-03-01";
const DISKS_API_VERSION: &str = "2023-10-02";
const STORAGE_API_VERSION: &str = "2024-01-01";
const PRIVATE_DNS_API_VERSION: &str = "2024-06-01";
const VAULT_API_VERSION: &str = "7.4";
const READ_SECRET_PERMISSION: &str = "Microsoft.KeyVault/vaults/secrets/getSecret/action";

/// Returns the proof calls of every component that the cluster runs.
pub fn desired_proof_calls(cluster: &ValidatedHostedCluster) -> BTreeMap<Component, ProofCalls> {
    let rows =
        PROOF_RESOURCES.iter().filter(|(component, ..)| cluster.identities.contains_key(component));
    rows.filter_map(|(component, granted, refused)| {
        let granted = proof_call(cluster, *granted, ExpectedAuthorization::Granted)?;
        let refused = proof_call(cluster, *refused, ExpectedAuthorization::Refused)
            .or_else(|| other_component_secret_call(cluster, *component))?;
        Some((*component, ProofCalls { granted, refused }))
    })
    .collect()
}

/// Returns the granted request of a component, if the cluster runs the component and such a request
/// exists.
pub fn granted_proof_call(
    cluster: &ValidatedHostedCluster,
    component: Component,
) -> Option<ProofCall> {
    let (_, granted, _) = PROOF_RESOURCES.iter().find(|(known, ..)| *known == component)?;
    cluster.identities.get(&component)?;
    proof_call(cluster, *granted, ExpectedAuthorization::Granted)
}

/// Returns a request that is denied for every role in every cluster: reading another component's
/// credential.
pub fn other_component_secret_call(
    cluster: &ValidatedHostedCluster,
    component: Component,
) -> Option<ProofCall> {
    let own = &cluster.identities.get(&component)?.secret_name;
    let mut others = cluster.running_components().map(|(_, identity)| &identity.secret_name);
    let secret = others.find(|name| !name.as_str().eq_ignore_ascii_case(own.as_str()))?;
    Some(ProofCall {
        target: ProofTarget::Vault {
            vault: cluster.vault.name.clone(),
            object: ProofVaultObject::Secret(secret.clone()),
        },
        api_version: VAULT_API_VERSION,
        permission: READ_SECRET_PERMISSION,
        expected: ExpectedAuthorization::Refused,
    })
}

fn proof_call(
    cluster: &ValidatedHostedCluster,
    subject: ProofResource,
    expected: ExpectedAuthorization,
) -> Option<ProofCall> {
    let managed = cluster.managed_resource_group();
    let azure = &cluster.azure;
    let of_group = |kind: &str| ProofTarget::Arm { path: format!("{managed}/providers/{kind}") };
    let of_id = |id: &ArmResourceId| ProofTarget::Arm { path: id.to_string() };
    let (target, api_version, permission) = match subject {
        ProofResource::Vnet => {
            let vnet = azure.vnet.as_ref()?;
            (of_id(vnet), NETWORK_API_VERSION, "Microsoft.Network/virtualNetworks/read")
        }
        ProofResource::Subnet => (
            of_id(&azure.subnet),
            NETWORK_API_VERSION,
            "Microsoft.Network/virtualNetworks/subnets/read",
        ),
        ProofResource::SecurityGroup => {
            let permission = "Microsoft.Network/networkSecurityGroups/read";
            (of_id(azure.security_group.as_ref()?), NETWORK_API_VERSION, permission)
        }
        ProofResource::LoadBalancer => {
            let name = cluster.infra_id.as_str();
            let id = managed.provider_resource("Microsoft.Network/loadBalancers", name);
            (of_id(&id), NETWORK_API_VERSION, "Microsoft.Network/loadBalancers/read")
        }
        ProofResource::NetworkInterfaces => {
            let permission = "Microsoft.Network/networkInterfaces/read";
            (of_group("Microsoft.Network/networkInterfaces"), NETWORK_API_VERSION, permission)
        }
        ProofResource::VirtualMachines => {
            let permission = "Microsoft.Compute/virtualMachines/read";
            (
                of_group("Microsoft.Compute/virtualMachines"),
                VIRTUAL_MACHINES_API_VERSION,
                permission,
            )
        }
        ProofResource::Disks => {
            (of_group("Microsoft.Compute/disks"), DISKS_API_VERSION, "Microsoft.Compute/disks/read")
        }
        ProofResource::StorageAccounts => {
            let permission = "Microsoft.Storage/storageAccounts/read";
            (of_group("Microsoft.Storage/storageAccounts"), STORAGE_API_VERSION, permission)
        }
        ProofResource::PrivateRecord => {
            let zone = format!("{}.{}", cluster.name, cluster.base_domain.as_ref()?);
            let zone = managed.provider_resource("Microsoft.Network/privateDnsZones", &zone);
            let permission = "Microsoft.Network/privateDnsZones/A/read";
            (of_id(&zone.child("A", "api")), PRIVATE_DNS_API_VERSION, permission)
        }
        ProofResource::EncryptionKey => {
            let key = &cluster.encryption.as_ref()?.active_key;
            let object = ProofVaultObject::Key(key.name.clone());
            let target = ProofTarget::Vault { vault: key.vault.clone(), object };
            (target, VAULT_API_VERSION, "Microsoft.KeyVault/vaults/keys/read")
        }
        ProofResource::EncryptionVaultSecret => {
            let key = &cluster.encryption.as_ref()?.active_key;
            let object = ProofVaultObject::Secret(key.name.clone());
            let target = ProofTarget::Vault { vault: key.vault.clone(), object };
            (target, VAULT_API_VERSION, READ_SECRET_PERMISSION)
        }
    };
    Some(ProofCall { target, api_version, permission, expected })
}
