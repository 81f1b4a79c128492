//! The requests that write a resource. Does no I/O.

use lanyard_azure::{ArmBody as _, ArmRequest, FederatedCredentialBody, RoleAssignmentBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::plan::principal_id;
use crate::property_diff::{merge_properties, restore_properties};
use crate::property_reference::resolve_references;
use crate::resource::{DesiredResource, ResourceDefinition, ResourceKey, TagSupport};

/// A write needs a value that another resource provides.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not have a value that another resource needs")]
pub struct UnknownValueError(pub ResourceKey);

/// The request that creates the resource, or changes `existing` to the desired state.
pub(crate) fn write_request(
    resource: &DesiredResource,
    existing: Option<&LiveResource>,
    live: &LiveState,
    tags: &OwnershipTags,
) -> Result<ArmRequest, UnknownValueError> {
    let id = existing.map_or(&resource.id, |existing| &existing.id);
    let body = match &resource.definition {
        // Existing resources are never written; the plan has no write for them.
        ResourceDefinition::Existing { .. } => Value::Null,
        ResourceDefinition::Shared { body, .. } => {
            let mut body = body.clone();
            tags.add_to(&mut body);
            body
        }
        ResourceDefinition::Arm { body, initial, tags: support, .. } => {
            let body = resolve_references(body, live).map_err(UnknownValueError)?;
            if let Some(existing) = existing {
                writable_body(merge_properties(&body, &existing.body))
            } else {
                let mut body =
                    if initial.is_null() { body } else { merge_properties(initial, &body) };
                if *support == TagSupport::Tagged {
                    tags.add_to(&mut body);
                }
                body
            }
        }
        ResourceDefinition::FederatedCredential { issuer, subject, audience } => {
            FederatedCredentialBody::new(issuer, subject, audience).to_json()
        }
        ResourceDefinition::RoleAssignment { subscription, role, principal, .. } => {
            let Some(principal_id) = principal_id(principal, live) else {
                return Err(UnknownValueError(
                    principal.key().cloned().unwrap_or_else(|| resource.key.clone()),
                ));
            };
            RoleAssignmentBody::new(subscription, *role, principal_id)
                .with_principal_type(principal.assigned_type())
                .to_json()
        }
    };
    let mut request = ArmRequest::put(id.as_str(), resource.api_version(), body);
    request.if_match =
        existing.and_then(|existing| existing.body["etag"].as_str()).map(str::to_owned);
    Ok(request)
}

/// The properties that an update of the resource sets.
pub(crate) fn updated_properties(
    resource: &DesiredResource,
    live: &LiveState,
) -> Result<Value, UnknownValueError> {
    match &resource.definition {
        ResourceDefinition::Arm { body, .. } => {
            resolve_references(body, live).map_err(UnknownValueError)
        }
        ResourceDefinition::FederatedCredential { issuer, subject, audience } => {
            Ok(FederatedCredentialBody::new(issuer, subject, audience).to_json())
        }
        // The plan has no update of other resources.
        _ => Ok(Value::Null),
    }
}

/// The live body with the values of `before` for the properties that a run set to `desired`. Without `desired`, all
/// values of `before`. Everything else of `live` stays.
pub(crate) fn body_before_run(before: &Value, desired: Option<&Value>, live: &Value) -> Value {
    match desired {
        Some(desired) => restore_properties(desired, before, live),
        None => merge_properties(before, live),
    }
}

/// The request that writes `body`, unless the resource is another one than `live` by then.
pub(crate) fn restore_request(
    id: &ArmResourceId,
    api_version: &'static str,
    body: &Value,
    live: Option<&Value>,
) -> ArmRequest {
    let body = restored_body(id, body);
    let mut request = ArmRequest::put(id.as_str(), api_version, body);
    request.if_match = live.and_then(|live| live["etag"].as_str()).map(str::to_owned);
    request
}

/// Whether the resource has the properties it had before.
pub(crate) fn is_restored(id: &ArmResourceId, before: &Value, live: &Value) -> bool {
    without_states(restored_body(id, before)) == without_states(restored_body(id, live))
}

/// The properties of a resource that a request can write.
fn restored_body(id: &ArmResourceId, body: &Value) -> Value {
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

const VERSIONS_AND_STATES: [&str; 3] = ["etag", "provisioningState", "systemData"];

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
fn writable_body(mut body: Value) -> Value {
    const READ_ONLY: [&str; 5] = ["etag", "id", "name", "type", "systemData"];
    if let Some(body) = body.as_object_mut() {
        body.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
    }
    if let Some(properties) = body.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| name != "provisioningState" && name != "resourceGuid");
    }
    body
}
