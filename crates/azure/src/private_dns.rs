//! Private DNS zones and their links to virtual networks.

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceReference, ResourceTags};

/// A private DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateDnsZoneBody {
    /// `global`.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
}

/// A link of a private DNS zone to a virtual network: a child of the zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateDnsLinkBody {
    /// `global`.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The network.
    pub properties: PrivateDnsLinkProperties,
}

/// The properties of a [`PrivateDnsLinkBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrivateDnsLinkProperties {
    /// The network that resolves names of the zone.
    pub virtual_network: ResourceReference,
    /// Whether the virtual machines of the network get records in the zone.
    pub registration_enabled: bool,
}

impl ArmBody for PrivateDnsZoneBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/privateDnsZones";
    const API_VERSION: &'static str = "2024-06-01";
}

impl ArmBody for PrivateDnsLinkBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/privateDnsZones/virtualNetworkLinks";
    const API_VERSION: &'static str = "2024-06-01";
}

impl PrivateDnsZoneBody {
    /// A zone with these tags.
    pub fn new(tags: ResourceTags) -> Self {
        Self { location: "global".to_owned(), tags }
    }
}

impl PrivateDnsLinkBody {
    /// A link without registration.
    pub fn new(virtual_network: ArmResourceId, tags: ResourceTags) -> Self {
        let properties = PrivateDnsLinkProperties {
            virtual_network: virtual_network.into(),
            registration_enabled: false,
        };
        Self { location: "global".to_owned(), tags, properties }
    }

    /// The id of the link `name` of a zone.
    pub fn id(zone: &ArmResourceId, name: &str) -> ArmResourceId {
        zone.child("virtualNetworkLinks", name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn zone_and_link_have_this_json() {
        let zone = PrivateDnsZoneBody::new(ResourceTags::new());
        assert_body(&zone, json!({ "location": "global", "tags": {} }));
        let network = resource_id("Microsoft.Network/virtualNetworks/v");
        let link = PrivateDnsLinkBody::new(network.clone(), ResourceTags::new());
        assert_body(
            &link,
            json!({
                "location": "global",
                "tags": {},
                "properties": {
                    "virtualNetwork": { "id": network },
                    "registrationEnabled": false,
                },
            }),
        );
    }
}
