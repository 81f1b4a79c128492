//! The sign-ins of users: the user who signs in without interaction, and decisions on device codes.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_entra::token_service::device_code::{self, DeviceCodeDecision};
use lanyard_emulator_entra::token_service::error::TokenServiceError;
use lanyard_emulator_entra::token_service::token_directory;
use lanyard_emulator_entra::token_service::user_sign_in::select_user;
use lanyard_emulator_state::request::ServiceReply;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{control_error, parse_body};

/// The body of `PUT sign-in`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignInSettingsRequest {
    /// The user by principal name or object id; with `null`, a person selects the user.
    automatic_user: Option<String>,
}

/// The body of `POST device-codes/{code}`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceCodeDecisionRequest {
    /// The user by principal name or object id.
    user: Option<String>,
    /// Whether the user cancels the sign-in.
    #[serde(default)]
    decline: bool,
}

/// `GET sign-in`.
pub(super) fn get_settings(call: &OperationContext<'_>) -> ServiceReply {
    let azure = call.azure();
    let user = azure.sign_ins.settings.automatic_user.and_then(|id| azure.directory.user(id));
    let name = user.map(|user| &user.principal_name);
    ServiceReply::json(StatusCode::OK, &json!({ "automaticUser": name }))
}

/// `PUT sign-in`: sets the user who signs in at the authorization endpoint and in the device code flow without
/// interaction.
pub(super) fn put_settings(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let body: SignInSettingsRequest = parse_body(call)?;
    let directory = token_directory(call);
    let user =
        body.automatic_user.map(|named| select_user(directory, &named).map(|it| it.object_id));
    let user = user.transpose().map_err(|error| user_error_reply(&error))?;
    call.azure_mut().sign_ins.settings.automatic_user = user;
    Ok(get_settings(call))
}

/// `GET device-codes`: the device codes that have not expired.
pub(super) fn list_device_codes(call: &OperationContext<'_>) -> ServiceReply {
    let codes = call.azure().sign_ins.device_authorizations();
    let codes = codes.filter(|(_, row)| row.expires > call.now).map(|(user_code, row)| {
        let mut listed = json!({
            "userCode": user_code,
            "clientId": row.client_id,
            "expires": row.expires,
        });
        if let (Some(listed), Value::Object(status)) = (listed.as_object_mut(), json!(row.status)) {
            listed.extend(status);
        }
        listed
    });
    ServiceReply::json(StatusCode::OK, &json!({ "value": codes.collect::<Vec<_>>() }))
}

/// `POST device-codes/{code}`: signs a user in, or cancels the sign-in.
pub(super) fn decide_device_code(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: DeviceCodeDecisionRequest = parse_body(call)?;
    let decision = match (&body.user, body.decline) {
        (Some(named), false) => {
            let user = select_user(token_directory(call), named);
            let user = user.map_err(|error| user_error_reply(&error))?;
            DeviceCodeDecision::Approve { user: user.object_id }
        }
        (None, true) => DeviceCodeDecision::Decline,
        _ => {
            return Err(control_error(
                StatusCode::BAD_REQUEST,
                "BodyInvalid",
                "Name the `user` who signs in, or set `decline`, one of them.",
            ));
        }
    };
    let code = call.path_parameter("code");
    device_code::decide_device_code(call, code, decision)
        .map_err(|error| sign_in_error_reply(&error))?;
    Ok(ServiceReply::empty(StatusCode::NO_CONTENT))
}

/// The code of the token service, whose description would repeat the name in the body.
fn user_error_reply(error: &TokenServiceError) -> ServiceReply {
    let code = format!("AADSTS{}", error.code.number);
    let message = "No enabled user has this principal name or object id.";
    control_error(StatusCode::BAD_REQUEST, &code, message)
}

fn sign_in_error_reply(error: &TokenServiceError) -> ServiceReply {
    let code = format!("AADSTS{}", error.code.number);
    control_error(StatusCode::BAD_REQUEST, &code, &error.description)
}

#[cfg(test)]
mod tests;
