//! The `identity` of a resource: system-assigned and user-assigned managed identities.

use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::ArmResourceId;
use serde_json::{Map, Value, json};

use super::access::authorize_link;
use super::error::{ArmServiceError, bad_request};
use super::request_scopes::{parse_request_scope, resource_id};
use super::resource_change::ResourceWrite;
use super::resource_type::USER_ASSIGNED_IDENTITIES;

/// Completes `identity` in the body: creates or removes the system-assigned identity, and checks
/// that the caller may assign the user-assigned identities.
pub fn complete_identity(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let given = match write.body.remove("identity") {
        Some(Value::Object(identity)) => identity,
        _ => Map::new(),
    };
    let kind = given.get("type").and_then(Value::as_str).unwrap_or("None").to_owned();
    let kinds: Vec<_> = kind.split(',').map(|part| part.trim().to_ascii_lowercase()).collect();
    if kinds.iter().any(|it| !["none", "systemassigned", "userassigned"].contains(&it.as_str())) {
        let message = format!("The identity type '{kind}' is invalid.");
        return Err(bad_request("InvalidIdentityType", message));
    }
    let mut identity = json!({ "type": kind });
    if kinds.iter().any(|it| it == "userassigned") {
        let assigned = match given.get("userAssignedIdentities") {
            Some(Value::Object(assigned)) => assigned.clone(),
            _ => Map::new(),
        };
        identity["userAssignedIdentities"] = user_assigned(write, &assigned)?;
    }
    let resource_id = resource_id(write.id)?;
    if kinds.iter().any(|it| it == "systemassigned") {
        let (tenant, object_id) = system_assigned(write, &resource_id)?;
        identity["principalId"] = json!(object_id);
        identity["tenantId"] = json!(tenant);
    } else if let Some(existing) = write.call.azure().directory.managed_identity(&resource_id) {
        let object_id = existing.object_id;
        write.call.azure_mut().directory.remove_service_principal(object_id);
    }
    if !kinds.iter().any(|it| it == "none") {
        write.body.insert("identity".to_owned(), identity);
    }
    Ok(())
}

/// Returns `userAssignedIdentities`: the principal and client id of each identity, by its resource
/// id. A `null` removes an identity.
fn user_assigned(
    write: &ResourceWrite<'_, '_>,
    assigned: &Map<String, Value>,
) -> Result<Value, ServiceReply> {
    let mut completed = Map::new();
    for (id, value) in assigned {
        if value.is_null() {
            continue;
        }
        let scope = parse_request_scope(id)?;
        let principal = write.call.azure().directory.managed_identity(&resource_id(&scope)?);
        let Some(principal) = principal else {
            return Err(bad_request(
                "FailedIdentityOperation",
                format!("The identity '{id}' does not exist."),
            ));
        };
        let value = json!({
            "principalId": principal.object_id,
            "clientId": principal.client_id,
        });
        let action = format!("{USER_ASSIGNED_IDENTITIES}/assign/action");
        authorize_link(write.call, write.caller, &action, write.id, &scope)?;
        completed.insert(id.clone(), value);
    }
    Ok(Value::Object(completed))
}

/// Returns the tenant id and the object id of the system-assigned identity, which it creates if it
/// does not exist.
fn system_assigned(
    write: &mut ResourceWrite<'_, '_>,
    resource_id: &ArmResourceId,
) -> Result<(String, uuid::Uuid), ServiceReply> {
    if let Some(principal) = write.call.azure().directory.managed_identity(resource_id) {
        return Ok((principal.tenant.to_string(), principal.object_id));
    }
    let subscription = write.call.path_parameter("subscription");
    let resources = &write.call.azure().resources;
    let Some(tenant) = resources.subscription(subscription).map(|known| known.tenant.clone())
    else {
        return Err(ArmServiceError::SubscriptionNotFound(subscription).to_reply());
    };
    let now = write.call.now;
    let (azure, ids) = write.call.azure_and_ids();
    let principal = azure.directory.create_managed_identity(resource_id, tenant, ids, now);
    Ok((principal.tenant.to_string(), principal.object_id))
}
