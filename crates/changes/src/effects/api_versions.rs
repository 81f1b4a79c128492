//! The API versions of the resource types.

use lanyard_azure::{
    ArmBody, BlobContainerBody, DnsZoneBody, FederatedCredentialBody, LoadBalancerBody,
    ManagedClusterBody, ManagedIdentityBody, NetworkSecurityGroupBody, NsRecordSetBody,
    PrivateDnsLinkBody, PrivateDnsZoneBody, PublicIpAddressBody, ResourceGroupBody,
    RoleAssignmentBody, RoleDefinitionBody, StorageAccountBody, VaultBody, VirtualNetworkBody,
};
use lanyard_vocabulary::ArmResourceId;

/// The API version for the type of a resource that lanyard creates; the version of resource groups for ids
/// without a type. The journal has resource types only as a part of ids.
pub fn api_version_of(id: &ArmResourceId) -> &'static str {
    let resource_type = id.resource_type().unwrap_or_default();
    let versions = [
        entry::<DnsZoneBody>(),
        entry::<FederatedCredentialBody>(),
        entry::<ManagedClusterBody>(),
        entry::<NsRecordSetBody>(),
        entry::<StorageAccountBody>(),
        entry::<VaultBody>(),
        entry::<BlobContainerBody>(),
        entry::<LoadBalancerBody>(),
        entry::<ManagedIdentityBody>(),
        entry::<NetworkSecurityGroupBody>(),
        entry::<PrivateDnsLinkBody>(),
        entry::<PrivateDnsZoneBody>(),
        entry::<PublicIpAddressBody>(),
        entry::<RoleAssignmentBody>(),
        entry::<RoleDefinitionBody>(),
        entry::<VirtualNetworkBody>(),
    ];
    let found = versions.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(&resource_type));
    found.map_or(ResourceGroupBody::API_VERSION, |(_, version)| version)
}

const fn entry<B: ArmBody>() -> (&'static str, &'static str) {
    (B::RESOURCE_TYPE, B::API_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_version_of_its_provider() {
        let group = "/subscriptions/s/resourceGroups/g";
        for (path, expected) in [
            ("", ResourceGroupBody::API_VERSION),
            ("/providers/Microsoft.Network/virtualNetworks/v", VirtualNetworkBody::API_VERSION),
            ("/providers/Microsoft.Network/privateDnsZones/z", PrivateDnsZoneBody::API_VERSION),
            (
                "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i/federatedIdentityCredentials/f",
                FederatedCredentialBody::API_VERSION,
            ),
            (
                "/providers/Microsoft.Authorization/roleAssignments/a",
                RoleAssignmentBody::API_VERSION,
            ),
        ] {
            let id = format!("{group}{path}").parse().unwrap();
            assert_eq!(api_version_of(&id), expected, "{path}");
        }
    }
}
