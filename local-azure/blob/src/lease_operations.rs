//! The lease operations of blobs and containers.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::Lease;
use uuid::Uuid;

use super::access::{authorize_blob, authorize_container};
use super::blob_reads::find_blob;
use super::conditions::RequestConditions;
use super::container_operations::find_container;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::reply::{reply_with_etag, with_optional_header};
use super::request_headers::parse_lease_id;

/// The outcome of a lease operation.
struct LeaseOutcome {
    lease: Lease,
    status: StatusCode,
    /// The id of the lease, if the reply has it.
    id: Option<Uuid>,
    /// The seconds until the lease is broken, in the reply to a break.
    remaining: Option<i64>,
}

/// `PUT /{container}?restype=container&comp=lease`
pub(super) fn lease_container(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::WRITE_CONTAINER)?;
    let container = find_container(call, &key)?;
    let (version, lease) = ((container.etag, container.last_modified), container.lease.clone());
    RequestConditions::parse(call.request)?.check_write(Some(version))?;
    let outcome = run_lease_action(call, &lease)?;
    let storage = &mut call.azure_mut().storage;
    let container = storage.container_mut(&key).ok_or(BlobErrorCode::CONTAINER_NOT_FOUND)?;
    container.lease = outcome.lease.clone();
    Ok(lease_reply(&outcome, reply_with_etag(outcome.status, version.0, version.1)))
}

/// `PUT /{container}/{blob}?comp=lease`
pub(super) fn lease_blob(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (key, _) = authorize_blob(call, &BlobPermission::LEASE_BLOB)?;
    let blob = find_blob(&call.azure().storage, &key)?;
    let (version, lease) = ((blob.etag, blob.last_modified), blob.lease.clone());
    RequestConditions::parse(call.request)?.check_write(Some(version))?;
    let outcome = run_lease_action(call, &lease)?;
    let storage = &mut call.azure_mut().storage;
    storage.blob_mut(&key).ok_or(BlobErrorCode::BLOB_NOT_FOUND)?.lease = outcome.lease.clone();
    Ok(lease_reply(&outcome, reply_with_etag(outcome.status, version.0, version.1)))
}

fn lease_reply(outcome: &LeaseOutcome, reply: ServiceReply) -> ServiceReply {
    let id = outcome.id.map(|id| id.to_string());
    let reply = with_optional_header(reply, "x-ms-lease-id", id);
    let remaining = outcome.remaining.map(|seconds| seconds.to_string());
    with_optional_header(reply, "x-ms-lease-time", remaining)
}

fn run_lease_action(
    call: &mut OperationContext<'_>,
    lease: &Lease,
) -> Result<LeaseOutcome, ServiceReply> {
    let (request, now) = (call.request, call.now);
    let outcome = |lease, status, id| LeaseOutcome { lease, status, id, remaining: None };
    let action = request.header("x-ms-lease-action").unwrap_or_default().to_ascii_lowercase();
    match action.as_str() {
        "acquire" => {
            let seconds = parse_duration(request)?;
            let id = match parse_lease_id(request, "x-ms-proposed-lease-id")? {
                Some(id) => id,
                None => call.ids.next_uuid(),
            };
            let lease = lease.acquire(now, seconds, id).map_err(BlobErrorCode::from)?;
            Ok(outcome(lease, StatusCode::CREATED, Some(id)))
        }
        "renew" => {
            let id = required_id(request, "x-ms-lease-id")?;
            Ok(outcome(
                lease.renew(now, id).map_err(BlobErrorCode::from)?,
                StatusCode::OK,
                Some(id),
            ))
        }
        "change" => {
            let id = required_id(request, "x-ms-lease-id")?;
            let proposed = required_id(request, "x-ms-proposed-lease-id")?;
            Ok(outcome(
                lease.change(now, id, proposed).map_err(BlobErrorCode::from)?,
                StatusCode::OK,
                Some(proposed),
            ))
        }
        "release" => {
            let id = required_id(request, "x-ms-lease-id")?;
            Ok(outcome(lease.release(now, id).map_err(BlobErrorCode::from)?, StatusCode::OK, None))
        }
        "break" => {
            let (lease, remaining) = lease
                .break_after(now, parse_break_period(request)?)
                .map_err(BlobErrorCode::from)?;
            let remaining = Some(remaining);
            Ok(LeaseOutcome { lease, status: StatusCode::ACCEPTED, id: None, remaining })
        }
        _ => Err(BlobErrorCode::invalid_header("x-ms-lease-action")),
    }
}

/// The duration of a lease: 15 to 60 seconds; `None` for -1, an infinite lease.
fn parse_duration(request: &ServiceRequest) -> Result<Option<u32>, ServiceReply> {
    let text = request.header("x-ms-lease-duration").unwrap_or_default();
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(seconds @ 15..=60) => Ok(u32::try_from(seconds).ok()),
        _ => Err(BlobErrorCode::invalid_header("x-ms-lease-duration")),
    }
}

/// The break period: 0 to 60 seconds; `None` without the header.
fn parse_break_period(request: &ServiceRequest) -> Result<Option<u32>, ServiceReply> {
    match request.header("x-ms-lease-break-period").map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(seconds @ 0..=60)) => Ok(Some(seconds)),
        Some(_) => Err(BlobErrorCode::invalid_header("x-ms-lease-break-period")),
    }
}

fn required_id(request: &ServiceRequest, name: &str) -> Result<Uuid, ServiceReply> {
    parse_lease_id(request, name)?
        .ok_or_else(|| BlobErrorCode::MISSING_REQUIRED_HEADER.with_detail("HeaderName", name))
}
