//! The checks of conditions and lease before a write to a blob.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::lease::{Lease, LeasedResource};
use lanyard_emulator_state::storage::store::BlobKey;
use lanyard_emulator_state::storage::stored_blob::StoredBlob;

use super::blob_reads::{find_blob, reject_snapshot};
use super::conditions::RequestConditions;
use super::error::BlobErrorCode;
use super::lease_check::check_lease_for_write;
use super::request_headers::reject_unsupported_headers;

/// Checks conditions and lease of a write to a blob that may exist, and returns the existing blob.
pub(super) fn check_upload<'c>(
    call: &'c OperationContext<'_>,
    key: &BlobKey,
) -> Result<Option<&'c StoredBlob>, ServiceReply> {
    reject_unsupported_headers(call.request)?;
    reject_snapshot(call.request)?;
    let storage = &call.azure().storage;
    if storage.container(&key.container).is_none() {
        return Err(BlobErrorCode::CONTAINER_NOT_FOUND.to_reply());
    }
    let existing = storage.blob(key);
    let conditions = RequestConditions::parse(call.request)?;
    if existing.is_some() && conditions.requires_absence() {
        return Err(BlobErrorCode::BLOB_ALREADY_EXISTS.to_reply());
    }
    conditions.check_write(existing.map(|blob| (blob.etag, blob.last_modified)))?;
    let lease = existing.map_or(&Lease::Available, |blob| &blob.lease);
    check_lease_for_write(call, lease, LeasedResource::Blob)?;
    Ok(existing)
}

/// Checks conditions and lease of a change of an existing blob.
pub(super) fn check_change(call: &OperationContext<'_>, key: &BlobKey) -> Result<(), ServiceReply> {
    reject_unsupported_headers(call.request)?;
    reject_snapshot(call.request)?;
    let blob = find_blob(&call.azure().storage, key)?;
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_write(Some((blob.etag, blob.last_modified)))?;
    check_lease_for_write(call, &blob.lease, LeasedResource::Blob)
}
