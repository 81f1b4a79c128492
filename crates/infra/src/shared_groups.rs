//! The resource groups that several stacks use.

use lanyard_changes::{ResourceKey, StackName};

use crate::{aks_graph, dns_graph, iam_graph, keyvault_graph};

/// Whether the key is that of a resource group that is [shared](lanyard_changes::EffectUsage::Shared): resources of other stacks and of the
/// user may be in it.
///
/// The journal does not record effects, and the keys of these groups never change.
pub(crate) fn is_shared_group(key: &ResourceKey, stack: &StackName) -> bool {
    let shared = match stack.as_str() {
        "iam" | "identities" => iam_graph::GROUP_KEY,
        "keyvault" => keyvault_graph::GROUP,
        "aks" => aks_graph::PERSISTENT_GROUP,
        "dns" => dns_graph::GROUP,
        // `ccoctl azure delete` removes the group of the issuer only if the user asks for it.
        _ => return false,
    };
    key.as_str() == shared
}

#[cfg(test)]
mod tests {
    use lanyard_azure::ResourceTags;
    use lanyard_changes::{
        AzureAccess, AzureResource, CreationEvidence, DestroyPlan, Effect as _, EffectUsage,
        Ownership, PrincipalReference, RecordedResource, RecordedState, ResourceId,
        UnrecordedResource, WritePhase,
    };

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
    use crate::stacks::{IAM, INFRA};

    const GROUP: &str = "identities";
    const LOCATION: &str = "eastus";
    const ISSUER: &str = "https://issuer.example.com/x";

    fn identifiers() -> ClusterIdentifiers {
        ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x".parse().unwrap()).unwrap()
    }

    fn identities() -> Vec<AzureResource> {
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

    fn shared_stacks() -> Vec<AzureResource> {
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

    fn cluster() -> Vec<AzureResource> {
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
        for AzureResource { key, stack, effect, .. } in &resources {
            let is_shared = effect.usage() == EffectUsage::Shared;
            assert_eq!(is_shared_group(key, stack), is_shared, "{stack} {key}");
            if is_shared {
                stacks.push(stack.as_str());
            }
        }
        assert_eq!(stacks, ["iam", "identities", "keyvault", "aks", "dns"]);
    }

    const IDENTITY: &str = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";

    fn id_of_group(name: &str) -> ResourceId {
        format!("/subscriptions/s/resourceGroups/{name}").parse().unwrap()
    }

    fn record(
        state: &mut RecordedState,
        stack: StackName,
        (key, path, ownership, needs): (&str, &str, Ownership, &[&str]),
    ) {
        let record = RecordedResource {
            stack,
            id: id_of_group(path),
            ownership,
            depends_on: needs.iter().map(|key| ResourceKey::new(*key)).collect(),
            phase: WritePhase::Complete,
            creation: CreationEvidence::Unknown,
        };
        state.insert(ResourceKey::new(key), record);
    }

    #[test]
    fn shared_group_with_other_resources_stays() {
        let mut state = RecordedState::default();
        let identity = format!("g/{IDENTITY}");
        let credential = format!("{identity}/federatedIdentityCredentials/c");
        for (key, path, needs) in [
            ("identity-group", "g", &[][..]),
            ("identity/disk", &*identity, &["identity-group"][..]),
            ("identity/disk/c", &*credential, &["identity/disk"][..]),
        ] {
            let resource = (key, path, Ownership::Created, needs);
            record(&mut state, IAM, resource);
        }
        let names = [IAM];
        let other = |group: &str| {
            let id =
                format!("/subscriptions/s/resourceGroups/{group}/providers/M/rules/on call #1");
            [UnrecordedResource { group: id_of_group(group), id }]
        };
        let elsewhere = other("other");
        let plan = DestroyPlan::keeping::<AzureAccess>(&state, &names, &elsewhere, is_shared_group);
        assert_eq!(plan, DestroyPlan::new::<AzureAccess>(&state, &names));
        assert!(plan.kept_groups.is_empty());
        let others = other("G");
        let plan = DestroyPlan::keeping::<AzureAccess>(&state, &names, &others, is_shared_group);
        let [group] = &plan.kept_groups[..] else { panic!("{plan:?}") };
        assert_eq!(
            (group.id.name(), &group.other_resources[..]),
            ("g", &[others[0].id.clone()][..])
        );
        assert!(plan.resources.iter().all(|it| it.removed_with.as_ref() != Some(&group.key)));
    }

    #[test]
    fn group_of_one_cluster_is_not_kept() {
        let mut state = RecordedState::default();
        record(&mut state, INFRA, ("group", "g", Ownership::Created, &[]));
        let names = [INFRA];
        let id = "/subscriptions/s/resourceGroups/g/providers/M/vaults/v".to_owned();
        let others = [UnrecordedResource { group: id_of_group("g"), id }];
        let plan = DestroyPlan::keeping::<AzureAccess>(&state, &names, &others, is_shared_group);
        assert_eq!(plan, DestroyPlan::new::<AzureAccess>(&state, &names));
        assert_eq!(plan.resources.len(), 1);
    }
}
