//! The names of the stacks, and which resources each of them can contain.

use lanyard_azure::{
    ArmBody as _, BlobContainerBody, DnsZoneBody, FederatedCredentialBody, LoadBalancerBody,
    ManagedClusterBody, ManagedIdentityBody, NetworkSecurityGroupBody, NsRecordSetBody,
    PrivateDnsLinkBody, PrivateDnsZoneBody, PublicIpAddressBody, RoleAssignmentBody,
    RoleDefinitionBody, StorageAccountBody, VaultBody, VirtualNetworkBody,
};
use lanyard_changes::{EntraApplication, ResourceId, StackName};

/// Groups, network, DNS, load balancer and role assignments of one cluster: `create infra azure`.
pub const INFRA: StackName = StackName::new("infra");
/// The managed identities of one cluster and their federated credentials: `create iam azure`.
pub const IAM: StackName = StackName::new("iam");
/// A vault and the roles on it: `create keyvault azure`.
pub const KEYVAULT: StackName = StackName::new("keyvault");
/// The management cluster and its identities: `create aks azure`.
pub const AKS: StackName = StackName::new("aks");
/// A public DNS zone and its delegation: `create dns azure`.
pub const DNS: StackName = StackName::new("dns");
/// A token issuer: `create oidc azure`.
pub const OIDC: StackName = StackName::new("oidc");
/// The identities of an ARO HCP development environment: `create identities azure`.
pub const IDENTITIES: StackName = StackName::new("identities");
/// The identities of `CredentialsRequest` objects: `ccoctl azure create-managed-identities`.
pub const CCOCTL: StackName = StackName::new("ccoctl");
/// The role with which the KMS identity of a development environment uses its key: `create identities azure`. The
/// journal of [`IDENTITIES`] records it.
pub const KMS: StackName = StackName::new("kms");

/// Whether lanyard can write a resource with this id in a stack of the subscription: the rule for journals of infrastructure.
///
/// Role assignments on existing resources and the delegation of a DNS zone can be in another subscription.
pub fn can_contain(stack: &StackName, id: &ResourceId, subscription: &str) -> bool {
    let Some(id) = id.arm() else {
        return *stack == IDENTITIES && EntraApplication::id(id.name()).as_str() == id.as_str();
    };
    let has_type = |it: &&str| id.has_type(it);
    let is_elsewhere = [RoleAssignmentBody::RESOURCE_TYPE, NsRecordSetBody::RESOURCE_TYPE];
    let is_known = match id.resource_type() {
        None => id.resource_group().is_some() && has_groups(stack),
        Some(_) => resource_types(stack).iter().any(has_type),
    };
    let is_in_subscription = id.subscription().eq_ignore_ascii_case(subscription);
    is_known && (is_in_subscription || is_elsewhere.iter().any(has_type))
}

/// Whether the stack can contain resource groups.
fn has_groups(stack: &StackName) -> bool {
    *stack != KMS && !resource_types(stack).is_empty()
}

/// The types of a stack's resources, beside resource groups.
fn resource_types(stack: &StackName) -> &'static [&'static str] {
    const ROLE: &str = RoleAssignmentBody::RESOURCE_TYPE;
    const IDENTITY: &str = ManagedIdentityBody::RESOURCE_TYPE;
    const CREDENTIAL: &str = FederatedCredentialBody::RESOURCE_TYPE;
    const ACCOUNT: &str = StorageAccountBody::RESOURCE_TYPE;
    const CONTAINER: &str = BlobContainerBody::RESOURCE_TYPE;
    match stack.as_str() {
        "infra" => &[
            NetworkSecurityGroupBody::RESOURCE_TYPE,
            VirtualNetworkBody::RESOURCE_TYPE,
            PublicIpAddressBody::RESOURCE_TYPE,
            LoadBalancerBody::RESOURCE_TYPE,
            PrivateDnsZoneBody::RESOURCE_TYPE,
            PrivateDnsLinkBody::RESOURCE_TYPE,
            ROLE,
        ],
        "iam" => &[IDENTITY, CREDENTIAL],
        "keyvault" => &[VaultBody::RESOURCE_TYPE, ROLE],
        "aks" => &[ManagedClusterBody::RESOURCE_TYPE, IDENTITY, ROLE],
        "dns" => &[DnsZoneBody::RESOURCE_TYPE, NsRecordSetBody::RESOURCE_TYPE],
        "oidc" => &[ACCOUNT, CONTAINER, ROLE],
        "identities" => &[IDENTITY, CREDENTIAL, ROLE],
        "ccoctl" => {
            &[IDENTITY, CREDENTIAL, ACCOUNT, CONTAINER, RoleDefinitionBody::RESOURCE_TYPE, ROLE]
        }
        "kms" => &[ROLE],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stack_of_identities_contains_applications() {
        let can = |stack, id: &str| can_contain(&stack, &id.parse().unwrap(), "s");
        assert!(can(IDENTITIES, "entra:applications/cpo-dev"));
        for stack in [INFRA, IAM, KEYVAULT, AKS, DNS, OIDC, CCOCTL, KMS] {
            assert!(!can(stack.clone(), "entra:applications/cpo-dev"), "{stack}");
        }
        for id in ["entra:groups/cpo-dev", "entra:applications/a/b", "applications/cpo-dev", ""] {
            assert!(!can(IDENTITIES, id), "{id}");
        }
    }
}
