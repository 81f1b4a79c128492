//! Soft delete: delete, list, recover and purge, the same for all kinds of objects.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_store::{ObjectStoreError, StoredVaultObject};
use serde_json::{Value, json};

use super::access::{authorize_call, authorized_vault_mut};
use super::error::VaultServiceError;
use super::object_errors::{object_error_reply, store_error_reply};
use super::objects::{changed_version_reply, reject_managed};
use super::pages::VaultPageRequest;
use super::pages::includes_pending;
use super::stored_object::{StoredObject, object_id};
use super::vault_view::{VaultMut, VaultRef, VaultView};

/// `DELETE /{kind}/{name}`: soft-deletes the object.
pub(super) fn delete_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, .. } = authorize_call(call, K::PERMISSIONS.delete)?;
    let is_managed = K::object_store(vaults).object(&vault.host, name).is_ok_and(K::is_managed);
    reject_managed::<K>(is_managed, name)?;
    let now = call.now;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let (host, view) = (&requested.vault.host, requested.view());
    let outcome = K::soft_delete(vaults, host, name, now, requested.vault.retention_period());
    match outcome.and_then(|()| K::object_store(vaults).deleted_object(host, name)) {
        Ok(object) => Ok(ServiceReply::json(StatusCode::OK, &deleted_bundle_json(view, object))),
        Err(problem) => Err(store_error_reply(problem, K::KIND, call)),
    }
}

/// `GET /deleted{kind}/{name}`.
pub(super) fn get_deleted_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference = authorize_call(call, K::PERMISSIONS.get_deleted)?;
    match K::object_store(reference.vaults).deleted_object(&reference.vault.host, name) {
        Ok(object) => {
            Ok(ServiceReply::json(StatusCode::OK, &deleted_bundle_json(reference.view(), object)))
        }
        Err(_) => Err(deleted_not_found_reply::<K>(name)),
    }
}

/// `GET /deleted{kind}`.
pub(super) fn list_deleted_objects<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let page = VaultPageRequest::from_request(call);
    let with_pending = includes_pending(call);
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, K::PERMISSIONS.list)?;
    let page = page?;
    let items = K::object_store(vaults)
        .deleted_objects_after(&vault.host, page.marker.as_deref())
        .filter(|object| with_pending || !K::is_pending(object))
        .filter_map(|object| {
            let id = object_id::<K>(reference.view(), &object.name);
            let mut item = json!(K::list_item(reference.view(), id, object.latest()?));
            add_deletion(&mut item, reference.view(), object);
            Some((object.name.as_str(), item))
        });
    Ok(page.page_reply(items))
}

/// `POST /deleted{kind}/{name}/recover`.
pub(super) fn recover_deleted_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    require_deleted_and_unmanaged::<K>(authorize_call(call, K::PERMISSIONS.recover)?, name)?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    K::recover(vaults, &requested.vault.host, name)
        .map_err(|problem| object_error_reply(problem, K::KIND, name, None))?;
    changed_version_reply::<K>(requested.with_store(vaults), name, None)
}

/// `DELETE /deleted{kind}/{name}`: purges the object.
pub(super) fn purge_deleted_object<K: StoredObject>(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference = authorize_call(call, K::PERMISSIONS.purge)?;
    require_deleted_and_unmanaged::<K>(reference, name)?;
    if reference.vault.settings.purge_protection {
        return Err(VaultServiceError::PurgeProtected { vault: reference.vault }.to_reply());
    }
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    match K::purge(vaults, &requested.vault.host, name) {
        Ok(()) => Ok(ServiceReply::empty(StatusCode::NO_CONTENT)),
        Err(ObjectStoreError::NotFound) => Err(deleted_not_found_reply::<K>(name)),
        Err(problem) => Err(store_error_reply(problem, K::KIND, call)),
    }
}

/// Rejects names without a deleted object, and objects that belong to a deleted certificate.
fn require_deleted_and_unmanaged<K: StoredObject>(
    VaultRef { vault, vaults, .. }: VaultRef<'_>,
    name: &str,
) -> Result<(), ServiceReply> {
    match K::object_store(vaults).deleted_object(&vault.host, name) {
        Err(_) => Err(deleted_not_found_reply::<K>(name)),
        Ok(object) => reject_managed::<K>(K::is_managed(object), name),
    }
}

fn deleted_not_found_reply<K: StoredObject>(name: &str) -> ServiceReply {
    VaultServiceError::DeletedNotFound { kind: K::KIND, name }.to_reply()
}

fn deleted_bundle_json<K: StoredObject>(
    view: VaultView<'_>,
    object: &StoredVaultObject<K>,
) -> Value {
    let mut bundle = object.latest().map_or_else(
        || json!({ "id": object_id::<K>(view, &object.name) }),
        |version| json!(K::bundle_without_value(view, object, version)),
    );
    add_deletion(&mut bundle, view, object);
    bundle
}

fn add_deletion<K: StoredObject>(
    wire: &mut Value,
    view: VaultView<'_>,
    object: &StoredVaultObject<K>,
) {
    let Some(deletion) = object.deletion else { return };
    let (url, collection) = (view.base_url(), K::KIND.deleted_collection());
    wire["recoveryId"] = json!(format!("{url}/{collection}/{}", object.name));
    wire["deletedDate"] = json!(deletion.at.as_second());
    wire["scheduledPurgeDate"] = json!(deletion.purge_at.as_second());
}
