//! The bodies of resources in Azure Resource Manager, as far as a request can write them. Does no I/O.

use lanyard_azure::{ArmBody as _, RoleAssignmentBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

/// Whether the resource has the properties it had before.
pub(super) fn is_restored(id: &ArmResourceId, before: &Value, live: &Value) -> bool {
    without_states(restored_body(id, before)) == without_states(restored_body(id, live))
}

/// The properties of a resource that a request can write.
pub(super) fn restored_body(id: &ArmResourceId, body: &Value) -> Value {
    let mut body = writable_body(body.clone());
    let is_role = id.has_type(RoleAssignmentBody::RESOURCE_TYPE);
    if is_role && let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) {
        // Azure sets scope, authors and times.
        properties.retain(|name, _| ROLE_ASSIGNMENT_PROPERTIES.contains(&name.as_str()));
    }
    body
}

const ROLE_ASSIGNMENT_PROPERTIES: [&str; 7] = [
    "roleDefinitionId",
    "principalId",
    "principalType",
    "condition",
    "conditionVersion",
    "description",
    "delegatedManagedIdentityResourceId",
];

const VERSIONS_AND_STATES: [&str; 4] = ["etag", "eTag", "provisioningState", "systemData"];

/// Removes the versions and states of subresources, which change with each write.
fn without_states(mut body: Value) -> Value {
    match &mut body {
        Value::Object(properties) => {
            properties.retain(|name, _| !VERSIONS_AND_STATES.contains(&name.as_str()));
            for value in properties.values_mut() {
                *value = without_states(value.take());
            }
        }
        Value::Array(elements) => {
            for element in elements {
                *element = without_states(element.take());
            }
        }
        _ => {}
    }
    body
}

/// Removes what Azure sets itself: ids and states of the resource.
pub(super) fn writable_body(mut body: Value) -> Value {
    const READ_ONLY: [&str; 6] = ["etag", "eTag", "id", "name", "type", "systemData"];
    if let Some(body) = body.as_object_mut() {
        body.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
    }
    if let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| name != "provisioningState" && name != "resourceGuid");
    }
    body
}
