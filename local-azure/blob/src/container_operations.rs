//! Operations on containers.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::container::{BlobContainer, PublicAccess};
use lanyard_emulator_state::storage::lease::LeasedResource;
use lanyard_emulator_state::storage::store::ContainerKey;

use super::access::authorize_container;
use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::lease_check::{check_lease_for_read, check_lease_for_write};
use super::permission::BlobPermission;
use super::reply::{container_reply, with_lease, with_metadata, with_optional_header};
use super::request_headers::{parse_metadata, reject_unsupported_headers};

/// The container of an authorized request.
pub(super) fn find_container<'c>(
    call: &'c OperationContext<'_>,
    key: &ContainerKey,
) -> Result<&'c BlobContainer, BlobErrorCode> {
    call.azure().storage.container(key).ok_or(BlobErrorCode::CONTAINER_NOT_FOUND)
}

/// The public access in `x-ms-blob-public-access`.
pub(super) fn parse_public_access(request: &ServiceRequest) -> Result<PublicAccess, ServiceReply> {
    match request.header("x-ms-blob-public-access") {
        None => Ok(PublicAccess::None),
        Some(text) => PublicAccess::parse(text)
            .ok_or_else(|| BlobErrorCode::invalid_header("x-ms-blob-public-access")),
    }
}

/// Rejects public access if the account does not permit it.
pub(super) fn check_public_access(
    call: &OperationContext<'_>,
    host: &str,
    access: PublicAccess,
) -> Result<(), BlobErrorCode> {
    let account = call.azure().storage.account(host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    if access == PublicAccess::None || account.settings.allow_blob_public_access {
        Ok(())
    } else {
        Err(BlobErrorCode::PUBLIC_ACCESS_NOT_PERMITTED)
    }
}

/// `PUT /{container}?restype=container`
pub(super) fn create_container(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::CREATE_CONTAINER)?;
    let metadata = parse_metadata(call.request)?;
    let public_access = parse_public_access(call.request)?;
    check_public_access(call, &key.host, public_access)?;
    if call.azure().storage.container(&key).is_some() {
        return Err(BlobErrorCode::CONTAINER_ALREADY_EXISTS.to_reply());
    }
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let etag = storage.next_etag(now);
    let container = BlobContainer { metadata, public_access, ..BlobContainer::new(etag, now) };
    let reply = container_reply(StatusCode::CREATED, &container);
    storage.insert_container(key, container);
    Ok(reply)
}

/// `GET /{container}?restype=container`, also with `comp=metadata`
pub(super) fn get_container_properties(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::READ_CONTAINER)?;
    let container = find_container(call, &key)?;
    check_lease_for_read(call, &container.lease, LeasedResource::Container)?;
    let reply = with_metadata(container_reply(StatusCode::OK, container), &container.metadata);
    let reply = with_lease(reply, &container.lease, call.now)
        .with_header("x-ms-has-immutability-policy", "false")
        .with_header("x-ms-has-legal-hold", "false")
        .with_header("x-ms-immutable-storage-with-versioning-enabled", "false")
        .with_header("x-ms-default-encryption-scope", "$account-encryption-key")
        .with_header("x-ms-deny-encryption-scope-override", "false");
    let access = container.public_access.header_value();
    Ok(with_optional_header(reply, "x-ms-blob-public-access", access))
}

/// `DELETE /{container}?restype=container`
pub(super) fn delete_container(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::DELETE_CONTAINER)?;
    let container = find_container(call, &key)?;
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_write(Some((container.etag, container.last_modified)))?;
    check_lease_for_write(call, &container.lease, LeasedResource::Container)?;
    call.azure_mut().storage.remove_container(&key);
    Ok(ServiceReply::empty(StatusCode::ACCEPTED))
}

/// `PUT /{container}?restype=container&comp=metadata`
pub(super) fn set_container_metadata(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::WRITE_CONTAINER)?;
    reject_unsupported_headers(call.request)?;
    let metadata = parse_metadata(call.request)?;
    let container = find_container(call, &key)?;
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_write(Some((container.etag, container.last_modified)))?;
    check_lease_for_read(call, &container.lease, LeasedResource::Container)?;
    change_container(call, &key, StatusCode::OK, |container| container.metadata = metadata)
}

/// Changes an existing container, with a new entity tag.
pub(super) fn change_container(
    call: &mut OperationContext<'_>,
    key: &ContainerKey,
    status: StatusCode,
    change: impl FnOnce(&mut BlobContainer),
) -> Result<ServiceReply, ServiceReply> {
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let etag = storage.next_etag(now);
    let container = storage.container_mut(key).ok_or(BlobErrorCode::CONTAINER_NOT_FOUND)?;
    change(container);
    container.touch(etag, now);
    Ok(container_reply(status, container))
}
