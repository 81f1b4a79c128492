//! The names of a cluster's resources, as HyperShift's `create infra azure` and `create iam azure` choose them.

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

    fn with_infra_id(self, role: &str) -> String {
        format!("{}{role}-{}", self.identifiers.name(), self.identifiers.infra_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
