//! The names of a cluster's resources, as HyperShift's `create infra azure` and `create iam azure` choose them.
//!
//! HyperShift's documentation and older versions use other names for some; import and destroy recognize both.

use crate::cluster_identifiers::ClusterIdentifiers;

/// The name of the subnet that is created with a virtual network.
pub const SUBNET_NAME: &str = "default";

/// The names of the resources of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterResourceNames<'a> {
    identifiers: &'a ClusterIdentifiers,
}

impl<'a> ClusterResourceNames<'a> {
    /// The names for these identifiers.
    pub const fn new(identifiers: &'a ClusterIdentifiers) -> Self {
        Self { identifiers }
    }

    /// The resource group of machines, load balancer and private DNS zone.
    pub fn main_group(self) -> String {
        self.with_infra_id("")
    }

    /// The resource group of the virtual network.
    pub fn vnet_group(self) -> String {
        self.with_infra_id("-vnet")
    }

    /// The resource group of the network security group.
    pub fn security_group_group(self) -> String {
        self.with_infra_id("-nsg")
    }

    /// The virtual network, and also the link of the private DNS zone to it.
    pub fn vnet(self) -> String {
        self.with_infra_id("")
    }

    /// The network security group.
    pub fn security_group(self) -> String {
        format!("{}-nsg", self.with_infra_id(""))
    }

    /// The private DNS zone below the base domain.
    pub fn private_zone(self, base_domain: &str) -> String {
        format!("{}.{base_domain}", self.identifiers.name())
    }

    /// The load balancer, its children and its public IP address.
    pub fn load_balancer(self) -> String {
        self.identifiers.infra_id().to_string()
    }

    /// A managed identity; `suffix` begins with a dash.
    pub fn identity(self, suffix: &str) -> String {
        self.with_infra_id(suffix)
    }

    /// A federated credential of a managed identity.
    pub fn federated_credential(self, suffix: &str) -> String {
        format!("{}{suffix}", self.identifiers.name())
    }

    /// The resource groups with the word at the end, as in HyperShift's documentation: those of the virtual
    /// network and of the network security group. No code creates them; users did by hand.
    pub fn legacy_groups(self) -> [String; 2] {
        let base = self.with_infra_id("");
        [format!("{base}-vnet"), format!("{base}-nsg")]
    }

    /// The private DNS zone of clusters that earlier versions of HyperShift created.
    pub fn legacy_private_zone(self, base_domain: &str) -> String {
        format!("{}-azurecluster.{base_domain}", self.identifiers.name())
    }

    fn with_infra_id(self, role: &str) -> String {
        format!("{}{role}-{}", self.identifiers.name(), self.identifiers.infra_id())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::azure_name_rules::{
        FEDERATED_CREDENTIAL, LOAD_BALANCER, MANAGED_IDENTITY, PUBLIC_IP, RESOURCE_GROUP,
        SECURITY_GROUP, SUBNET, VIRTUAL_NETWORK, VIRTUAL_NETWORK_LINK,
    };
    use crate::workload_identities::workload_identities;

    #[test]
    fn names_are_those_of_the_reference() {
        let identifiers =
            ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x7k2p".parse().unwrap())
                .unwrap();
        let names = ClusterResourceNames::new(&identifiers);
        assert_eq!(names.main_group(), "harbour-harbour-x7k2p");
        assert_eq!(names.vnet_group(), "harbour-vnet-harbour-x7k2p");
        assert_eq!(names.security_group_group(), "harbour-nsg-harbour-x7k2p");
        assert_eq!(names.vnet(), "harbour-harbour-x7k2p");
        assert_eq!(names.security_group(), "harbour-harbour-x7k2p-nsg");
        assert_eq!(names.private_zone("example.com"), "harbour.example.com");
        assert_eq!(names.load_balancer(), "harbour-x7k2p");
        assert_eq!(names.identity("-node-pool-mgmt"), "harbour-node-pool-mgmt-harbour-x7k2p");
        assert_eq!(names.federated_credential("-cpo-fed-id"), "harbour-cpo-fed-id");
    }

    #[test]
    fn names_of_documentation_and_earlier_versions_are_known() {
        let identifiers =
            ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x7k2p".parse().unwrap())
                .unwrap();
        let names = ClusterResourceNames::new(&identifiers);
        assert_eq!(
            names.legacy_groups(),
            ["harbour-harbour-x7k2p-vnet", "harbour-harbour-x7k2p-nsg"]
        );
        assert_eq!(names.legacy_private_zone("example.com"), "harbour-azurecluster.example.com");
    }

    proptest! {
        #[test]
        fn azure_accepts_every_name_of_valid_identifiers(
            name in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            infra_id in "[a-zA-Z0-9.-]{1,63}",
        ) {
            let infra_id = infra_id.parse();
            prop_assume!(infra_id.is_ok());
            let identifiers = ClusterIdentifiers::new(name.parse().unwrap(), infra_id.unwrap());
            let Ok(identifiers) = identifiers else { return Ok(()) };
            let names = ClusterResourceNames::new(&identifiers);
            let [legacy_vnet, legacy_security_group] = names.legacy_groups();
            let mut checks = vec![
                RESOURCE_GROUP.check(&names.main_group()),
                RESOURCE_GROUP.check(&names.vnet_group()),
                RESOURCE_GROUP.check(&names.security_group_group()),
                RESOURCE_GROUP.check(&legacy_vnet),
                RESOURCE_GROUP.check(&legacy_security_group),
                VIRTUAL_NETWORK.check(&names.vnet()),
                VIRTUAL_NETWORK_LINK.check(&names.vnet()),
                SUBNET.check(SUBNET_NAME),
                SECURITY_GROUP.check(&names.security_group()),
                PUBLIC_IP.check(&names.load_balancer()),
                LOAD_BALANCER.check(&names.load_balancer()),
            ];
            for identity in workload_identities(true) {
                checks.push(MANAGED_IDENTITY.check(&identity.identity_name(&names)));
                checks.extend(identity.credentials.iter().map(|credential| {
                    FEDERATED_CREDENTIAL.check(&names.federated_credential(credential.suffix))
                }));
            }
            for check in checks {
                prop_assert!(check.is_ok(), "{}", check.unwrap_err());
            }
            let zone = names.private_zone("example.com");
            prop_assert!(zone.len() <= 253 && zone.split('.').all(|label| label.len() <= 63));
        }
    }
}
