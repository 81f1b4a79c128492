//! Collections in the body of a resource: child resources, or items with ids of their own.

use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_type::{NamingRule, resource_name};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Map, Value, json};

pub(super) struct NamedItem {
    pub(super) name: String,
    pub(super) properties: Map<String, Value>,
}

/// Takes a collection out of the properties of a write. An absent collection is empty.
pub(super) fn take_collection(
    write: &mut ResourceWrite<'_, '_>,
    collection: &str,
    naming: NamingRule,
) -> Result<Vec<NamedItem>, ServiceReply> {
    let items = match write.properties.remove(collection) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            let message = format!("`properties.{collection}` is not an array.");
            return Err(bad_request("InvalidRequestFormat", message));
        }
    };
    items.into_iter().map(|item| parse_item(collection, naming, item)).collect()
}

fn parse_item(
    collection: &str,
    naming: NamingRule,
    mut item: Value,
) -> Result<NamedItem, ServiceReply> {
    let name = item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    naming.check(&name).map_err(|rule| {
        let message = format!("The name '{name}' in `{collection}` is invalid. {rule}");
        bad_request("InvalidResourceName", message)
    })?;
    let properties = match item.get_mut("properties").map(Value::take) {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    Ok(NamedItem { name, properties })
}

/// Converts an item to a child resource of the resource that is written.
pub(super) fn child_resource(
    write: &ResourceWrite<'_, '_>,
    collection: &str,
    kind: &str,
    item: NamedItem,
) -> ArmResource {
    let NamedItem { name, mut properties } = item;
    properties.insert("provisioningState".to_owned(), json!("Succeeded"));
    let id = write.id.child(&format!("{collection}/{name}"));
    ArmResource::new(id, kind, json!({ "properties": properties }), write.call.now)
}

/// Renders a resource with a collection of its child resources in the properties.
pub(super) fn render_with_children(
    resources: &ArmResourceStore,
    resource: &ArmResource,
    collection: &str,
    kind: &str,
) -> Value {
    let mut wire = resource.to_json();
    let children: Vec<_> =
        resources.of_type_within(&resource.id, kind).map(ArmResource::to_json).collect();
    wire["properties"][collection] = json!(children);
    wire
}

/// Renders an item that stays in the body of its resource, with id, type and state.
pub(super) fn item_json(id: &AccessScope, kind: &str, collection: &str, item: NamedItem) -> Value {
    let NamedItem { name, mut properties } = item;
    properties.insert("provisioningState".to_owned(), json!("Succeeded"));
    json!({
        "id": format!("{id}/{collection}/{name}"),
        "name": name,
        "type": format!("{kind}/{collection}"),
        "properties": properties,
    })
}

/// Finds an item in the body of its resource by the id of the item.
pub(super) fn find_item<'a>(
    resources: &'a ArmResourceStore,
    id: &AccessScope,
) -> Option<&'a Value> {
    let (resource, collection, name) = split_item_id(id)?;
    items_of(resources.resource(&resource)?, collection)
        .find(|item| item["name"].as_str().is_some_and(|known| known.eq_ignore_ascii_case(name)))
}

/// Splits the id of an item into the id of its resource, the collection and the name.
pub(super) fn split_item_id(id: &AccessScope) -> Option<(AccessScope, &str, &str)> {
    let mut parts = id.as_str().rsplitn(3, '/');
    let (name, collection) = (parts.next()?, parts.next()?);
    Some((parts.next()?.parse().ok()?, collection, name))
}

/// The items of a collection in the body of a resource.
pub(super) fn items_of<'a>(
    resource: &'a ArmResource,
    collection: &str,
) -> impl Iterator<Item = &'a Value> {
    let properties = resource.body.get("properties").and_then(Value::as_object);
    let found = properties.and_then(|properties| {
        properties.iter().find_map(|(name, items)| {
            name.eq_ignore_ascii_case(collection).then(|| items.as_array())?
        })
    });
    found.into_iter().flatten()
}

/// Returns the ids of the items in `collection` of the resources of `kind` that refer to `id`, as
/// `[{"id": …}]`.
pub(super) fn referring_items(
    resources: &ArmResourceStore,
    id: &AccessScope,
    kind: &str,
    collection: &str,
) -> Vec<Value> {
    let mut ids = Vec::new();
    for referrer in resources.referrers_within(id) {
        let Some(resource) = resources.resource(referrer) else { continue };
        if !resource.kind.eq_ignore_ascii_case(kind) {
            continue;
        }
        for item in items_of(resource, collection).filter(|item| mentions(item, id)) {
            ids.push(json!({ "id": item["id"] }));
        }
    }
    ids
}

/// Whether a JSON value contains the id as a string, ignoring case.
pub(super) fn mentions(value: &Value, id: &AccessScope) -> bool {
    match value {
        Value::String(text) => text.eq_ignore_ascii_case(id.as_str()),
        Value::Array(items) => items.iter().any(|item| mentions(item, id)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, id)),
        _ => false,
    }
}

/// Returns the ids of the resources of `kind` that refer to `id`, as `[{"id": …}]`.
pub(super) fn referring_resources(
    resources: &ArmResourceStore,
    id: &AccessScope,
    kind: &str,
) -> Vec<Value> {
    resources
        .referrers_within(id)
        .filter_map(|referrer| resources.resource(referrer))
        .filter(|resource| resource.kind.eq_ignore_ascii_case(kind))
        .map(|resource| json!({ "id": resource.id.as_str() }))
        .collect()
}

/// Returns the name of the resource with the id, for messages.
pub(super) fn name_of(id: &AccessScope) -> &str {
    resource_name(id)
}
