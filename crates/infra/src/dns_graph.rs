//! The desired graph of a public DNS zone and its delegation from the parent zone.

use lanyard_azure::{ArmBody as _, DnsZoneBody, NsRecordSetBody, ResourceGroupBody, ResourceTags};
use lanyard_changes::{AzureEffect, AzureResource, ResourceKey};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};

use crate::stacks;

/// The parameters of a public DNS zone.
#[derive(Debug, Clone, PartialEq)]
pub struct DnsParameters {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The resource group, which is created if it does not exist.
    pub resource_group: String,
    /// The region of a new resource group; zones are global.
    pub location: String,
    /// The name of the zone, such as `dev.example.com`.
    pub zone: String,
    /// The delegation; `None` if the parent zone is not in Azure or delegates already.
    pub delegation: Option<ZoneDelegation>,
}

/// The record set in the parent zone that makes a zone reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneDelegation {
    /// The parent zone.
    pub parent: ArmResourceId,
    /// The name of the record set: the zone's name without that of the parent.
    pub record: String,
    /// The name servers that Azure assigned to the zone; empty until the zone exists.
    pub name_servers: Vec<String>,
}

/// The key of the zone in the graph.
pub const DNS_ZONE_KEY: &str = "zone";
/// The key of the resource group, which other stacks may use.
pub(crate) const GROUP: &str = "group";
/// The time to live of the delegation, in seconds.
const DELEGATION_TTL: u32 = 300;

impl DnsParameters {
    /// The id of the zone.
    pub fn zone_id(&self) -> ArmResourceId {
        ResourceGroupBody::id(&self.subscription, &self.resource_group)
            .provider_resource(DnsZoneBody::RESOURCE_TYPE, &self.zone)
    }
}

/// The resources of the stack `dns`. The delegation is a part of the graph when the name servers are known.
pub fn dns_resources(parameters: &DnsParameters) -> Vec<AzureResource> {
    let key = |text: &str| ResourceKey::new(text);
    let mut resources = vec![
        AzureResource {
            key: key(GROUP),
            stack: stacks::DNS,
            id: ResourceGroupBody::id(&parameters.subscription, &parameters.resource_group).into(),
            effect: AzureEffect::shared(
                ResourceGroupBody::API_VERSION,
                ResourceGroupBody::new(&*parameters.location, ResourceTags::new()).to_json(),
            ),
            depends_on: Vec::new(),
        },
        AzureResource {
            key: key(DNS_ZONE_KEY),
            stack: stacks::DNS,
            id: parameters.zone_id().into(),
            effect: AzureEffect::tagged(
                DnsZoneBody::API_VERSION,
                DnsZoneBody::new(ResourceTags::new()).to_json(),
            ),
            depends_on: vec![key(GROUP)],
        },
    ];
    if let Some(delegation) = &parameters.delegation
        && !delegation.name_servers.is_empty()
    {
        let body = NsRecordSetBody::new(delegation.name_servers.iter().cloned(), DELEGATION_TTL);
        resources.push(AzureResource {
            key: key("delegation"),
            stack: stacks::DNS,
            id: NsRecordSetBody::id(&delegation.parent, &delegation.record).into(),
            effect: AzureEffect::untagged(NsRecordSetBody::API_VERSION, body.to_json()),
            depends_on: vec![key(DNS_ZONE_KEY)],
        });
    }
    resources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegation_waits_for_the_name_servers() {
        let parent =
            "/subscriptions/s/resourceGroups/dns/providers/Microsoft.Network/dnsZones/example.com";
        let mut parameters = DnsParameters {
            subscription: "s".parse().unwrap(),
            resource_group: "os4-common".to_owned(),
            location: "eastus".to_owned(),
            zone: "dev.example.com".to_owned(),
            delegation: Some(ZoneDelegation {
                parent: parent.parse().unwrap(),
                record: "dev".to_owned(),
                name_servers: Vec::new(),
            }),
        };
        assert_eq!(dns_resources(&parameters).len(), 2);
        let servers = vec!["ns1-01.azure-dns.com.".to_owned()];
        parameters.delegation.as_mut().unwrap().name_servers = servers;
        let resources = dns_resources(&parameters);
        assert_eq!(resources[2].id.as_str(), format!("{parent}/NS/dev"));
    }
}
