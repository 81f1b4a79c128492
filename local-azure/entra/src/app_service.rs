//! The token endpoint of App Service, for `IDENTITY_ENDPOINT` and `IDENTITY_HEADER`.
//!
//! Every SDK supports these two variables, so they redirect clients that ignore other settings. Reference:
//! "How to use managed identities for App Service", api-version 2019-08-01.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::imds_node::segments_without_node;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

use super::imds::issue_managed_identity_token;
use crate::token_service::engine_errors::oauth_service_error;

/// The token endpoint of App Service.
pub const SERVICE: EmulatedService = EmulatedService {
    segments: segments_without_node,
    error_reply: oauth_service_error,
    ..EmulatedService::new(AzureService::AppService, OPERATIONS)
};

/// The operations of App Service.
const OPERATIONS: &[&[ServiceOperation]] = &[&[ServiceOperation {
    id: "AppService_GetToken",
    method: Method::GET,
    path: "/msi/token",
    support: OperationSupport::Full,
    handler: get_token,
}]];

fn get_token(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let sent = call.request.header("x-identity-header").unwrap_or_default();
    let wanted = call.azure().imds.identity_header.as_ref();
    let accepted = wanted.is_some_and(|wanted| {
        verify_slices_are_equal(wanted.expose().as_bytes(), sent.as_bytes()).is_ok()
    });
    if !accepted {
        return Err(error_reply(StatusCode::UNAUTHORIZED, "X-IDENTITY-HEADER is missing or wrong"));
    }
    if call.request.query("api-version") != Some("2019-08-01") {
        return Err(error_reply(StatusCode::BAD_REQUEST, "The api-version must be 2019-08-01"));
    }
    let (issued, principal, resource) = issue_managed_identity_token(call)?;
    Ok(ServiceReply::json(
        StatusCode::OK,
        &json!({
            "access_token": issued.token,
            "client_id": principal.client_id,
            "expires_on": issued.expires_on().to_string(),
            "resource": resource,
            "token_type": "Bearer",
        }),
    ))
}

fn error_reply(status: StatusCode, message: &str) -> ServiceReply {
    ServiceReply::json(status, &json!({ "statusCode": status.as_u16(), "message": message }))
        .with_rejection_reason(message)
}
