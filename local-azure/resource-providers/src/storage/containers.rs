//! Blob containers as ARM resources, which are the containers of the data plane.

use http::StatusCode;
use lanyard_emulator_arm::access::{
    authorize_call, empty_reply, json_body, json_reply, list_reply,
};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::path_scope;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::container::{BlobContainer, PublicAccess};
use lanyard_emulator_state::storage::names::check_container_name;
use lanyard_emulator_state::storage::store::ContainerKey;
use serde_json::{Value, json};

use super::accounts::{account_scope, find_account};

const CONTAINER: &str = "Microsoft.Storage/storageAccounts/blobServices/containers";

/// `GET …/containers`
pub(super) fn list_containers(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let service = account_scope(call)?.child("blobServices/default");
    authorize_call(call, &format!("{CONTAINER}/read"), &service)?;
    let account = find_account(call)?;
    let filter = call.request.query("$filter").unwrap_or_default();
    // `startswith(name, <prefix>)` is the only filter that Azure supports here.
    let prefix = filter
        .strip_prefix("startswith(name,")
        .and_then(|rest| rest.strip_suffix(')'))
        .map_or("", |prefix| prefix.trim().trim_matches('\''));
    let items = call
        .azure()
        .storage
        .containers(&account.host, prefix)
        .take_while(|(key, _)| key.name.starts_with(prefix))
        .map(|(key, container)| container_json(&account.resource_id, &key.name, container, call))
        .collect();
    list_reply(call, items)
}

/// `GET …/containers/{name}`
pub(super) fn get_container(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{CONTAINER}/read"), &id)?;
    let key = container_key(call)?;
    require_container(call, &key, &id)?;
    container_reply(call, &key, StatusCode::OK)
}

/// `PUT …/containers/{name}`: 200 if the container exists.
pub(super) fn put_container(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{CONTAINER}/write"), &id)?;
    let body = json_body(call)?;
    let key = container_key(call)?;
    check_container_name(&key.name).map_err(|_invalid| {
        let message = format!("The container name '{}' is invalid.", key.name);
        bad_request("ContainerNameInvalid", message)
    })?;
    let properties = parse_properties(call, &body)?;
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let exists = storage.container(&key).is_some();
    if !exists {
        let etag = storage.next_etag(now);
        storage.insert_container(key.clone(), BlobContainer::new(etag, now));
    }
    change_container(call, &key, properties);
    container_reply(call, &key, if exists { StatusCode::OK } else { StatusCode::CREATED })
}

/// `PATCH …/containers/{name}`
pub(super) fn patch_container(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{CONTAINER}/write"), &id)?;
    let body = json_body(call)?;
    let key = container_key(call)?;
    require_container(call, &key, &id)?;
    let properties = parse_properties(call, &body)?;
    change_container(call, &key, properties);
    container_reply(call, &key, StatusCode::OK)
}

/// `DELETE …/containers/{name}`: 204 if there is no such container.
pub(super) fn delete_container(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{CONTAINER}/delete"), &id)?;
    let key = container_key(call)?;
    let removed = call.azure_mut().storage.remove_container(&key);
    let status = if removed.is_some() { StatusCode::OK } else { StatusCode::NO_CONTENT };
    Ok(empty_reply(call, status))
}

fn container_key(call: &OperationContext<'_>) -> Result<ContainerKey, ServiceReply> {
    let host = find_account(call)?.host.clone();
    Ok(ContainerKey { host, name: call.path_parameter("child").to_owned() })
}

fn require_container(
    call: &OperationContext<'_>,
    key: &ContainerKey,
    id: &AccessScope,
) -> Result<(), ServiceReply> {
    match call.azure().storage.container(key) {
        Some(_) => Ok(()),
        None => Err(ArmServiceError::ResourceNotFound(id).to_reply()),
    }
}

/// The properties that a client can set.
#[derive(Debug, Default)]
struct ContainerProperties {
    public_access: Option<PublicAccess>,
    metadata: Option<std::collections::BTreeMap<String, String>>,
}

fn parse_properties(
    call: &OperationContext<'_>,
    body: &Value,
) -> Result<ContainerProperties, ServiceReply> {
    let invalid = |name: &str| {
        bad_request("InvalidRequestContent", format!("`properties.{name}` is not valid."))
    };
    let public_access = match body.pointer("/properties/publicAccess") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.eq_ignore_ascii_case("none") => Some(PublicAccess::None),
        Some(Value::String(text)) => {
            Some(PublicAccess::parse(text).ok_or_else(|| invalid("publicAccess"))?)
        }
        Some(_) => return Err(invalid("publicAccess")),
    };
    let is_public = public_access.is_some_and(|access| access != PublicAccess::None);
    if is_public && !find_account(call)?.settings.allow_blob_public_access {
        return Err(conflict(
            "PublicAccessNotPermitted",
            "Public access is not permitted on this storage account.",
        ));
    }
    let metadata = match body.pointer("/properties/metadata") {
        None | Some(Value::Null) => None,
        Some(given) => {
            let parsed = serde_json::from_value(given.clone());
            Some(parsed.map_err(|_malformed| invalid("metadata"))?)
        }
    };
    Ok(ContainerProperties { public_access, metadata })
}

fn change_container(
    call: &mut OperationContext<'_>,
    key: &ContainerKey,
    properties: ContainerProperties,
) {
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let etag = storage.next_etag(now);
    if let Some(container) = storage.container_mut(key) {
        if let Some(access) = properties.public_access {
            container.public_access = access;
        }
        if let Some(metadata) = properties.metadata {
            container.metadata = metadata;
        }
        container.touch(etag, now);
    }
}

fn container_reply(
    call: &OperationContext<'_>,
    key: &ContainerKey,
    status: StatusCode,
) -> Result<ServiceReply, ServiceReply> {
    let account = find_account(call)?;
    let wire = call
        .azure()
        .storage
        .container(key)
        .map(|container| container_json(&account.resource_id, &key.name, container, call));
    Ok(json_reply(call, status, &wire.unwrap_or_default()))
}

fn container_json(
    account: &AccessScope,
    name: &str,
    container: &BlobContainer,
    call: &OperationContext<'_>,
) -> Value {
    let public_access = match container.public_access {
        PublicAccess::None => "None",
        PublicAccess::Blob => "Blob",
        PublicAccess::Container => "Container",
    };
    let (state, status) = container.lease_state_and_status(call.now);
    json!({
        "id": account.child(&format!("blobServices/default/containers/{name}")),
        "name": name,
        "type": CONTAINER,
        "etag": format!("\"{}\"", container.etag),
        "properties": {
            "publicAccess": public_access,
            "metadata": container.metadata,
            "leaseState": state,
            "leaseStatus": status,
            "lastModifiedTime": container.last_modified.to_string(),
            "defaultEncryptionScope": "$account-encryption-key",
            "denyEncryptionScopeOverride": false,
            "immutableStorageWithVersioning": { "enabled": false },
            "hasImmutabilityPolicy": false,
            "hasLegalHold": false,
            "deleted": false,
            "remainingRetentionDays": 0,
        },
    })
}
