//! Actions on storage accounts: keys, signatures, and the availability of a name.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::access::{
    authorize_call, empty_reply, json_body, json_reply, subscription_scope,
};
use super::super::error::bad_request;
use super::super::providers::require_registered;
use super::ACCOUNT;
use super::accounts::{account_scope, blob_host, find_account, key_error_reply};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::services::blob::{AccountKey, SasRequest, StorageAccount, StorageAccountName};

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

/// Authorizes an action on the account in the path.
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

/// The body of a request for a signature.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SasParametersBody {
    canonicalized_resource: String,
    signed_services: String,
    signed_resource_types: String,
    signed_resource: String,
    signed_permission: String,
    signed_start: String,
    signed_expiry: String,
    signed_identifier: String,
    #[serde(rename = "signedIp")]
    signed_ip: String,
    signed_protocol: String,
    key_to_sign: String,
    #[serde(rename = "rscc")]
    cache_control: String,
    #[serde(rename = "rscd")]
    content_disposition: String,
    #[serde(rename = "rsce")]
    content_encoding: String,
    #[serde(rename = "rscl")]
    content_language: String,
    #[serde(rename = "rsct")]
    content_type: String,
}

fn parse_sas_body(call: &OperationContext<'_>) -> Result<SasParametersBody, ServiceReply> {
    call.request
        .parse_json_body()
        .map_err(|error| bad_request("InvalidRequestContent", format!("The body: {error}.")))
}

/// The key that signs: the first one by default.
fn signing_key<'a>(account: &'a StorageAccount, name: &str) -> &'a AccountKey {
    let second = name.eq_ignore_ascii_case(KEY_NAMES[1]);
    &account.keys[usize::from(second)]
}

/// `POST …/ListAccountSas`
pub(super) fn list_account_sas(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let account = authorize_action(call, "listAccountSas")?;
    let body = parse_sas_body(call)?;
    let mut sas = SasRequest::default();
    for (name, value) in [
        ("sp", &body.signed_permission),
        ("ss", &body.signed_services),
        ("srt", &body.signed_resource_types),
        ("st", &body.signed_start),
        ("se", &body.signed_expiry),
        ("sip", &body.signed_ip),
        ("spr", &body.signed_protocol),
    ] {
        sas.set(name, value);
    }
    let token = sas.sign_account(&account, signing_key(&account, &body.key_to_sign));
    Ok(json_reply(call, StatusCode::OK, &json!({ "accountSasToken": token })))
}

/// `POST …/ListServiceSas`
pub(super) fn list_service_sas(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let account = authorize_action(call, "listServiceSas")?;
    let body = parse_sas_body(call)?;
    let resource = format!("/blob/{}/", account.name);
    let Some(path) = body.canonicalized_resource.strip_prefix(&resource) else {
        let message = format!("`canonicalizedResource` does not start with '{resource}'.");
        return Err(bad_request("InvalidRequestContent", message));
    };
    let mut sas = SasRequest::default();
    for (name, value) in [
        ("sp", &body.signed_permission),
        ("st", &body.signed_start),
        ("se", &body.signed_expiry),
        ("si", &body.signed_identifier),
        ("sip", &body.signed_ip),
        ("spr", &body.signed_protocol),
        ("sr", &body.signed_resource),
        ("rscc", &body.cache_control),
        ("rscd", &body.content_disposition),
        ("rsce", &body.content_encoding),
        ("rscl", &body.content_language),
        ("rsct", &body.content_type),
    ] {
        sas.set(name, value);
    }
    let key = signing_key(&account, &body.key_to_sign);
    let token = sas.sign_service(&account, key, path);
    Ok(json_reply(call, StatusCode::OK, &json!({ "serviceSasToken": token })))
}
