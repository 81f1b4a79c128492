//! Service principals: create, read, change, delete.

use http::StatusCode;
use lanyard_emulator_state::directory::{
    FIRST_PARTY_APPLICATIONS, RestorableObject, ServicePrincipal, ServicePrincipalKind,
};
use lanyard_vocabulary::EntraClientId;
use serde_json::{Map, Value};

use super::access::GraphCall;
use super::applications::require_create;
use super::credential_json::{replace_key_credentials, retain_passwords};
use super::error::{GraphError, GraphResult};
use super::owners::bound_owners;
use super::path::ObjectKey;
use super::query::ListQuery;
use super::replies::{count_reply, created_reply, entity_reply, list_reply, no_content};
use super::rights::GraphRight;
use super::schema::{optional_boolean, optional_text, store_properties};
use super::service_principal_entity::{SERVICE_PRINCIPAL, SERVICE_PRINCIPAL_PROPERTIES};
use super::tenant_objects::{path_principal, path_principal_for_write, principal_by_client_id};

/// The name of the collection.
pub(super) const SERVICE_PRINCIPALS: &str = "servicePrincipals";

pub(super) fn list_service_principals(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let query = ListQuery::parse::<ServicePrincipal>(call)?;
    // Clients mostly look up one service principal by its application id.
    let client = query
        .required_text("appId")
        .or_else(|| query.required_text("servicePrincipalNames"))
        .and_then(|client| client.parse().ok());
    if let Some(client) = client {
        let found = principal_by_client_id(call, client);
        let deleted = deleted_principals(call);
        let deleted = deleted.filter(|principal| principal.client_id == client);
        let all = found.as_deref().into_iter().chain(deleted);
        return list_reply(call, SERVICE_PRINCIPALS, &query, all);
    }
    let first_party = first_party_principals(call);
    let all = listed_principals(call).chain(&first_party);
    list_reply(call, SERVICE_PRINCIPALS, &query, all)
}

pub(super) fn count_service_principals(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let first_party = first_party_principals(call);
    count_reply(call, listed_principals(call).chain(&first_party))
}

pub(super) fn get_service_principal(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let principal = path_principal(call)?;
    entity_reply(call, StatusCode::OK, SERVICE_PRINCIPALS, principal.as_ref())
}

pub(super) fn create_service_principal(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_create(call)?;
    let body = call.body()?;
    let client = body.get("appId").and_then(Value::as_str);
    let client = client.ok_or_else(|| GraphError::value_required("appId", SERVICE_PRINCIPAL))?;
    let client = client.parse().map_err(|_no_id: lanyard_vocabulary::ParseIdentifierError| {
        GraphError::invalid_value("appId", SERVICE_PRINCIPAL)
    })?;
    let principal = create_principal(call, client, &body)?;
    created_reply(call, SERVICE_PRINCIPALS, &principal)
}

/// Changes a service principal. With `Prefer: create-if-missing`, creates that of an application by `appId`.
pub(super) fn update_service_principal(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let key = ObjectKey::parse(call.path_parameter("id"));
    let client = key.alternate("appId").and_then(|id| id.parse().ok());
    if let Some(client) = client
        && call.has_header_value("prefer", "create-if-missing")
        && principal_by_client_id(call, client).is_none()
    {
        require_create(call)?;
        let principal = create_principal(call, client, &call.body()?)?;
        return created_reply(call, SERVICE_PRINCIPALS, &principal);
    }
    let mut principal = path_principal_for_write(call)?.clone();
    let body = call.body()?;
    if let Some(given) = body.get("appId")
        && given != &Value::String(principal.client_id.to_string())
    {
        return Err(GraphError::bad_request("Property 'appId' is read-only and cannot be set."));
    }
    apply_body(call, &mut principal, &body)?;
    call.directory_mut().insert_service_principal(principal);
    Ok(no_content())
}

pub(super) fn delete_service_principal(call: &mut GraphCall<'_, '_>) -> GraphResult {
    let object_id = path_principal_for_write(call)?.object_id;
    let now = call.context.now;
    call.directory_mut().delete_service_principal(object_id, now);
    Ok(no_content())
}

/// The service principals of the tenant, and the deleted ones that lists still contain.
fn listed_principals<'c>(
    call: &'c GraphCall<'_, '_>,
) -> impl Iterator<Item = &'c ServicePrincipal> {
    let principals = call.directory().service_principals().values();
    let own = principals.filter(|principal| call.is_own_tenant(&principal.tenant));
    own.chain(deleted_principals(call))
}

fn deleted_principals<'c>(
    call: &'c GraphCall<'_, '_>,
) -> impl Iterator<Item = &'c ServicePrincipal> {
    call.listed_deleted_objects().filter_map(|object| match object {
        RestorableObject::ServicePrincipal(principal) => Some(principal),
        _ => None,
    })
}

fn first_party_principals(call: &GraphCall<'_, '_>) -> Vec<ServicePrincipal> {
    let tenant = &call.caller.tenant;
    FIRST_PARTY_APPLICATIONS.into_iter().map(|known| known.service_principal(tenant)).collect()
}

fn create_principal(
    call: &mut GraphCall<'_, '_>,
    client: EntraClientId,
    body: &Map<String, Value>,
) -> Result<ServicePrincipal, GraphError> {
    if principal_by_client_id(call, client).is_some() {
        return Err(GraphError::new(
            StatusCode::CONFLICT,
            "Request_MultipleObjectsWithSameKeyValue",
            format!(
                "The service principal cannot be created, updated, or restored because the service principal name {client} is already in use."
            ),
        ));
    }
    let application = call.directory().application_by_client_id(client);
    let application = application
        .filter(|application| call.is_own_tenant(&application.tenant))
        .filter(|application| call.is_known(application.object_id));
    let Some(application) = application else { return Err(missing_application(call, client)) };
    let owns = application.owners.contains(&call.caller.object_id);
    if !owns && !call.caller.has(GraphRight::WriteApplications) {
        return Err(GraphError::denied());
    }
    let name = application.display_name.clone();
    let object_id = call.context.ids.next_uuid();
    let (tenant, kind) = (call.caller.tenant.clone(), ServicePrincipalKind::Application);
    let mut principal =
        ServicePrincipal::new(object_id, client, tenant, name, kind).created_at(call.context.now);
    principal.owners = bound_owners(call, body)?;
    let is_owner = !call.caller.is_user && !call.caller.has(GraphRight::WriteApplications);
    if is_owner && !principal.owners.contains(&call.caller.object_id) {
        principal.owners.push(call.caller.object_id);
    }
    apply_body(call, &mut principal, body)?;
    call.directory_mut().insert_service_principal(principal.clone());
    Ok(principal)
}

/// The error for an application that does not exist in the tenant. The Azure CLI repeats its request after both
/// messages, because a new application is not known everywhere at once.
fn missing_application(call: &GraphCall<'_, '_>, client: EntraClientId) -> GraphError {
    if !call.caller.has(GraphRight::WriteApplications) {
        return GraphError::new(
            StatusCode::FORBIDDEN,
            "Authorization_RequestDenied",
            "When using this permission, the backing application of the service principal being created must in the local tenant",
        );
    }
    GraphError::bad_request(format!(
        "The appId '{client}' of the service principal does not reference a valid application object."
    ))
    .with_detail("NoBackingApplicationObject", "appId")
}

fn apply_body(
    call: &mut GraphCall<'_, '_>,
    principal: &mut ServicePrincipal,
    body: &Map<String, Value>,
) -> Result<(), GraphError> {
    if let Some(enabled) = optional_boolean(body, "accountEnabled", SERVICE_PRINCIPAL)? {
        principal.enabled = enabled;
    }
    if let Some(name) = optional_text(body, "displayName", SERVICE_PRINCIPAL)? {
        name.clone_into(&mut principal.display_name);
    }
    let properties = &mut principal.properties;
    store_properties(properties, body, SERVICE_PRINCIPAL_PROPERTIES, SERVICE_PRINCIPAL, false)?;
    if let Some(given) = body.get("keyCredentials") {
        let ids = &mut *call.context.ids;
        let next_id = || ids.next_uuid();
        principal.keys =
            replace_key_credentials(&principal.keys, given, SERVICE_PRINCIPAL, next_id)?;
    }
    if let Some(given) = body.get("passwordCredentials") {
        principal.passwords = retain_passwords(&principal.passwords, given, SERVICE_PRINCIPAL)?;
    }
    Ok(())
}
