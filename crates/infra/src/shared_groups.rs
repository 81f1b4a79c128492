//! The resource groups that several stacks use.

use crate::resource::{ResourceKey, ResourceStack};
use crate::{aks_graph, dns_graph, iam_graph, keyvault_graph};

/// Whether the key is that of a resource group with the definition [`Shared`], which resources of other stacks and of
/// the user may be in.
///
/// The journal does not record definitions, and the keys of these groups never change.
///
/// [`Shared`]: crate::resource::ResourceDefinition::Shared
pub(crate) fn is_shared_group(key: &ResourceKey, stack: ResourceStack) -> bool {
    let shared = match stack {
        ResourceStack::Iam | ResourceStack::Identities => iam_graph::GROUP_KEY,
        ResourceStack::Keyvault => keyvault_graph::GROUP,
        ResourceStack::Aks => aks_graph::PERSISTENT_GROUP,
        ResourceStack::Dns => dns_graph::GROUP,
        // `ccoctl azure delete` removes the group of the issuer only if the user asks for it.
        ResourceStack::Ccoctl | ResourceStack::Infra | ResourceStack::Kms | ResourceStack::Oidc => {
            return false;
        }
    };
    key.as_str() == shared
}

#[cfg(test)]
mod tests {
    use lanyard_azure::ResourceTags;

    use super::*;
    use crate::aks_graph::{AksParameters, aks_resources};
    use crate::cluster_identifiers::ClusterIdentifiers;
    use crate::dns_graph::{DnsParameters, dns_resources};
    use crate::iam_graph::{
        DataPlaneParameters, IamParameters, data_plane_resources, iam_resources,
    };
    use crate::infra_graph::{InfraParameters, LegacyNames, infra_resources};
    use crate::keyvault_graph::{KeyvaultParameters, keyvault_resources};
    use crate::oidc_graph::{OidcParameters, oidc_resources};
    use crate::resource::{DesiredResource, PrincipalReference, ResourceDefinition};

    const GROUP: &str = "identities";
    const LOCATION: &str = "eastus";
    const ISSUER: &str = "https://issuer.example.com/x";

    fn identifiers() -> ClusterIdentifiers {
        ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x".parse().unwrap()).unwrap()
    }

    fn identities() -> Vec<DesiredResource> {
        let cluster = IamParameters {
            subscription: "s".parse().unwrap(),
            identifiers: identifiers(),
            location: LOCATION.to_owned(),
            resource_group: GROUP.to_owned(),
            issuer: ISSUER.to_owned(),
            with_kms: true,
        };
        let data_plane = DataPlaneParameters {
            subscription: "s".parse().unwrap(),
            prefix: "dev".to_owned(),
            location: LOCATION.to_owned(),
            resource_group: GROUP.to_owned(),
            issuer: ISSUER.to_owned(),
        };
        let mut resources = iam_resources(&cluster);
        resources.extend(data_plane_resources(&data_plane).unwrap());
        resources
    }

    fn shared_stacks() -> Vec<DesiredResource> {
        let keyvault = KeyvaultParameters {
            subscription: "s".parse().unwrap(),
            resource_group: GROUP.to_owned(),
            location: LOCATION.to_owned(),
            name: "harbour".parse().unwrap(),
            tenant: "t".parse().unwrap(),
            purge_protection: false,
            recover: false,
            administrator: None,
            secret_readers: Vec::new(),
        };
        let aks = AksParameters {
            subscription: "s".parse().unwrap(),
            prefix: "dev".to_owned(),
            location: LOCATION.to_owned(),
            persistent_group: GROUP.to_owned(),
            nodes: 3,
            max_nodes: None,
            vm_size: "Standard_D4s_v4".to_owned(),
            vault: None,
        };
        let dns = DnsParameters {
            subscription: "s".parse().unwrap(),
            resource_group: GROUP.to_owned(),
            location: LOCATION.to_owned(),
            zone: "dev.example.com".to_owned(),
            delegation: None,
        };
        let oidc = OidcParameters {
            subscription: "s".parse().unwrap(),
            name: "dev".to_owned(),
            location: LOCATION.to_owned(),
            resource_group: "dev-oidc".to_owned(),
            account: "devissuer".parse().unwrap(),
            container: "dev".parse().unwrap(),
            tags: ResourceTags::new(),
            uploader: PrincipalReference::User(uuid::Uuid::from_u128(1)),
        };
        let mut resources = keyvault_resources(&keyvault);
        resources.extend(aks_resources(&aks));
        resources.extend(dns_resources(&dns));
        resources.extend(oidc_resources(&oidc));
        resources
    }

    fn cluster() -> Vec<DesiredResource> {
        infra_resources(&InfraParameters {
            subscription: "s".parse().unwrap(),
            identifiers: identifiers(),
            location: LOCATION.to_owned(),
            base_domain: "example.com".to_owned(),
            resource_group: None,
            group_tags: ResourceTags::new(),
            security_group: None,
            network: None,
            nat_subnet: None,
            legacy_names: LegacyNames::default(),
        })
    }

    #[test]
    fn shared_groups_are_those_of_the_graphs() {
        let resources = [identities(), shared_stacks(), cluster()].concat();
        let mut stacks = Vec::new();
        for DesiredResource { key, stack, definition, .. } in &resources {
            let is_shared = matches!(definition, ResourceDefinition::Shared { .. });
            assert_eq!(is_shared_group(key, *stack), is_shared, "{stack} {key}");
            if is_shared {
                stacks.push(stack.name());
            }
        }
        assert_eq!(stacks, ["iam", "identities", "keyvault", "aks", "dns"]);
    }
}
