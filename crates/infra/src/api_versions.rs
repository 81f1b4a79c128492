//! The API versions of the resource types.

use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId};

/// `Microsoft.Resources/resourceGroups`.
pub(crate) const RESOURCE_GROUPS: &str = "2021-04-01";
/// `Microsoft.Network` without private DNS.
pub(crate) const NETWORK: &str = "2023-11-01";
/// `Microsoft.Network/privateDnsZones` and their links.
pub(crate) const PRIVATE_DNS: &str = "2024-06-01";
/// `Microsoft.ManagedIdentity`.
pub(crate) const MANAGED_IDENTITY: &str = "2024-11-30";
/// `Microsoft.Authorization`.
pub(crate) const AUTHORIZATION: &str = "2022-04-01";

/// The id of a built-in role in role assignments of a subscription.
pub(crate) fn role_definition_path(subscription: &str, role: RoleDefinitionId) -> String {
    let role = role.0;
    format!("/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}")
}

/// The API version for the type of a resource that lanyard creates. Resource types are in the journal only by
/// the id, and a delete request needs a version that the type has.
pub(crate) fn api_version_of(id: &ArmResourceId) -> &'static str {
    let Some(resource_type) = id.resource_type() else { return RESOURCE_GROUPS };
    let resource_type = resource_type.to_ascii_lowercase();
    let versions = [
        ("microsoft.authorization/", AUTHORIZATION),
        ("microsoft.managedidentity/", MANAGED_IDENTITY),
        ("microsoft.network/privatednszones", PRIVATE_DNS),
        ("microsoft.network/", NETWORK),
    ];
    let version = versions.into_iter().find(|(prefix, _)| resource_type.starts_with(prefix));
    version.map_or(RESOURCE_GROUPS, |(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_the_version_of_its_provider() {
        let group = "/subscriptions/s/resourceGroups/g";
        for (path, expected) in [
            ("", RESOURCE_GROUPS),
            ("/providers/Microsoft.Network/virtualNetworks/v", NETWORK),
            ("/providers/Microsoft.Network/privateDnsZones/z", PRIVATE_DNS),
            (
                "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i/federatedIdentityCredentials/f",
                MANAGED_IDENTITY,
            ),
            ("/providers/Microsoft.Authorization/roleAssignments/a", AUTHORIZATION),
        ] {
            let id = format!("{group}{path}").parse().unwrap();
            assert_eq!(api_version_of(&id), expected, "{path}");
        }
    }
}
