//! Builds the seed plan of the local Azure from a HostedCluster.

use lanyard_desired::ValidatedHostedCluster;
use lanyard_emulator::{
    CredentialBundleFormat, DirectoryAccess, DnsZonePlan, FaultPlan, IdentityPlan, KmsKeyPlan,
    SeedPlan, VaultPlan,
};
use lanyard_vocabulary::{ArmResourceId, EntraClientId};
use uuid::uuid;

/// The client ID of the vault reader if the platform configures none.
pub(crate) const DEFAULT_VAULT_READER: uuid::Uuid = uuid!("7f1c6b0e-52d9-4a38-8e4f-b60d93a1c275");

/// The public DNS zone if the HostedCluster has no base domain.
const DEFAULT_DOMAIN: &str = "lanyard.example";
/// The resource group of the public DNS zone. HostedClusters do not contain one.
const DNS_RESOURCE_GROUP: &str = "lanyard-dns";

/// The resources that the local Azure needs for this cluster.
///
/// The credentials have the two bundle formats that msi-dataplane opens.
pub fn local_azure_plan(
    cluster: &ValidatedHostedCluster,
    vault_reader: Option<EntraClientId>,
    fault: Option<FaultPlan>,
) -> SeedPlan {
    let azure = &cluster.azure;
    // Without a usable id, the network is in the managed resource group.
    let network_id = |id: &Option<ArmResourceId>, resource_type| {
        let default = || {
            let group = cluster.managed_resource_group();
            group.provider_resource(resource_type, cluster.infra_id.as_str())
        };
        id.clone().unwrap_or_else(default)
    };
    let bundles = [CredentialBundleFormat::Pem, CredentialBundleFormat::LegacyPkcs12];
    let bundles = bundles.into_iter().cycle();
    let identities = cluster
        .running_components()
        .zip(bundles)
        .map(|((component, identity), bundle)| IdentityPlan {
            component,
            client_id: identity.client_id,
            secret_name: identity.secret_name.clone(),
            encoding: identity.encoding,
            bundle,
        })
        .collect();
    SeedPlan {
        tenant: azure.tenant.0.clone(),
        subscription: azure.subscription.clone(),
        cloud: azure.cloud,
        location: azure.location.clone(),
        managed_resource_group: azure.resource_group.clone(),
        vnet_id: network_id(&azure.vnet, "Microsoft.Network/virtualNetworks"),
        subnet_id: azure.subnet.clone(),
        security_group_id: network_id(
            &azure.security_group,
            "Microsoft.Network/networkSecurityGroups",
        ),
        dns_zone: DnsZonePlan {
            name: cluster.base_domain.clone().unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
            resource_group: DNS_RESOURCE_GROUP.to_owned(),
        },
        infra_id: cluster.infra_id.clone(),
        vault: VaultPlan {
            name: cluster.vault.name.clone(),
            tenant: cluster.vault.tenant.0.clone(),
        },
        kms_key: cluster.encryption.as_ref().map(|encryption| KmsKeyPlan {
            vault: encryption.active_key.vault.clone(),
            name: encryption.active_key.name.clone(),
            version: Some(encryption.active_key.version.to_string()),
        }),
        vault_reader_client_id: vault_reader.unwrap_or_else(|| DEFAULT_VAULT_READER.into()),
        nodes: Vec::new(),
        identities,
        drills: fault.into_iter().collect(),
        test_clients: true,
        directory_access: DirectoryAccess::Full,
    }
}
