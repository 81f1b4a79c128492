//! Vaults as resources. Reference: Microsoft.KeyVault, 2023-07-01 to 2026-02-01. What is written
//! here decides what the data plane does: tenant, permission model, retention.

use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_vocabulary::{ParseIdentifierError, VaultName};
use serde_json::{Value, json};

use super::gate::{body, empty, enter, path_scope, reply, require_group, scope};
use super::reading;
use super::refusal::{Refusal, bad_request, conflict};
use super::resources::{Resource, Stored};
use super::{Reads, reads_back};
use crate::authorization::AccessScope;
use crate::call::Call;
use crate::operations::{Handler, Operation, Support};
use crate::request::Reply;
use crate::services::keyvault::{AccessPolicy, DeletedVault, Vault, VaultSettings};
use crate::world::World;

pub(super) const OPERATIONS: &[Operation] = &[
    reads_back("Vaults_ListBySubscription", Reads::Subscription, sub!("Microsoft.KeyVault/vaults")),
    reads_back("Vaults_ListByResourceGroup", Reads::Below, rg!("Microsoft.KeyVault/vaults")),
    vault("Vaults_Get", Method::GET, reading::read),
    vault("Vaults_CreateOrUpdate", Method::PUT, create),
    vault("Vaults_Update", Method::PATCH, update),
    vault("Vaults_Delete", Method::DELETE, delete),
    Operation {
        id: "Vaults_GetDeleted",
        method: Method::GET,
        path: sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}"),
        support: Support::Full,
        handler: read_deleted,
    },
    Operation {
        id: "Vaults_PurgeDeleted",
        method: Method::POST,
        path: sub!("Microsoft.KeyVault/locations/{location}/deletedVaults/{name}/purge"),
        support: Support::Full,
        handler: purge,
    },
];

const VAULT: &str = "Microsoft.KeyVault/vaults";

const fn vault(id: &'static str, method: Method, handler: Handler) -> Operation {
    let support = Support::Partial("network rules are stored and not enforced");
    Operation { id, method, path: rg!("Microsoft.KeyVault/vaults/{name}"), support, handler }
}

fn create(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{VAULT}/write"), &id)?;
    require_group(call)?;
    let mut given = body(call)?;
    let name = vault_name(call)?;
    let location = given.get("location").and_then(Value::as_str).unwrap_or_default().to_owned();
    if location.is_empty() {
        return Err(bad_request("LocationRequired", "The body has no `location`."));
    }
    let host = host_of(call, &name);
    let recover = given
        .pointer("/properties/createMode")
        .and_then(Value::as_str)
        .is_some_and(|mode| mode.eq_ignore_ascii_case("recover"));
    refuse_taken_name(call, &id, &host, recover)?;
    if recover {
        return recover_vault(call, &id, &host);
    }
    let by_default = call.api_version().is_ok_and(|version| version >= "2026");
    let settings = settings_of(&given, by_default)?;
    finish(&mut given, &host, &settings);
    let now = call.now;
    let world = call.world_mut();
    match world.vaults.of_resource_mut(&id) {
        Some(held) => held.settings = settings,
        None => {
            world.vaults.insert(Vault::new(name, host, id.clone(), location, settings));
        }
    }
    let stored = world.resources.store(Resource::new(id.clone(), VAULT, given, now));
    let status = if stored == Stored::Created { StatusCode::CREATED } else { StatusCode::OK };
    let wire = reading::find(call, &id)?.wire();
    Ok(reply(call, status, &wire))
}

/// `PATCH`: replaces tags and the properties that are given.
fn update(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{VAULT}/write"), &id)?;
    let held = reading::find(call, &id)?;
    let mut merged = Value::Object(held.body.clone());
    let given = body(call)?;
    if let Some(tags) = given.get("tags") {
        merged["tags"] = tags.clone();
    }
    if let Some(properties) = given.get("properties").and_then(Value::as_object) {
        for (name, value) in properties {
            merged["properties"][name] = value.clone();
        }
    }
    let settings = settings_of(&merged, true)?;
    let now = call.now;
    let world = call.world_mut();
    if let Some(vault) = world.vaults.of_resource_mut(&id) {
        vault.settings = settings;
    }
    world.resources.store(Resource::new(id.clone(), VAULT, merged, now));
    let wire = reading::find(call, &id)?.wire();
    Ok(reply(call, StatusCode::OK, &wire))
}

fn delete(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{VAULT}/delete"), &id)?;
    let now = call.now;
    let removed = call.world_mut().resources.remove(&id);
    super::forget(call.world_mut(), &removed, now);
    let status = if removed.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
    Ok(empty(call, status))
}

fn read_deleted(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (id, whole) = (path_scope(call)?, subscription_scope(call)?);
    enter(call, "Microsoft.KeyVault/locations/deletedVaults/read", &whole)?;
    let deleted = find_deleted(call, &id)?;
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
    Ok(reply(call, StatusCode::OK, &wire))
}

fn purge(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (path, whole) = (path_scope(call)?, subscription_scope(call)?);
    enter(call, "Microsoft.KeyVault/locations/deletedVaults/purge/action", &whole)?;
    let host = find_deleted(call, &path)?.vault.host.clone();
    call.world_mut().vaults.deleted.remove(&host);
    Ok(empty(call, StatusCode::OK))
}

fn find_deleted<'c>(call: &'c Call<'_>, id: &AccessScope) -> Result<&'c DeletedVault, Reply> {
    let (name, location) = (call.parameter("name"), call.parameter("location"));
    let now = call.now;
    call.world()
        .vaults
        .deleted
        .values()
        .find(|deleted| {
            deleted.vault.name.as_str().eq_ignore_ascii_case(name)
                && deleted.vault.location.eq_ignore_ascii_case(location)
                && now < deleted.purge_at()
        })
        .ok_or_else(|| {
            let message = format!("The deleted vault '{id}' was not found.");
            Refusal::Other(StatusCode::NOT_FOUND, "DeletedVaultNotFound", message).reply()
        })
}

/// Names of vaults are global: they are host names. Deleted vaults keep theirs.
fn refuse_taken_name(
    call: &Call<'_>,
    id: &AccessScope,
    host: &str,
    recover: bool,
) -> Result<(), Reply> {
    let vaults = &call.world().vaults;
    if vaults.at_host(host).is_some_and(|held| held.resource_id != *id) {
        let message = format!("The vault name '{}' is already in use.", call.parameter("name"));
        return Err(conflict("VaultAlreadyExists", message));
    }
    let deleted = vaults.deleted.get(host).is_some_and(|held| call.now < held.purge_at());
    if deleted && !recover {
        let message = "A vault with the same name exists in deleted state: recover or purge it.";
        return Err(conflict("ConflictError", message));
    }
    Ok(())
}

fn recover_vault(call: &mut Call<'_>, id: &AccessScope, host: &str) -> Result<Reply, Reply> {
    let now = call.now;
    let world = call.world_mut();
    let Some(deleted) = world.vaults.deleted.remove(host) else {
        let message = format!("The deleted vault '{id}' was not found.");
        return Err(Refusal::Other(StatusCode::NOT_FOUND, "DeletedVaultNotFound", message).reply());
    };
    let mut resource = deleted.resource;
    resource.changed = now;
    world.vaults.insert(deleted.vault);
    world.resources.store(resource);
    let wire = reading::find(call, id)?.wire();
    Ok(reply(call, StatusCode::OK, &wire))
}

/// Takes a vault out of the data plane, so that it can be recovered.
pub(super) fn bury(world: &mut World, resource: &Resource, now: Timestamp) {
    let host = world.vaults.of_resource(&resource.id).map(|vault| vault.host.clone());
    if let Some(vault) = host.and_then(|host| world.vaults.remove(&host)) {
        let deleted = DeletedVault { resource: resource.clone(), at: now, vault };
        world.vaults.deleted.insert(deleted.vault.host.clone(), deleted);
    }
}

/// What the properties say to the data plane. `rbac` is the default of `enableRbacAuthorization`:
/// true from api-version 2026-02-01 on, false before.
fn settings_of(body: &Value, rbac: bool) -> Result<VaultSettings, Reply> {
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

/// Fills in what the service adds.
fn finish(body: &mut Value, host: &str, settings: &VaultSettings) {
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

fn vault_name(call: &Call<'_>) -> Result<VaultName, Reply> {
    let name = call.parameter("name");
    name.parse().map_err(|error: ParseIdentifierError| {
        bad_request("VaultNameNotValid", format!("{error}."))
    })
}

fn host_of(call: &Call<'_>, name: &VaultName) -> String {
    let suffix = call.site.cloud.endpoints().map_or("vault.azure.net", |e| e.vault_suffix);
    format!("{name}.{suffix}").to_ascii_lowercase()
}

fn subscription_scope(call: &Call<'_>) -> Result<AccessScope, Reply> {
    scope(&format!("/subscriptions/{}", call.parameter("subscription")))
}
