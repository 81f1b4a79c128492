//! Actions on storage accounts: keys, and the availability of a name.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, empty_reply, json_body, json_reply};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::providers::require_registered;
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::account::{AccountKey, StorageAccount};
use lanyard_emulator_state::storage::names::StorageAccountName;
use serde_json::{Value, json};

use super::ACCOUNT;
use super::accounts::{account_scope, blob_host, find_account, key_error_reply};

const KEY_NAMES: [&str; 2] = ["key1", "key2"];

/// `POST …/checkNameAvailability`
pub(super) fn check_name_availability(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let scope = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Storage/checkNameAvailability/read", &scope)?;
    require_registered(call, "Microsoft.Storage")?;
    let body = json_body(call)?;
    let Some(name) = body.get("name").and_then(Value::as_str) else {
        return Err(bad_request("InvalidRequestContent", "The body has no `name`."));
    };
    let answer = match name.parse::<StorageAccountName>() {
        Err(error) => json!({
            "nameAvailable": false,
            "reason": "AccountNameInvalid",
            "message": error.to_string(),
        }),
        Ok(name) if call.azure().storage.account(&blob_host(call, name.as_str())).is_some() => {
            json!({
                "nameAvailable": false,
                "reason": "AlreadyExists",
                "message": format!("The storage account named {name} is already taken."),
            })
        }
        Ok(_) => json!({ "nameAvailable": true }),
    };
    Ok(json_reply(call, StatusCode::OK, &answer))
}

/// Returns the storage account in the path, if the caller has the permission for `action` on it.
fn authorize_action(
    call: &mut OperationContext<'_>,
    action: &str,
) -> Result<StorageAccount, ServiceReply> {
    let id = account_scope(call)?;
    authorize_call(call, &format!("{ACCOUNT}/{action}/action"), &id)?;
    find_account(call).cloned()
}

/// `POST …/listKeys`
pub(super) fn list_keys(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let account = authorize_action(call, "listKeys")?;
    Ok(json_reply(call, StatusCode::OK, &keys_json(&account)))
}

fn keys_json(account: &StorageAccount) -> Value {
    let keys = KEY_NAMES.iter().zip(&account.keys).map(|(name, key)| {
        json!({
            "keyName": name,
            "value": key.value.expose(),
            "permissions": "FULL",
            "creationTime": key.created.to_string(),
        })
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

/// `POST …/regenerateKey`
pub(super) fn regenerate_key(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let mut account = authorize_action(call, "regenerateKey")?;
    let body = json_body(call)?;
    let name = body.get("keyName").and_then(Value::as_str).unwrap_or_default();
    let Some(at) = KEY_NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)) else {
        let message = format!("The key name '{name}' is not 'key1' or 'key2'.");
        return Err(bad_request("InvalidKeyName", message));
    };
    account.keys[at] = AccountKey::generate(call.ids, call.now).map_err(key_error_reply)?;
    let wire = keys_json(&account);
    call.azure_mut().storage.insert_account(account);
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `POST …/revokeUserDelegationKeys`
pub(super) fn revoke_user_delegation_keys(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let mut account = authorize_action(call, "revokeUserDelegationKeys")?;
    account.delegation_key = AccountKey::generate(call.ids, call.now).map_err(key_error_reply)?;
    call.azure_mut().storage.insert_account(account);
    Ok(empty_reply(call, StatusCode::OK))
}
