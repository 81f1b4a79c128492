//! The seed plan of the integration tests.

use lanyard_emulator::{
    CredentialBundleFormat, DirectoryAccess, DnsZonePlan, IdentityPlan, SeedPlan, VaultPlan,
};
use lanyard_vocabulary::{Cloud, Component, ObjectEncoding};

const TENANT: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const TENANT_OF_VAULT: &str = "22222222-2222-4222-8222-222222222222";

/// One hosted cluster with the identities of all components.
pub(crate) fn seed_plan() -> SeedPlan {
    let group = "/subscriptions/sub/resourceGroups";
    let vnet = format!("{group}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet");
    let nsg =
        format!("{group}/demo-nsg-abcde/providers/Microsoft.Network/networkSecurityGroups/nsg");
    let identity = |component: Component| IdentityPlan {
        component,
        client_id: None,
        secret_name: component.definition().secret_suffix.parse().unwrap(),
        encoding: ObjectEncoding::Utf8,
        bundle: CredentialBundleFormat::Pem,
    };
    SeedPlan {
        tenant: TENANT.parse().unwrap(),
        subscription: "sub".parse().unwrap(),
        cloud: Cloud::Public,
        location: "westeurope".to_owned(),
        managed_resource_group: "demo-abcde".to_owned(),
        subnet_id: format!("{vnet}/subnets/default").parse().unwrap(),
        vnet_id: vnet.parse().unwrap(),
        security_group_id: nsg.parse().unwrap(),
        dns_zone: DnsZonePlan { name: "example.test".to_owned(), resource_group: "dns".to_owned() },
        infra_id: "demo-abcde".parse().unwrap(),
        vault: VaultPlan {
            name: "platform-kv".parse().unwrap(),
            tenant: TENANT_OF_VAULT.parse().unwrap(),
        },
        kms_key: None,
        vault_reader_client_id: "33333333-3333-4333-8333-333333333333".parse().unwrap(),
        nodes: Vec::new(),
        identities: Component::ALL.into_iter().map(identity).collect(),
        drills: Vec::new(),
        test_clients: false,
        directory_access: DirectoryAccess::Full,
    }
}
