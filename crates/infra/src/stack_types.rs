//! Which resources a stack can contain. A journal that another person changed could otherwise name any resource.

use lanyard_azure::{
    ArmBody as _, BlobContainerBody, DnsZoneBody, FederatedCredentialBody, LoadBalancerBody,
    ManagedClusterBody, ManagedIdentityBody, NetworkSecurityGroupBody, NsRecordSetBody,
    PrivateDnsLinkBody, PrivateDnsZoneBody, PublicIpAddressBody, RoleAssignmentBody,
    RoleDefinitionBody, StorageAccountBody, VaultBody, VirtualNetworkBody,
};
use lanyard_vocabulary::ArmResourceId;

use crate::resource::ResourceStack;

/// Whether lanyard can write a resource with this id in a stack of the subscription.
///
/// Role assignments on existing resources and the delegation of a DNS zone can be in another subscription.
pub(crate) fn can_contain(stack: ResourceStack, id: &ArmResourceId, subscription: &str) -> bool {
    let has_type = |it: &&str| id.has_type(it);
    let is_elsewhere = [RoleAssignmentBody::RESOURCE_TYPE, NsRecordSetBody::RESOURCE_TYPE];
    let is_known = match id.resource_type() {
        None => id.resource_group().is_some() && stack != ResourceStack::Kms,
        Some(_) => resource_types(stack).iter().any(has_type),
    };
    let is_in_subscription = id.subscription().eq_ignore_ascii_case(subscription);
    is_known && (is_in_subscription || is_elsewhere.iter().any(has_type))
}

/// The types of a stack's resources, beside resource groups.
const fn resource_types(stack: ResourceStack) -> &'static [&'static str] {
    const ROLE: &str = RoleAssignmentBody::RESOURCE_TYPE;
    const IDENTITY: &str = ManagedIdentityBody::RESOURCE_TYPE;
    const CREDENTIAL: &str = FederatedCredentialBody::RESOURCE_TYPE;
    const ACCOUNT: &str = StorageAccountBody::RESOURCE_TYPE;
    const CONTAINER: &str = BlobContainerBody::RESOURCE_TYPE;
    match stack {
        ResourceStack::Infra => &[
            NetworkSecurityGroupBody::RESOURCE_TYPE,
            VirtualNetworkBody::RESOURCE_TYPE,
            PublicIpAddressBody::RESOURCE_TYPE,
            LoadBalancerBody::RESOURCE_TYPE,
            PrivateDnsZoneBody::RESOURCE_TYPE,
            PrivateDnsLinkBody::RESOURCE_TYPE,
            ROLE,
        ],
        ResourceStack::Iam => &[IDENTITY, CREDENTIAL],
        ResourceStack::Keyvault => &[VaultBody::RESOURCE_TYPE, ROLE],
        ResourceStack::Aks => &[ManagedClusterBody::RESOURCE_TYPE, IDENTITY, ROLE],
        ResourceStack::Dns => &[DnsZoneBody::RESOURCE_TYPE, NsRecordSetBody::RESOURCE_TYPE],
        ResourceStack::Oidc => &[ACCOUNT, CONTAINER, ROLE],
        ResourceStack::Identities => &[IDENTITY, CREDENTIAL, ROLE],
        ResourceStack::Ccoctl => {
            &[IDENTITY, CREDENTIAL, ACCOUNT, CONTAINER, RoleDefinitionBody::RESOURCE_TYPE, ROLE]
        }
        ResourceStack::Kms => &[ROLE],
    }
}
