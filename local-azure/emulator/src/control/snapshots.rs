//! Saves and restores the complete state, with its secrets.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::snapshot::StateSnapshot;
use lanyard_emulator_state::request::ServiceReply;

use super::control_error;

/// `GET snapshot`: the complete state, with its secrets and private keys.
pub(super) fn get_snapshot(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let json = StateSnapshot::of_state(call.azure, call.ids).to_json().map_err(|error| {
        let message = format!("{error}.");
        control_error(StatusCode::INTERNAL_SERVER_ERROR, "SnapshotFailed", &message)
    })?;
    let reply = ServiceReply::empty(StatusCode::OK).with_body("application/json", json);
    Ok(reply.with_header("cache-control", "no-store"))
}

/// `PUT snapshot`: replaces the complete state.
pub(super) fn restore_snapshot(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let snapshot = StateSnapshot::from_json(&call.request.body).map_err(|error| {
        control_error(StatusCode::BAD_REQUEST, "SnapshotInvalid", &format!("{error}."))
    })?;
    call.restore_snapshot(snapshot);
    Ok(ServiceReply::empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests;
