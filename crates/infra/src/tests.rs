//! Values that the tests of several files use.

use lanyard_azure::ResourceTags;

use crate::cluster_identifiers::ClusterIdentifiers;
use crate::infra_graph::{InfraParameters, LegacyNames};

/// The parameters of the cluster `harbour`, without optional values.
pub(crate) fn infra_parameters() -> InfraParameters {
    InfraParameters {
        subscription: "s".parse().unwrap(),
        identifiers: ClusterIdentifiers::new(
            "harbour".parse().unwrap(),
            "harbour-x".parse().unwrap(),
        )
        .unwrap(),
        location: "eastus".to_owned(),
        base_domain: "example.com".to_owned(),
        resource_group: None,
        group_tags: ResourceTags::new(),
        security_group: None,
        network: None,
        nat_subnet: None,
        legacy_names: LegacyNames::default(),
    }
}
