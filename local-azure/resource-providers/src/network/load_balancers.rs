//! Load balancers with their frontends, pools, probes and rules. Reference: Microsoft.Network, load balancers,
//! 2023-11-01.

use http::StatusCode;
use lanyard_emulator_arm::access::{
    authorize_call, empty_reply, json_body, json_reply, list_reply,
};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request};
use lanyard_emulator_arm::request_scopes::{parent_scope, path_scope};
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_reads::find_resource;
use lanyard_emulator_arm::resource_rendering::render_resource;
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_arm::resource_types::find_resource_type;
use lanyard_emulator_arm::resource_writes::write_resource;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

use super::child_items::{
    NamedItem, find_item, item_json, items_of, mentions, referring_items, split_item_id,
    take_collection,
};
use super::private_addresses::complete_private_address;
use super::public_ip_addresses::PUBLIC_IP_ADDRESS;
use super::reference::require_reference;

const LOAD_BALANCER: &str = "Microsoft.Network/loadBalancers";

/// The collections of a load balancer. Rules refer to items of the first three.
const COLLECTIONS: [&str; 6] = [
    "frontendIPConfigurations",
    "backendAddressPools",
    "probes",
    "loadBalancingRules",
    "inboundNatRules",
    "outboundRules",
];

pub(super) const LOAD_BALANCER_TYPE: ResourceType = ResourceType {
    prepare: prepare_balancer,
    check_deletion: check_balancer_deletion,
    render: Some(render_balancer),
    ..ResourceType::regional(LOAD_BALANCER, NamingRule::word(80), "2015-05-01-preview")
};

fn prepare_balancer(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let sku = write.body.entry("sku").or_insert_with(|| json!({ "name": "Standard" }));
    if sku.get("tier").is_none() {
        sku["tier"] = json!("Regional");
    }
    write.service_guid();
    let mut taken = Vec::new();
    for collection in COLLECTIONS {
        let mut items = Vec::new();
        for mut item in take_collection(write, collection, NamingRule::word(80))? {
            if collection == "frontendIPConfigurations" {
                complete_frontend(write, &mut item, &mut taken)?;
            }
            item.properties.remove("backendIPConfigurations");
            items.push(item_json(write.id, LOAD_BALANCER, collection, item));
        }
        write.properties.insert(collection.to_owned(), json!(items));
    }
    require_known_items(write)?;
    require_unused_removed_items(write)
}

fn complete_frontend(
    write: &ResourceWrite<'_, '_>,
    item: &mut NamedItem,
    taken: &mut Vec<std::net::IpAddr>,
) -> Result<(), ServiceReply> {
    let properties = &mut item.properties;
    let address = properties.get("publicIPAddress");
    let public = require_reference(write, address, "publicIPAddress", PUBLIC_IP_ADDRESS)?;
    if let Some(public) = &public {
        // Stores only the id, because clients send back the complete public IP address.
        properties.insert("publicIPAddress".to_owned(), json!({ "id": public.as_str() }));
    }
    complete_private_address(write, properties, taken)?;
    let has_private = properties.get("subnet").is_some_and(|subnet| !subnet.is_null());
    if public.is_none() && !has_private && properties.get("publicIPPrefix").is_none() {
        return Err(bad_request(
            "LoadBalancerFrontendIPConfigurationMissingAddress",
            format!(
                "The frontend IP configuration '{}' has neither a subnet nor a public IP address.",
                item.name
            ),
        ));
    }
    properties.entry("privateIPAllocationMethod").or_insert(json!("Dynamic"));
    Ok(())
}

/// Checks that the frontends, pools and probes to which the rules refer are in the same body.
fn require_known_items(write: &ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    for collection in ["loadBalancingRules", "inboundNatRules", "outboundRules"] {
        let items = write.properties.get(collection).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            let mut references = Vec::new();
            let properties = item.get("properties").and_then(Value::as_object);
            collect_references(properties.into_iter().flat_map(Map::values), &mut references);
            for reference in references {
                require_own_item(write, item, &reference)?;
            }
        }
    }
    Ok(())
}

fn collect_references<'a>(values: impl Iterator<Item = &'a Value>, found: &mut Vec<String>) {
    for value in values {
        match value {
            Value::Array(items) => collect_references(items.iter(), found),
            Value::Object(fields) => {
                found.extend(fields.get("id").and_then(Value::as_str).map(ToOwned::to_owned));
            }
            _ => {}
        }
    }
}

fn require_own_item(
    write: &ResourceWrite<'_, '_>,
    item: &Value,
    reference: &str,
) -> Result<(), ServiceReply> {
    let id: AccessScope = lanyard_emulator_arm::request_scopes::parse_request_scope(reference)?;
    if !write.id.contains(&id) {
        return Ok(());
    }
    let known = split_item_id(&id).is_some_and(|(_, collection, name)| {
        COLLECTIONS.iter().filter(|known| known.eq_ignore_ascii_case(collection)).any(|known| {
            let items = write.properties.get(*known).and_then(Value::as_array);
            items.into_iter().flatten().any(|other| {
                other["name"].as_str().is_some_and(|other| other.eq_ignore_ascii_case(name))
            })
        })
    });
    if known {
        return Ok(());
    }
    Err(bad_request(
        "InvalidResourceReference",
        format!(
            "Resource {reference} referenced by resource {} was not found. Please make sure that the \
             referenced resource exists, and that both resources are in the same region.",
            item["id"].as_str().unwrap_or_default()
        ),
    ))
}

/// Rejects a write that omits a pool that a network interface uses.
fn require_unused_removed_items(write: &ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let Some(existing) = &write.existing else { return Ok(()) };
    for pool in items_of(existing, "backendAddressPools") {
        let name = pool["name"].as_str().unwrap_or_default();
        let stays =
            write.properties["backendAddressPools"].as_array().into_iter().flatten().any(|other| {
                other["name"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(name))
            });
        let id = write.id.child(&format!("backendAddressPools/{name}"));
        if !stays && let Some(user) = write.resources().referrers_within(&id).next() {
            return Err(bad_request(
                "InUseBackendAddressPoolCannotBeDeleted",
                format!("The backend address pool {id} is in use by {user}."),
            ));
        }
    }
    Ok(())
}

fn check_balancer_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let blocking = deletion.referrers().find(|referrer| {
        let resource = deletion.resources.resource(referrer);
        resource
            .is_some_and(|it| it.kind.eq_ignore_ascii_case("Microsoft.Network/privateLinkServices"))
    });
    match blocking {
        None => Ok(()),
        Some(user) => Err(bad_request(
            "InUseLoadBalancerCannotBeDeleted",
            format!("The load balancer {} is in use by {user}.", deletion.resource.id),
        )),
    }
}

/// Renders a load balancer with the IP configurations in its pools, and the rules of its frontends
/// and probes.
fn render_balancer(resources: &ArmResourceStore, balancer: &ArmResource) -> Value {
    let mut wire = balancer.to_json();
    let etag = wire["etag"].clone();
    for collection in COLLECTIONS {
        let Some(items) = wire["properties"][collection].as_array_mut() else { continue };
        for item in items {
            item["etag"] = etag.clone();
            add_users(resources, balancer, collection, item);
        }
    }
    wire
}

fn add_users(
    resources: &ArmResourceStore,
    balancer: &ArmResource,
    collection: &str,
    item: &mut Value,
) {
    let Some(Ok(id)) = item["id"].as_str().map(str::parse::<AccessScope>) else { return };
    if collection == "backendAddressPools" {
        let kind = "Microsoft.Network/networkInterfaces";
        let users = referring_items(resources, &id, kind, "ipConfigurations");
        if !users.is_empty() {
            item["properties"]["backendIPConfigurations"] = json!(users);
        }
    }
    for rules in ["loadBalancingRules", "inboundNatRules", "outboundRules"] {
        let users: Vec<_> = items_of(balancer, rules)
            .filter(|rule| mentions(rule, &id) && rule["id"] != item["id"])
            .map(|rule| json!({ "id": rule["id"] }))
            .collect();
        if !users.is_empty() {
            item["properties"][rules] = json!(users);
        }
    }
}

/// `GET …/{collection}/{name}`.
pub(super) fn get_item(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let collection = call.path_parameter("collection");
    authorize_call(call, &format!("{LOAD_BALANCER}/{collection}/read"), &id)?;
    let balancer = parent_scope(&id)?;
    find_resource(call, &balancer)?;
    let rendered = render_resource(call, &balancer);
    let item = rendered_items(&rendered, collection).find(|item| {
        item["name"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(resource_name(&id)))
    });
    match item {
        Some(item) => Ok(json_reply(call, StatusCode::OK, item)),
        None => Err(ArmServiceError::ResourceNotFound(&id).to_reply()),
    }
}

/// `GET …/{collection}`.
pub(super) fn list_items(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let path = path_scope(call)?;
    let collection = call.path_parameter("collection");
    let balancer: AccessScope = {
        let (above, _) = path.as_str().rsplit_once('/').unwrap_or_default();
        lanyard_emulator_arm::request_scopes::parse_request_scope(above)?
    };
    authorize_call(call, &format!("{LOAD_BALANCER}/{collection}/read"), &balancer)?;
    find_resource(call, &balancer)?;
    let rendered = render_resource(call, &balancer);
    let items = rendered_items(&rendered, collection).cloned().collect();
    list_reply(call, items)
}

fn rendered_items<'a>(balancer: &'a Value, collection: &str) -> impl Iterator<Item = &'a Value> {
    let known = COLLECTIONS.iter().find(|known| known.eq_ignore_ascii_case(collection));
    known.and_then(|known| balancer["properties"][*known].as_array()).into_iter().flatten()
}

/// `PUT …/{collection}/{name}`: adds the item to the load balancer.
pub(super) fn put_item(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let item = json_body(call)?;
    change_item(call, Some(item))
}

/// `DELETE …/{collection}/{name}`.
pub(super) fn delete_item(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    change_item(call, None)
}

fn change_item(
    call: &mut OperationContext<'_>,
    item: Option<Value>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let collection = call.path_parameter("collection");
    let verb = if item.is_some() { "write" } else { "delete" };
    let caller = authorize_call(call, &format!("{LOAD_BALANCER}/{collection}/{verb}"), &id)?;
    let balancer = parent_scope(&id)?;
    let existing = find_resource(call, &balancer)?.clone();
    let known = COLLECTIONS.iter().find(|known| known.eq_ignore_ascii_case(collection));
    let (Some(known), Some(kind)) = (known, find_resource_type(call.services, LOAD_BALANCER))
    else {
        return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
    };
    let is_new = find_item(&call.azure().resources, &id).is_none();
    if is_new && item.is_none() {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    }
    let name = resource_name(&id).to_owned();
    let mut body = existing.body.clone();
    let properties = body.entry("properties").or_insert_with(|| json!({}));
    let mut items = properties[*known].as_array().cloned().unwrap_or_default();
    items.retain(|other| !other["name"].as_str().is_some_and(|it| it.eq_ignore_ascii_case(&name)));
    let is_removal = item.is_none();
    if let Some(mut item) = item {
        item["name"] = json!(name);
        items.push(item);
    }
    properties[*known] = json!(items);
    write_resource(call, kind, &caller, balancer.clone(), Some(existing), body)?;
    if is_removal {
        return Ok(empty_reply(call, StatusCode::OK));
    }
    let rendered = render_resource(call, &balancer);
    let stored = rendered_items(&rendered, collection)
        .find(|item| item["name"] == json!(name))
        .cloned()
        .unwrap_or_default();
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_reply(call, status, &stored))
}
