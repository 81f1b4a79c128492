//! Vaults as ARM resources. Reference: Microsoft.KeyVault, 2023-07-01 to 2026-02-01. They determine the data
//! plane's tenant, permission model and retention.

use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_vocabulary::{ParseIdentifierError, VaultName};
use serde_json::{Value, json};

use super::access::{
    authorize_call, empty_reply, is_authorized, json_body, json_reply, parse_request_scope,
    path_scope, require_group,
};
use super::error::{ArmServiceError, bad_request, conflict};
use super::resource_reads;
use super::resource_store::{ArmResource, UpsertOutcome};
use super::{ArmReadKind, read_operation};
use crate::authorization::AccessScope;
use crate::azure_state::AzureState;
use crate::operation_context::OperationContext;
use crate::operations::{OperationHandler, OperationSupport, ServiceOperation};
use crate::request::ServiceReply;
use crate::services::keyvault::{AccessPolicy, DeletedVault, EmulatedVault, VaultSettings};
use crate::token::AuthenticatedCaller;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    read_operation(
        "Vaults_ListBySubscription",
        ArmReadKind::SubscriptionCollection,
        sub!("Microsoft.KeyVault/vaults"),
    ),
    read_operation(
        "Vaults_ListByResourceGroup",
        ArmReadKind::ChildCollection,
        rg!("Microsoft.KeyVault/vaults"),
    ),
    vault_operation("Vaults_Get", Method::GET, resource_reads::get_resource),
    vault_operation("Vaults_CreateOrUpdate", Method::PUT, create_vault),
    vault_operation("Vaults_Update", Method::PATCH, update_vault),
    vault_operation("Vaults_Delete", Method::DELETE, delete_vault),
    ServiceOperation {
        id: "Vaults_GetDeleted",
        method: Method::GET,
        path: sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}"),
        support: OperationSupport::Full,
        handler: get_deleted_vault,
    },
    ServiceOperation {
        id: "Vaults_PurgeDeleted",
        method: Method::POST,
        path: sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}/purge"),
        support: OperationSupport::Full,
        handler: purge_deleted_vault,
    },
];

const VAULT: &str = "Microsoft.KeyVault/vaults";

const fn vault_operation(
    id: &'static str,
    method: Method,
    handler: OperationHandler,
) -> ServiceOperation {
    let support = OperationSupport::Partial("network rules are stored and not enforced");
    ServiceOperation { id, method, path: rg!("Microsoft.KeyVault/vaults/{name}"), support, handler }
}

fn create_vault(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let caller = authorize_call(call, &format!("{VAULT}/write"), &id)?;
    require_group(call)?;
    let mut given = json_body(call)?;
    let name = vault_name(call)?;
    let location = given.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
    if location.is_empty() {
        return Err(bad_request("LocationRequired", "The body has no `location`."));
    }
    let host = vault_host(call, &name);
    let recover = given
        .pointer("/properties/createMode")
        .and_then(Value::as_str)
        .is_some_and(|mode| mode.eq_ignore_ascii_case("recover"));
    require_available_name(call, &id, &host, recover)?;
    if recover {
        return recover_vault(call, &id, &host, &location);
    }
    let by_default = call.api_version().is_ok_and(|version| version >= "2026");
    let settings = parse_vault_settings(&given, by_default)?;
    require_permission_model_change(call, &caller, &id, &settings)?;
    set_service_properties(&mut given, &host, &settings);
    let now = call.now;
    let azure = call.azure_mut();
    match azure.vaults.vault_of_resource_mut(&id) {
        Some(held) => held.settings = settings,
        None => {
            azure.vaults.insert(EmulatedVault::new(name, host, id.clone(), location, settings));
        }
    }
    let stored = azure.resources.upsert(ArmResource::new(id.clone(), VAULT, given, now));
    let status =
        if stored == UpsertOutcome::Created { StatusCode::CREATED } else { StatusCode::OK };
    let wire = resource_reads::find_resource(call, &id)?.to_json();
    Ok(json_reply(call, status, &wire))
}

/// `PATCH`: replaces tags and the given properties.
fn update_vault(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    let caller = authorize_call(call, &format!("{VAULT}/write"), &id)?;
    let held = resource_reads::find_resource(call, &id)?;
    let mut merged = Value::Object(held.body.clone());
    let given = json_body(call)?;
    if let Some(tags) = given.get("tags") {
        merged["tags"] = tags.clone();
    }
    if let Some(properties) = given.get("properties").and_then(Value::as_object) {
        for (name, value) in properties {
            merged["properties"][name] = value.clone();
        }
    }
    let settings = parse_vault_settings(&merged, true)?;
    require_permission_model_change(call, &caller, &id, &settings)?;
    let now = call.now;
    let azure = call.azure_mut();
    if let Some(vault) = azure.vaults.vault_of_resource_mut(&id) {
        vault.settings = settings;
    }
    azure.resources.upsert(ArmResource::new(id.clone(), VAULT, merged, now));
    let wire = resource_reads::find_resource(call, &id)?.to_json();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn delete_vault(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{VAULT}/delete"), &id)?;
    let now = call.now;
    let removed = call.azure_mut().resources.remove(&id);
    super::remove_dependent_state(call.azure_mut(), &removed, now);
    let status = if removed.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
    Ok(empty_reply(call, status))
}

fn get_deleted_vault(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (id, whole) = (path_scope(call)?, subscription_scope(call)?);
    authorize_call(call, "Microsoft.KeyVault/locations/deletedVaults/read", &whole)?;
    let deleted = find_deleted_vault(call, &id)?;
    let wire = json!({
        "id": id,
        "name": deleted.vault.name,
        "type": "Microsoft.KeyVault/deletedVaults",
        "properties": {
            "vaultId": deleted.vault.resource_id,
            "location": deleted.vault.location,
            "deletionDate": deleted.at.to_string(),
            "scheduledPurgeDate": deleted.purge_at().to_string(),
        },
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn purge_deleted_vault(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (path, whole) = (path_scope(call)?, subscription_scope(call)?);
    authorize_call(call, "Microsoft.KeyVault/locations/deletedVaults/purge/action", &whole)?;
    let host = find_deleted_vault(call, &path)?.vault.host.clone();
    call.azure_mut().vaults.purge(&host);
    Ok(empty_reply(call, StatusCode::OK))
}

fn find_deleted_vault<'c>(
    call: &'c OperationContext<'_>,
    id: &AccessScope,
) -> Result<&'c DeletedVault, ServiceReply> {
    let (name, location) = (call.path_parameter("name"), call.path_parameter("location"));
    let now = call.now;
    call.world()
        .vaults
        .deleted_vaults(now)
        .find(|deleted| {
            deleted.vault.name.as_str().eq_ignore_ascii_case(name)
                && deleted.vault.location.eq_ignore_ascii_case(location)
        })
        .ok_or_else(|| {
            let message = format!("The deleted vault '{id}' was not found.");
            ArmServiceError::Other(StatusCode::NOT_FOUND, "DeletedVaultNotFound", message)
                .to_reply()
        })
}

/// Vault names are global host names. Deleted vaults keep theirs.
fn require_available_name(
    call: &OperationContext<'_>,
    id: &AccessScope,
    host: &str,
    recover: bool,
) -> Result<(), ServiceReply> {
    let vaults = &call.world().vaults;
    if vaults.vault_at_host(host).is_some_and(|held| held.resource_id != *id) {
        let message =
            format!("The vault name '{}' is already in use.", call.path_parameter("name"));
        return Err(conflict("VaultAlreadyExists", message));
    }
    if vaults.deleted_vault(host, call.now).is_some() && !recover {
        let message = "A vault with the same name exists in deleted state: recover or purge it.";
        return Err(conflict("ConflictError", message));
    }
    Ok(())
}

/// Rejects a caller that changes between access policies and role assignments without an unconditional
/// permission to write role assignments, because the change may give access to other principals.
fn require_permission_model_change(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    id: &AccessScope,
    settings: &VaultSettings,
) -> Result<(), ServiceReply> {
    let action = "Microsoft.Authorization/roleAssignments/write";
    let known = call.world().vaults.vault_of_resource(id);
    let is_changed = known.is_some_and(|vault| vault.settings.rbac != settings.rbac);
    if !is_changed || is_authorized(call, caller, action, id) {
        return Ok(());
    }
    let message = format!(
        "Caller is not allowed to change permission model. For more information on how to change the permissions model follow this link: https://go.microsoft.com/fwlink/?linkid=2155160. Details: oid={}; action={action}; resource={id}; decision=NotAllowed;",
        caller.object_id
    );
    Err(ArmServiceError::Other(StatusCode::FORBIDDEN, "InsufficientPermissions", message)
        .to_reply())
}

/// Recovers a deleted vault under its own id and in its own region.
fn recover_vault(
    call: &mut OperationContext<'_>,
    id: &AccessScope,
    host: &str,
    location: &str,
) -> Result<ServiceReply, ServiceReply> {
    let now = call.now;
    let deleted = call.world().vaults.deleted_vault(host, now).filter(|deleted| {
        deleted.vault.resource_id == *id && deleted.vault.location.eq_ignore_ascii_case(location)
    });
    let exists = deleted.is_some();
    let azure = call.azure_mut();
    let Some(mut resource) = exists.then(|| azure.vaults.recover(host)).flatten() else {
        let message = format!("The deleted vault '{id}' was not found.");
        return Err(ArmServiceError::Other(StatusCode::NOT_FOUND, "DeletedVaultNotFound", message)
            .to_reply());
    };
    resource.changed = now;
    azure.resources.upsert(resource);
    let wire = resource_reads::find_resource(call, id)?.to_json();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Removes a vault from the data plane, recoverably.
pub(super) fn soft_delete_vault(azure: &mut AzureState, resource: &ArmResource, now: Timestamp) {
    if !resource.kind.eq_ignore_ascii_case(VAULT) {
        return;
    }
    let host = azure.vaults.vault_of_resource(&resource.id).map(|vault| vault.host.clone());
    if let Some(host) = host {
        azure.vaults.soft_delete(&host, resource.clone(), now);
    }
}

/// Parses the properties that configure the data plane. `rbac` is the default of `enableRbacAuthorization`:
/// true from api-version 2026-02-01 on, false before.
fn parse_vault_settings(body: &Value, rbac: bool) -> Result<VaultSettings, ServiceReply> {
    let refuse = |message: &str| bad_request("BadRequest", message);
    let properties = body.get("properties").unwrap_or(&Value::Null);
    let tenant = properties.get("tenantId").and_then(Value::as_str).unwrap_or_default();
    let tenant = tenant.parse().map_err(|error: ParseIdentifierError| {
        refuse(&format!("`properties.tenantId`: {error}."))
    })?;
    if properties.pointer("/sku/name").and_then(Value::as_str).is_none() {
        return Err(refuse("`properties.sku.name` is missing."));
    }
    let access_policies: Vec<AccessPolicy> = match properties.get("accessPolicies") {
        None | Some(Value::Null) => Vec::new(),
        Some(given) => serde_json::from_value(given.clone())
            .map_err(|error| refuse(&format!("`properties.accessPolicies`: {error}.")))?,
    };
    let days = properties.get("softDeleteRetentionInDays").and_then(Value::as_u64).unwrap_or(90);
    let retention_days = u16::try_from(days)
        .ok()
        .filter(|days| (7..=90).contains(days))
        .ok_or_else(|| refuse("`properties.softDeleteRetentionInDays` is not 7 to 90."))?;
    let rbac = properties.get("enableRbacAuthorization").and_then(Value::as_bool).unwrap_or(rbac);
    Ok(VaultSettings { tenant, rbac, access_policies, retention_days })
}

/// Adds the properties that the service sets.
fn set_service_properties(body: &mut Value, host: &str, settings: &VaultSettings) {
    let properties = &mut body["properties"];
    properties["vaultUri"] = json!(format!("https://{host}/"));
    properties["provisioningState"] = json!("Succeeded");
    properties["enableRbacAuthorization"] = json!(settings.rbac);
    properties["enableSoftDelete"] = json!(true);
    properties["softDeleteRetentionInDays"] = json!(settings.retention_days);
    if properties.get("accessPolicies").is_none() {
        properties["accessPolicies"] = json!([]);
    }
}

fn vault_name(call: &OperationContext<'_>) -> Result<VaultName, ServiceReply> {
    let name = call.path_parameter("name");
    name.parse().map_err(|error: ParseIdentifierError| {
        bad_request("VaultNameNotValid", format!("{error}."))
    })
}

fn vault_host(call: &OperationContext<'_>, name: &VaultName) -> String {
    let suffix = call.endpoint.cloud.endpoints().map_or("vault.azure.net", |e| e.vault_suffix);
    format!("{name}.{suffix}").to_ascii_lowercase()
}

fn subscription_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    parse_request_scope(&format!("/subscriptions/{}", call.path_parameter("subscription")))
}

#[cfg(test)]
mod tests;
