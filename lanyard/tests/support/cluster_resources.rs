//! The desired resources of a self-managed cluster.

use std::collections::BTreeMap;

use lanyard_azure::{ResourceGroupBody, ResourceTags};
use lanyard_changes::{AzureResource, PrincipalReference};
use lanyard_infra::{
    ClusterIdentifiers, IamParameters, InfraParameters, LegacyNames, RoleIdentity, RoleOptions,
    RoleParameters, RoleProfile, iam_resources, identity_key, infra_resources, role_resources,
    workload_identities,
};
use lanyard_vocabulary::SubscriptionId;

/// The identifiers of the cluster.
pub(crate) fn cluster_identifiers() -> ClusterIdentifiers {
    let name = "lagoon".parse().unwrap();
    ClusterIdentifiers::new(name, "lagoon-x7k2p".parse().unwrap()).unwrap()
}

/// Groups, network, DNS and load balancer, eight identities with 13 federated credentials, and 18 roles.
pub(crate) fn cluster_resources(subscription: &SubscriptionId) -> Vec<AzureResource> {
    let iam = IamParameters {
        subscription: subscription.clone(),
        identifiers: cluster_identifiers(),
        location: "eastus".to_owned(),
        resource_group: "lagoon-identities".to_owned(),
        issuer: "https://account.blob.core.windows.net/container".to_owned(),
        with_kms: false,
    };
    let infra = infra_parameters(subscription);
    let principals: BTreeMap<_, _> = workload_identities(false)
        .map(|it| it.component)
        .map(|component| {
            let principal = PrincipalReference::identity(identity_key(component));
            (RoleIdentity::ControlPlane(component), principal)
        })
        .collect();
    let roles = RoleParameters {
        options: RoleOptions::new(RoleProfile::default(), false),
        principals,
        dns_group: Some(ResourceGroupBody::id(subscription, "lanyard-dns")),
        dns_zone: None,
        encryption_key: None,
    };
    let mut resources = iam_resources(&iam);
    resources.extend(infra_resources(&infra));
    resources.extend(role_resources(&infra, &roles).unwrap());
    resources
}

/// The parameters of the groups, the network, DNS and the load balancer.
pub(crate) fn infra_parameters(subscription: &SubscriptionId) -> InfraParameters {
    InfraParameters {
        subscription: subscription.clone(),
        location: "eastus".to_owned(),
        base_domain: "hcp.example.com".to_owned(),
        resource_group: None,
        group_tags: ResourceTags::from([("team".to_owned(), "platform".to_owned())]),
        security_group: None,
        network: None,
        nat_subnet: None,
        legacy_names: LegacyNames::default(),
        identifiers: cluster_identifiers(),
    }
}
