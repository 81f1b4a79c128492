//! References from one network resource to another.

use lanyard_emulator_arm::access::authorize_link;
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::request_scopes::{parse_request_scope, resource_type};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::Value;

use super::child_items::find_item;

/// Checks an optional reference `{"id": …}`: its type, that the caller may link it
/// (`<type>/join/action`), and that the resource exists. Returns the id, or `None`.
pub(super) fn require_reference(
    write: &ResourceWrite<'_, '_>,
    reference: Option<&Value>,
    property: &str,
    kind: &str,
) -> Result<Option<AccessScope>, ServiceReply> {
    let Some(reference) = reference.filter(|reference| !reference.is_null()) else {
        return Ok(None);
    };
    let Some(id) = reference.get("id").and_then(Value::as_str) else {
        let message = format!("`{property}.id` is missing.");
        return Err(bad_request("InvalidRequestFormat", message));
    };
    let id = parse_request_scope(id)?;
    let found = resource_type(&id)?;
    if !found.eq_ignore_ascii_case(kind) {
        return Err(bad_request(
            "InvalidResourceReference",
            format!("`{property}.id` names a resource of type '{found}', not '{kind}'."),
        ));
    }
    authorize_link(write.call, write.caller, &format!("{kind}/join/action"), write.id, &id)?;
    if write.resources().resource(&id).is_none() {
        return Err(reference_not_found(write.id, &id));
    }
    Ok(Some(id))
}

/// Checks a reference `{"id": …}` to an item in the body of another resource, such as a backend address pool.
pub(super) fn require_item_reference(
    write: &ResourceWrite<'_, '_>,
    reference: &Value,
    property: &str,
) -> Result<(), ServiceReply> {
    let Some(id) = reference.get("id").and_then(Value::as_str) else {
        let message = format!("`{property}.id` is missing.");
        return Err(bad_request("InvalidRequestFormat", message));
    };
    let id = parse_request_scope(id)?;
    let kind = resource_type(&id)?;
    authorize_link(write.call, write.caller, &format!("{kind}/join/action"), write.id, &id)?;
    if find_item(write.resources(), &id).is_none() {
        return Err(reference_not_found(write.id, &id));
    }
    Ok(())
}

fn reference_not_found(resource: &AccessScope, id: &AccessScope) -> ServiceReply {
    bad_request(
        "InvalidResourceReference",
        format!(
            "Resource {id} referenced by resource {resource} was not found. Please make sure that the \
             referenced resource exists, and that both resources are in the same region."
        ),
    )
}
