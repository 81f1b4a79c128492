//! The Blob service of an account as an ARM resource. It shows optional features as off.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_body, json_reply};
use lanyard_emulator_arm::request_scopes::path_scope;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::accounts::{feature_not_supported, find_account};

const BLOB_SERVICE: &str = "Microsoft.Storage/storageAccounts/blobServices";

/// `GET …/blobServices/default`
pub(super) fn get_blob_service(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{BLOB_SERVICE}/read"), &id)?;
    blob_service_reply(call)
}

/// `PUT …/blobServices/default`: rejects features that the emulator does not implement.
pub(super) fn put_blob_service(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{BLOB_SERVICE}/write"), &id)?;
    let body = json_body(call)?;
    find_account(call)?;
    let is_on = |pointer: &str| body.pointer(pointer) == Some(&Value::Bool(true));
    for (pointer, feature) in [
        ("/properties/deleteRetentionPolicy/enabled", "deleteRetentionPolicy"),
        ("/properties/containerDeleteRetentionPolicy/enabled", "containerDeleteRetentionPolicy"),
        ("/properties/isVersioningEnabled", "isVersioningEnabled"),
        ("/properties/changeFeed/enabled", "changeFeed"),
        ("/properties/restorePolicy/enabled", "restorePolicy"),
        ("/properties/lastAccessTimeTrackingPolicy/enable", "lastAccessTimeTrackingPolicy"),
    ] {
        if is_on(pointer) {
            return Err(feature_not_supported(feature));
        }
    }
    let rules = body.pointer("/properties/cors/corsRules").and_then(Value::as_array);
    if rules.is_some_and(|rules| !rules.is_empty()) {
        return Err(feature_not_supported("cors"));
    }
    blob_service_reply(call)
}

fn blob_service_reply(call: &OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let account = find_account(call)?;
    let wire = json!({
        "id": account.resource_id.child("blobServices/default"),
        "name": "default",
        "type": BLOB_SERVICE,
        "sku": { "name": account.settings.sku },
        "properties": {
            "cors": { "corsRules": [] },
            "deleteRetentionPolicy": { "allowPermanentDelete": false, "enabled": false },
            "isVersioningEnabled": false,
        },
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}
