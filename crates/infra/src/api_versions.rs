//! The API versions for resources that are known only by their id.

use lanyard_azure::{authorization, managed_identity, network, private_dns, resource_groups};
use lanyard_vocabulary::ArmResourceId;

/// The API version for the type of a resource that lanyard creates. Resource types are in the journal only by
/// the id, and a delete request needs a version that the type has.
pub(crate) fn api_version_of(id: &ArmResourceId) -> &'static str {
    let Some(resource_type) = id.resource_type() else { return resource_groups::API_VERSION };
    let resource_type = resource_type.to_ascii_lowercase();
    let versions = [
        ("microsoft.authorization/", authorization::API_VERSION),
        ("microsoft.managedidentity/", managed_identity::API_VERSION),
        ("microsoft.network/privatednszones", private_dns::API_VERSION),
        ("microsoft.network/", network::API_VERSION),
    ];
    let version = versions.into_iter().find(|(prefix, _)| resource_type.starts_with(prefix));
    version.map_or(resource_groups::API_VERSION, |(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_version_of_its_provider() {
        let group = "/subscriptions/s/resourceGroups/g";
        for (path, expected) in [
            ("", resource_groups::API_VERSION),
            ("/providers/Microsoft.Network/virtualNetworks/v", network::API_VERSION),
            ("/providers/Microsoft.Network/privateDnsZones/z", private_dns::API_VERSION),
            (
                "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i/federatedIdentityCredentials/f",
                managed_identity::API_VERSION,
            ),
            ("/providers/Microsoft.Authorization/roleAssignments/a", authorization::API_VERSION),
        ] {
            let id = format!("{group}{path}").parse().unwrap();
            assert_eq!(api_version_of(&id), expected, "{path}");
        }
    }
}
