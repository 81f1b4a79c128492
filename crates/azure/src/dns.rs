//! Public DNS zones and their NS record sets.

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceTags};

/// A new public DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsZoneBody {
    /// `global`.
    pub location: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
}

/// A live public DNS zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsZone {
    /// The id.
    pub id: ArmResourceId,
    /// The name: the domain.
    pub name: String,
    /// The tags.
    #[serde(default)]
    pub tags: ResourceTags,
    /// The name servers.
    #[serde(default)]
    pub properties: DnsZoneProperties,
}

/// The properties of a [`DnsZone`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsZoneProperties {
    /// The name servers of the zone, with a dot at the end.
    #[serde(default)]
    pub name_servers: Vec<String>,
}

/// An NS record set: the delegation of a child zone in its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NsRecordSetBody {
    /// The records.
    pub properties: NsRecordSetProperties,
}

/// The properties of an [`NsRecordSetBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NsRecordSetProperties {
    /// The time in seconds for which resolvers may cache the records.
    #[serde(rename = "TTL")]
    pub ttl: u32,
    /// The records.
    #[serde(rename = "NSRecords")]
    pub records: Vec<NsRecord>,
}

/// A name server in a record set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NsRecord {
    /// The name of the server.
    pub nsdname: String,
}

impl ArmBody for DnsZoneBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/dnsZones";
    const API_VERSION: &'static str = "2018-05-01";
}

impl ArmBody for NsRecordSetBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Network/dnsZones/NS";
    const API_VERSION: &'static str = DnsZoneBody::API_VERSION;
}

impl DnsZoneBody {
    /// A zone with these tags.
    pub fn new(tags: ResourceTags) -> Self {
        Self { location: "global".to_owned(), tags }
    }
}

impl NsRecordSetBody {
    /// The delegation to these name servers.
    pub fn new(name_servers: impl IntoIterator<Item = String>, ttl: u32) -> Self {
        let records = name_servers.into_iter().map(|nsdname| NsRecord { nsdname }).collect();
        Self { properties: NsRecordSetProperties { ttl, records } }
    }

    /// The id of the record set `name`, relative to its zone.
    pub fn id(zone: &ArmResourceId, name: &str) -> ArmResourceId {
        zone.child("NS", name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::{assert_body, resource_id};

    #[test]
    fn zone_and_delegation_have_this_json() {
        assert_body(
            &DnsZoneBody::new(ResourceTags::new()),
            json!({ "location": "global", "tags": {} }),
        );
        let body = NsRecordSetBody::new(["ns1-01.azure-dns.com.".to_owned()], 300);
        let record = json!({ "nsdname": "ns1-01.azure-dns.com." });
        assert_body(&body, json!({ "properties": { "TTL": 300, "NSRecords": [record] } }));
        let id = NsRecordSetBody::id(&resource_id("Microsoft.Network/dnsZones/example.com"), "c");
        assert!(id.as_str().ends_with("/dnsZones/example.com/NS/c"), "{id}");
    }

    #[test]
    fn live_zone_has_name_servers() {
        let id = resource_id("Microsoft.Network/dnsZones/example.com");
        let zone: DnsZone = serde_json::from_value(json!({
            "id": id,
            "name": "example.com",
            "location": "global",
            "properties": { "nameServers": ["ns1-01.azure-dns.com."], "zoneType": "Public" },
        }))
        .unwrap();
        assert_eq!(zone.properties.name_servers, ["ns1-01.azure-dns.com."]);
    }
}
