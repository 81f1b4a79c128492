//! Deleted vaults, which can be recovered or purged.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, empty_reply, json_reply, list_reply};
use lanyard_emulator_arm::error::ArmServiceError;
use lanyard_emulator_arm::locations::normalize_region;
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::vault::DeletedVault;
use serde_json::{Value, json};

use super::method_not_allowed_reply;

/// `GET deletedVaults`: the deleted vaults of the subscription.
pub(super) fn list_deleted_vaults(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let subscription = subscription_scope(call)?;
    authorize_call(call, "Microsoft.KeyVault/deletedVaults/read", &subscription)?;
    let items = call
        .azure()
        .vaults
        .deleted_vaults(call.now)
        .filter(|deleted| subscription.contains(&deleted.vault.resource_id))
        .map(deleted_vault_json)
        .collect();
    list_reply(call, items)
}

/// `GET locations/{location}/deletedVaults/{name}`.
pub(super) fn get_deleted_vault(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let subscription = subscription_scope(call)?;
    authorize_call(call, "Microsoft.KeyVault/locations/deletedVaults/read", &subscription)?;
    let wire = deleted_vault_json(requested_vault(call)?);
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `POST locations/{location}/deletedVaults/{name}/purge`.
pub(super) fn purge_deleted_vault(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let subscription = subscription_scope(call)?;
    authorize_call(call, "Microsoft.KeyVault/locations/deletedVaults/purge/action", &subscription)?;
    let deleted = requested_vault(call)?;
    if deleted.vault.settings.purge_protection {
        let message = "Operation 'DeletedVaultPurge' is not allowed.";
        return Err(method_not_allowed_reply(message.to_owned()));
    }
    let host = deleted.vault.host.clone();
    call.azure_mut().vaults.purge(&host);
    Ok(empty_reply(call, StatusCode::OK))
}

fn requested_vault<'c>(call: &'c OperationContext<'_>) -> Result<&'c DeletedVault, ServiceReply> {
    let (name, location) = (call.path_parameter("name"), call.path_parameter("location"));
    let subscription = subscription_scope(call)?;
    call.azure()
        .vaults
        .deleted_vaults(call.now)
        .find(|deleted| {
            subscription.contains(&deleted.vault.resource_id)
                && deleted.vault.name.as_str().eq_ignore_ascii_case(name)
                && normalize_region(&deleted.vault.location) == normalize_region(location)
        })
        .ok_or_else(|| deleted_vault_not_found_reply(name))
}

pub(super) fn deleted_vault_not_found_reply(name: &str) -> ServiceReply {
    let message = format!("The specified deleted vault '{name}' does not exist.");
    ArmServiceError::Other(StatusCode::NOT_FOUND, "DeletedVaultNotFound", message).to_reply()
}

fn deleted_vault_json(deleted: &DeletedVault) -> Value {
    let vault = &deleted.vault;
    let subscription = vault.resource_id.subscription_id().unwrap_or_default();
    let location = normalize_region(&vault.location);
    let mut wire = json!({
        "id": format!(
            "/subscriptions/{subscription}/providers/Microsoft.KeyVault/locations/{location}/deletedVaults/{}",
            vault.name
        ),
        "name": vault.name,
        "type": "Microsoft.KeyVault/deletedVaults",
        "properties": {
            "vaultId": vault.resource_id,
            "location": location,
            "deletionDate": deleted.at.to_string(),
            "scheduledPurgeDate": deleted.purge_at().to_string(),
            "tags": deleted.resource.body.get("tags").cloned().unwrap_or_else(|| json!({})),
        },
    });
    if vault.settings.purge_protection {
        wire["properties"]["purgeProtectionEnabled"] = json!(true);
    }
    wire
}
