//! Drills: lists, starts and stops them.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::drill::{DrillDefinitionError, FaultDrill};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::mutations::inject_identity_fault;
use super::{control_error, parse_body};
use crate::drills::{DrillError, start_drill, stop_drill};

/// `GET drills`: the named drills, and the running one.
pub(super) fn list_drills(call: &OperationContext<'_>) -> ServiceReply {
    let named: Vec<_> = FaultDrill::named_drills()
        .iter()
        .map(|fault_drill| {
            json!({
                "name": fault_drill.name(),
                "summary": fault_drill.summary(),
                "expectation": fault_drill.expectation(),
            })
        })
        .collect();
    ServiceReply::json(StatusCode::OK, &json!({ "value": named, "running": running_json(call) }))
}

/// `POST drills/{name}`: starts a named drill.
pub(super) fn start_named_drill(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let fault_drill = FaultDrill::named(call.path_parameter("name"))
        .map_err(|error| error_reply(&error.into()))?;
    start(call, fault_drill)
}

/// `POST drills`: starts the drill in the body, or applies a fault plan.
pub(super) fn start_drill_or_fault_plan(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: Value = parse_body(call)?;
    if body.get("fault").is_some() || body.get("component").is_some() {
        return inject_identity_fault(call);
    }
    start(call, FaultDrill::from_json(body).map_err(|error| error_reply(&error.into()))?)
}

/// `DELETE drills`: stops the running drill.
pub(super) fn stop_running_drill(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    match stop_drill(call.azure_mut()) {
        Some(name) => Ok(ServiceReply::json(StatusCode::OK, &json!({ "stopped": name }))),
        None => Err(control_error(StatusCode::NOT_FOUND, "NoDrillRuns", "No drill runs.")),
    }
}

fn start(
    call: &mut OperationContext<'_>,
    fault_drill: FaultDrill,
) -> Result<ServiceReply, ServiceReply> {
    let now = call.now;
    let services = call.services;
    let (azure, ids) = call.azure_and_ids();
    start_drill(services, azure, ids, fault_drill, now).map_err(|error| error_reply(&error))?;
    Ok(ServiceReply::json(StatusCode::CREATED, &running_json(call)))
}

fn running_json(call: &OperationContext<'_>) -> Value {
    let Some(running) = &*call.azure().running_drill else { return Value::Null };
    let (performed, steps) = running.progress();
    json!({
        "name": running.fault_drill.name(),
        "started": running.started,
        "performedSteps": performed,
        "steps": steps,
    })
}

fn error_reply(error: &DrillError) -> ServiceReply {
    let (status, code) = match error {
        DrillError::Definition(DrillDefinitionError::UnknownName(_)) => {
            (StatusCode::NOT_FOUND, "DrillNotFound")
        }
        DrillError::AlreadyRunning(_) => (StatusCode::CONFLICT, "DrillRuns"),
        DrillError::RuleNameTaken { .. } => (StatusCode::CONFLICT, "FaultExists"),
        DrillError::Definition(_) | DrillError::Settings(_) | DrillError::FaultRule(_) => {
            (StatusCode::BAD_REQUEST, "DrillInvalid")
        }
        _ => (StatusCode::CONFLICT, "DrillFailed"),
    };
    control_error(status, code, &format!("{error}."))
}

#[cfg(test)]
mod tests;
