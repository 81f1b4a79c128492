//! The endpoint for claims about the signed-in user, version 1.0 (OIDC Core 1.0, 5.3).

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::pairwise_subject;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

/// `GET /{tenant}/openid/userinfo`, with an access token for Microsoft Graph.
pub(super) fn get_user_info(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let audiences = call.endpoint.cloud.graph_audiences();
    let caller =
        call.authenticate_bearer(&audiences).map_err(|error| unauthorized(&error.to_string()))?;
    let user = call.azure().directory.user(caller.object_id);
    let user = user.ok_or_else(|| unauthorized("the token is not that of a user"))?;
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({
            "sub": pairwise_subject(user.object_id, &caller.app_id.to_string()),
            "name": user.display_name,
            "email": user.principal_name,
        }),
    ))
}

fn unauthorized(reason: &str) -> ServiceReply {
    let body = json!({ "error": "invalid_token", "error_description": reason });
    ServiceReply::json(StatusCode::UNAUTHORIZED, &body)
        .with_header("www-authenticate", "Bearer error=\"invalid_token\"")
        .with_rejection_reason(reason)
}
