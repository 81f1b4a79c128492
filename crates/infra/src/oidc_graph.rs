//! The desired graph of a token issuer: a storage account whose container serves two documents to the public.

use lanyard_azure::{
    ArmBody as _, BlobContainerBody, ContainerPublicAccess, ResourceGroupBody, ResourceTags,
    RoleAssignmentBody, StorageAccountBody,
};
use lanyard_changes::{
    AzureEffect, AzureResource, PrincipalReference, ResourceKey, RoleAssignment,
};
use lanyard_federation::{IssuerContainer, IssuerStorageAccount};
use lanyard_vocabulary::{ArmResourceId, RoleDefinitionId, SubscriptionId};

use crate::ccoctl_ownership::CcoctlOwner;
use crate::role_assignments::principal_assignment_name;
use crate::role_keys::{UPLOADER_ROLE, key_of_role};
use crate::stacks;

/// The parameters of a token issuer.
#[derive(Debug, Clone, PartialEq)]
pub struct OidcParameters {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The name of the issuer, which the ownership tag of ccoctl contains.
    pub name: String,
    /// The region.
    pub location: String,
    /// The resource group of the issuer.
    pub resource_group: String,
    /// The storage account, unique in the cloud.
    pub account: IssuerStorageAccount,
    /// The container of the documents.
    pub container: IssuerContainer,
    /// Further tags of the group and the account.
    pub tags: ResourceTags,
    /// The principal that uploads the documents: the signed-in identity.
    pub uploader: PrincipalReference,
}

impl OidcParameters {
    /// The id of the storage account.
    pub fn account_id(&self) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &self.resource_group)
            .provider_resource(StorageAccountBody::RESOURCE_TYPE, self.account.as_str())
    }

    /// The tags of ccoctl and of the user. ccoctl finds the resources that it deletes by its tag.
    fn owned_tags(&self) -> ResourceTags {
        CcoctlOwner::new(&*self.name).owned_tags(&self.tags)
    }
}

/// The resources of the stack `oidc`.
///
/// The documents are uploaded with the caller's own role and not with the keys of the account, so that the keys
/// can be switched off by policy.
pub fn oidc_resources(parameters: &OidcParameters) -> Vec<AzureResource> {
    let group = ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group);
    let account = parameters.account_id();
    let group_body = ResourceGroupBody::new(&*parameters.location, parameters.owned_tags());
    let account_body = StorageAccountBody::new(&*parameters.location, parameters.owned_tags());
    let container = BlobContainerBody::new(ContainerPublicAccess::Blob);
    let role = RoleDefinitionId::STORAGE_BLOB_DATA_CONTRIBUTOR;
    let role_name = principal_assignment_name(&account, role, &parameters.uploader);
    let container_id = BlobContainerBody::id(&account, parameters.container.as_str());
    let parts = [
        (
            ResourceKey::new("group"),
            group,
            AzureEffect::tagged(ResourceGroupBody::API_VERSION, group_body.to_json()),
            None,
        ),
        (
            ResourceKey::new("account"),
            account.clone(),
            AzureEffect::tagged(StorageAccountBody::API_VERSION, account_body.to_json()),
            Some("group"),
        ),
        (
            ResourceKey::new("container"),
            container_id,
            AzureEffect::untagged(BlobContainerBody::API_VERSION, container.to_json()),
            Some("account"),
        ),
        (
            key_of_role(UPLOADER_ROLE, &parameters.uploader),
            RoleAssignmentBody::id(&account, role_name),
            AzureEffect::RoleAssignment(RoleAssignment {
                subscription: parameters.subscription.clone(),
                role,
                scope: account,
                principal: parameters.uploader.clone(),
            }),
            Some("account"),
        ),
    ];
    let resources = parts.into_iter().map(|(key, id, effect, dependency)| AzureResource {
        key,
        stack: stacks::OIDC,
        id: id.into(),
        effect,
        depends_on: dependency.map(ResourceKey::new).into_iter().collect(),
    });
    resources.collect()
}

#[cfg(test)]
mod tests {
    use lanyard_changes::{ArmResource, AzureGraph};
    use uuid::Uuid;

    use super::*;
    use crate::role_keys::lasting_role;

    fn parameters(uploader: u128) -> OidcParameters {
        OidcParameters {
            subscription: "s".parse().unwrap(),
            name: "dev".to_owned(),
            location: "eastus".to_owned(),
            resource_group: "dev-oidc".to_owned(),
            account: "devissuer".parse().unwrap(),
            container: "dev".parse().unwrap(),
            tags: ResourceTags::from([("team".to_owned(), "platform".to_owned())]),
            uploader: PrincipalReference::User(Uuid::from_u128(uploader)),
        }
    }

    #[test]
    fn group_and_account_have_the_tag_of_ccoctl() {
        let resources = oidc_resources(&parameters(1));
        for resource in &resources[..2] {
            let AzureEffect::Arm(ArmResource { body, .. }) = &resource.effect else { panic!() };
            let tags = &body["tags"];
            assert_eq!(tags["openshift.io_cloud-credential-operator_dev"], "owned");
            assert_eq!(tags["team"], "platform");
        }
        assert_eq!(AzureGraph::new(resources).unwrap().resources().len(), 4);
    }

    #[test]
    fn second_caller_gets_an_assignment_of_their_own() {
        let (first, second) = (oidc_resources(&parameters(1)), oidc_resources(&parameters(2)));
        let differing: Vec<_> = first.iter().zip(&second).filter(|(a, b)| a != b).collect();
        let [(first, second)] = differing[..] else { panic!("{differing:?}") };
        assert_ne!(first.key, second.key);
        assert_ne!(first.id, second.id);
        assert!(lasting_role(&first.key).is_some() && lasting_role(&second.key).is_some());
    }
}
