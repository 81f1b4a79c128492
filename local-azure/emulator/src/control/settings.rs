//! Reads and changes the settings of the running emulator.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsError};
use serde_json::Value;

use super::{control_error, parse_body};

/// `GET settings`: every setting, without the kubeconfig.
pub(super) fn get_settings(call: &OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let displayed = EmulatorSettings::of_state(call.azure()).displayed();
    let json = displayed.map_err(|error| invalid_reply(&SettingsError::Write(error)))?;
    Ok(ServiceReply::json(StatusCode::OK, &json))
}

/// `PATCH settings`: sets the fields of the body, and resets those that are `null`. Returns all settings.
pub(super) fn change_settings(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let change: Value = parse_body(call)?;
    let settings = EmulatorSettings::of_state(call.azure());
    let changed = settings.with_change(&change);
    let checked = changed.and_then(|changed| call.services.check_settings(changed));
    let changed = checked.map_err(|error| invalid_reply(&error))?;
    changed.store(call.azure_mut());
    get_settings(call)
}

fn invalid_reply(error: &SettingsError) -> ServiceReply {
    control_error(StatusCode::BAD_REQUEST, "SettingsInvalid", &format!("{error}."))
}

#[cfg(test)]
mod tests;
