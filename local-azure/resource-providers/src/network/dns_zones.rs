//! Public and private DNS zones with their record sets. Reference: Microsoft.Network, DNS zones 2018-05-01 and
//! 2023-07-01-preview; private DNS zones 2024-06-01.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, list_reply};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::{parent_scope, parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_arm::resource_rendering::render_stored;
use lanyard_emulator_arm::resource_type::{
    NameEdge, NamingRule, RegionRule, ResourceType, resource_name,
};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Value, json};

use super::reference::require_reference;

const PUBLIC_ZONE: &str = "Microsoft.Network/dnsZones";
const PRIVATE_ZONE: &str = "Microsoft.Network/privateDnsZones";
const LINK: &str = "Microsoft.Network/privateDnsZones/virtualNetworkLinks";

/// The naming rule of zones; [`require_valid_zone_name`] checks the labels.
const ZONE_NAME: NamingRule = NamingRule {
    length: (1, 253),
    punctuation: "-_.",
    lower_case: false,
    first: NameEdge::Any,
    last: NameEdge::Any,
    forbidden: "",
};

/// The naming rule of record sets. Names are relative to the zone: `@` is its apex, `*` a wildcard.
const RECORD_NAME: NamingRule = NamingRule {
    length: (1, 253),
    punctuation: "-_.@*",
    lower_case: false,
    first: NameEdge::Any,
    last: NameEdge::Any,
    forbidden: "..",
};

pub(super) const PUBLIC_ZONE_TYPE: ResourceType = ResourceType {
    region: RegionRule::Global,
    prepare: prepare_public_zone,
    render: Some(render_public),
    has_provisioning_state: false,
    ..ResourceType::regional(PUBLIC_ZONE, ZONE_NAME, "2015-05-04-preview")
};

pub(super) const PRIVATE_ZONE_TYPE: ResourceType = ResourceType {
    region: RegionRule::Global,
    prepare: prepare_private_zone,
    check_deletion: check_private_zone_deletion,
    render: Some(render_private_zone),
    ..ResourceType::regional(PRIVATE_ZONE, ZONE_NAME, "2018-09-01")
};

pub(super) const LINK_TYPE: ResourceType = ResourceType {
    region: RegionRule::Global,
    prepare: prepare_link,
    ..ResourceType::child(LINK, NamingRule::word(80), "2018-09-01")
};

const fn public_record(name: &'static str) -> ResourceType {
    ResourceType {
        prepare: prepare_record,
        check_deletion: check_record_deletion,
        render: Some(render_public),
        long_running: false,
        ..ResourceType::child(name, RECORD_NAME, "2015-05-04-preview")
    }
}

const fn private_record(name: &'static str) -> ResourceType {
    ResourceType {
        prepare: prepare_record,
        check_deletion: check_record_deletion,
        long_running: false,
        has_provisioning_state: false,
        ..ResourceType::child(name, RECORD_NAME, "2018-09-01")
    }
}

/// The types of record sets. The SOA record set is created with its zone.
pub(super) const RECORD_TYPES: &[ResourceType] = &[
    public_record("Microsoft.Network/dnsZones/A"),
    public_record("Microsoft.Network/dnsZones/AAAA"),
    public_record("Microsoft.Network/dnsZones/CAA"),
    public_record("Microsoft.Network/dnsZones/CNAME"),
    public_record("Microsoft.Network/dnsZones/DS"),
    public_record("Microsoft.Network/dnsZones/MX"),
    public_record("Microsoft.Network/dnsZones/NAPTR"),
    public_record("Microsoft.Network/dnsZones/NS"),
    public_record("Microsoft.Network/dnsZones/PTR"),
    public_record("Microsoft.Network/dnsZones/SOA"),
    public_record("Microsoft.Network/dnsZones/SRV"),
    public_record("Microsoft.Network/dnsZones/TLSA"),
    public_record("Microsoft.Network/dnsZones/TXT"),
    private_record("Microsoft.Network/privateDnsZones/A"),
    private_record("Microsoft.Network/privateDnsZones/AAAA"),
    private_record("Microsoft.Network/privateDnsZones/CNAME"),
    private_record("Microsoft.Network/privateDnsZones/MX"),
    private_record("Microsoft.Network/privateDnsZones/PTR"),
    private_record("Microsoft.Network/privateDnsZones/SOA"),
    private_record("Microsoft.Network/privateDnsZones/SRV"),
    private_record("Microsoft.Network/privateDnsZones/TXT"),
];

/// Checks that a zone has at least `least_labels` labels, each of 1 to 63 characters. Reference:
/// "Overview of DNS zones and records".
fn require_valid_zone_name(name: &str, least_labels: usize) -> Result<(), ServiceReply> {
    let labels: Vec<_> = name.split('.').collect();
    if labels.len() >= least_labels && labels.iter().all(|label| (1..=63).contains(&label.len())) {
        return Ok(());
    }
    Err(bad_request("BadRequest", format!("The domain name '{name}' is invalid.")))
}

fn prepare_public_zone(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let name = resource_name(write.id);
    require_valid_zone_name(name, 2)?;
    // Azure assigns each zone one of many sets of name servers.
    let set = write.call.ids.next_uuid().as_bytes()[0] % 40 + 1;
    write.service_property("nameServers", || {
        let server = |(n, domain): (u8, &str)| format!("ns{n}-{set:02}.azure-dns.{domain}.");
        json!([(1, "com"), (2, "net"), (3, "org"), (4, "info")].map(server))
    });
    write.properties.insert("maxNumberOfRecordSets".to_owned(), json!(10_000));
    write.properties.insert("maxNumberOfRecordsPerRecordSet".to_owned(), Value::Null);
    write.default_property("zoneType", json!("Public"));
    if write.existing.is_none() {
        let servers = write.properties["nameServers"].clone();
        let records: Vec<_> = servers
            .as_array()
            .into_iter()
            .flatten()
            .map(|server| json!({ "nsdname": server }))
            .collect();
        let first = servers[0].clone();
        let apex = [
            ("NS", json!({ "TTL": 172_800, "NSRecords": records })),
            (
                "SOA",
                json!({ "TTL": 3_600, "SOARecord": soa_record(&first, "azuredns-hostmaster.microsoft.com") }),
            ),
        ];
        for (kind, properties) in apex {
            add_apex_record(write, PUBLIC_ZONE, kind, properties);
        }
    }
    Ok(())
}

fn prepare_private_zone(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let name = resource_name(write.id);
    require_valid_zone_name(name, 1)?;
    write.properties.insert("maxNumberOfRecordSets".to_owned(), json!(25_000));
    write.properties.insert("maxNumberOfVirtualNetworkLinks".to_owned(), json!(1_000));
    let limit = "maxNumberOfVirtualNetworkLinksWithRegistration";
    write.properties.insert(limit.to_owned(), json!(100));
    let id = write.call.ids.next_uuid();
    write.service_property("internalId", || json!(id));
    if write.existing.is_none() {
        let host = json!("azureprivatedns.net");
        let properties = json!({ "ttl": 3_600, "soaRecord": soa_record(&host, "azureprivatedns-host.microsoft.com") });
        add_apex_record(write, PRIVATE_ZONE, "SOA", properties);
    }
    Ok(())
}

fn soa_record(host: &Value, email: &str) -> Value {
    json!({
        "host": host,
        "email": email,
        "serialNumber": 1,
        "refreshTime": 3_600,
        "retryTime": 300,
        "expireTime": 2_419_200,
        "minimumTtl": 300,
    })
}

/// Adds a record set at the apex of a new zone.
fn add_apex_record(
    write: &mut ResourceWrite<'_, '_>,
    zone_type: &str,
    kind: &str,
    mut properties: Value,
) {
    properties["fqdn"] = json!(format!("{}.", resource_name(write.id)));
    let id = write.id.child(&format!("{kind}/@"));
    let body = json!({ "properties": properties });
    let record = ArmResource::new(id, &format!("{zone_type}/{kind}"), body, write.call.now);
    write.others.push(record);
}

fn prepare_record(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let zone = parent_scope(write.id)?;
    let zone_name = resource_name(&zone).to_owned();
    let name = resource_name(write.id);
    let kind = record_kind(write.id);
    if kind.eq_ignore_ascii_case("CNAME") && name == "@" {
        let message = "The CNAME record set cannot be at the zone apex '@'.";
        return Err(bad_request("BadRequest", message));
    }
    require_no_other_type(write, &zone, name, kind)?;
    let fqdn = if name == "@" { format!("{zone_name}.") } else { format!("{name}.{zone_name}.") };
    write.properties.insert("fqdn".to_owned(), json!(fqdn));
    Ok(())
}

/// Returns the record type in the id of a record set, such as `CNAME`.
fn record_kind(id: &AccessScope) -> &str {
    id.as_str().rsplit('/').nth(1).unwrap_or_default()
}

/// Rejects a record set beside a CNAME record set of the same name (RFC 1034, 3.6.2).
fn require_no_other_type(
    write: &ResourceWrite<'_, '_>,
    zone: &AccessScope,
    name: &str,
    kind: &str,
) -> Result<(), ServiceReply> {
    let is_cname = kind.eq_ignore_ascii_case("CNAME");
    let conflicting = record_sets(write.resources(), zone).find(|record| {
        let other = record_kind(&record.id);
        resource_name(&record.id).eq_ignore_ascii_case(name)
            && !other.eq_ignore_ascii_case(kind)
            && (is_cname || other.eq_ignore_ascii_case("CNAME"))
    });
    match conflicting {
        None => Ok(()),
        Some(record) => Err(bad_request(
            "BadRequest",
            format!(
                "The record set '{name}' of type {kind} could not be created, because a record set of \
                 type {} with the same name exists: a CNAME record set is the only one of its name.",
                record_kind(&record.id)
            ),
        )),
    }
}

fn record_sets<'a>(
    resources: &'a ArmResourceStore,
    zone: &AccessScope,
) -> impl Iterator<Item = &'a ArmResource> {
    let zone = zone.clone();
    resources
        .within(&zone)
        .filter(move |resource| resource.id != zone && !resource.kind.eq_ignore_ascii_case(LINK))
}

/// Rejects the deletion of the NS and SOA record sets at the apex, unless the zone is deleted.
fn check_record_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let id = &deletion.resource.id;
    let kind = record_kind(id);
    let is_apex = resource_name(id) == "@" && ["NS", "SOA"].contains(&kind.to_uppercase().as_str());
    // The zone or its resource group is deleted.
    if !is_apex || deletion.scope != id {
        return Ok(());
    }
    Err(bad_request(
        "BadRequest",
        format!("The record set '@' of type {kind} cannot be deleted: it exists with its zone."),
    ))
}

fn check_private_zone_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    if deletion.scope != &deletion.resource.id {
        return Ok(());
    }
    let links: Vec<_> = deletion
        .resources
        .of_type_within(&deletion.resource.id, LINK)
        .map(|link| link.id.to_string())
        .collect();
    if links.is_empty() {
        return Ok(());
    }
    Err(conflict(
        "CannotDeleteResource",
        format!(
            "Cannot delete resource while nested resources exist. Some existing nested resource IDs \
             include: '{}'. Please delete all nested resources before deleting this resource.",
            links.join("', '")
        ),
    ))
}

fn prepare_link(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let network = write.properties.get("virtualNetwork").cloned();
    let kind = "Microsoft.Network/virtualNetworks";
    let network = require_reference(write, network.as_ref(), "virtualNetwork", kind)?;
    let Some(network) = network else {
        return Err(bad_request("BadRequest", "`properties.virtualNetwork.id` is missing."));
    };
    let zone = parent_scope(write.id)?;
    let is_linked = |link: &&ArmResource| {
        let id = link.property("virtualNetwork").and_then(|network| network["id"].as_str());
        link.id != *write.id && id.is_some_and(|id| id.eq_ignore_ascii_case(network.as_str()))
    };
    if let Some(other) = write.resources().of_type_within(&zone, LINK).find(is_linked) {
        return Err(conflict(
            "Conflict",
            format!(
                "A virtual network cannot be linked to multiple zones with overlapping namespaces. The \
                 virtual network '{network}' is already linked to the zone by '{}'.",
                resource_name(&other.id)
            ),
        ));
    }
    write.default_property("registrationEnabled", json!(false));
    write.properties.insert("virtualNetworkLinkState".to_owned(), json!("Completed"));
    Ok(())
}

/// Renders a public zone or record set: its id and type have `dnszones` in lower case.
fn render_public(resources: &ArmResourceStore, resource: &ArmResource) -> Value {
    let mut wire = resource.to_json();
    for field in ["id", "type"] {
        if let Some(text) = wire[field].as_str() {
            wire[field] = json!(text.replace("/dnsZones", "/dnszones"));
        }
    }
    if resource.kind.eq_ignore_ascii_case(PUBLIC_ZONE) {
        let count = record_sets(resources, &resource.id).count();
        wire["properties"]["numberOfRecordSets"] = json!(count);
    }
    wire
}

fn render_private_zone(resources: &ArmResourceStore, zone: &ArmResource) -> Value {
    let mut wire = zone.to_json();
    let links: Vec<_> = resources.of_type_within(&zone.id, LINK).collect();
    let registering =
        links.iter().filter(|link| link.property("registrationEnabled") == Some(&json!(true)));
    wire["properties"]["numberOfRecordSets"] = json!(record_sets(resources, &zone.id).count());
    wire["properties"]["numberOfVirtualNetworkLinksWithRegistration"] = json!(registering.count());
    wire["properties"]["numberOfVirtualNetworkLinks"] = json!(links.len());
    wire
}

/// `GET …/recordsets`, `…/all`: the record sets of all types, optionally filtered by a name suffix.
pub(super) fn list_record_sets(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let (zone, collection) = path.as_str().rsplit_once('/').unwrap_or_default();
    let (zone, collection) = (parse_request_scope(zone)?, collection.to_lowercase());
    let kind = if zone.as_str().to_lowercase().contains("/privatednszones/") {
        PRIVATE_ZONE
    } else {
        PUBLIC_ZONE
    };
    authorize_call(call, &format!("{kind}/{collection}/read"), &zone)?;
    find_resource(call, &zone)?;
    let suffix = call.request.query("$recordsetnamesuffix").unwrap_or_default();
    let resources = &call.azure().resources;
    let items = record_sets(resources, &zone)
        .filter(|record| resource_name(&record.id).ends_with(suffix))
        .map(|record| render_stored(call, record))
        .collect();
    list_reply(call, items)
}

/// `GET …/{recordType}`: the record sets of one type.
pub(super) fn list_record_sets_of_type(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let kind = call.path_parameter("recordType");
    let known = |known: &&ResourceType| {
        known.name.rsplit('/').next().is_some_and(|it| it.eq_ignore_ascii_case(kind))
    };
    if RECORD_TYPES.iter().any(|record| known(&record)) {
        return lanyard_emulator_arm::resource_reads::list_child_collection(call);
    }
    let message = format!("The record type '{kind}' is unknown.");
    Err(ArmServiceError::Other(StatusCode::BAD_REQUEST, "BadRequest", message).to_reply())
}
