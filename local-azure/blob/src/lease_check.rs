//! The check of the lease id that a request gives for a blob or a container.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::lease::{Lease, LeasedResource};

use super::error::BlobErrorCode;
use super::request_headers::parse_lease_id;

/// The header with the id of the lease.
const LEASE_ID: &str = "x-ms-lease-id";

/// Checks the lease id of an operation that may omit it.
pub(super) fn check_lease_for_read(
    call: &OperationContext<'_>,
    lease: &Lease,
    resource: LeasedResource,
) -> Result<(), ServiceReply> {
    let given = parse_lease_id(call.request, LEASE_ID)?;
    Ok(lease.check_read(call.now, given, resource).map_err(BlobErrorCode::from)?)
}

/// Checks the lease id of an operation, which an active lease requires.
pub(super) fn check_lease_for_write(
    call: &OperationContext<'_>,
    lease: &Lease,
    resource: LeasedResource,
) -> Result<(), ServiceReply> {
    let given = parse_lease_id(call.request, LEASE_ID)?;
    Ok(lease.check_write(call.now, given, resource).map_err(BlobErrorCode::from)?)
}
