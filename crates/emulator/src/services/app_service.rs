//! The token endpoint of App Service, for `IDENTITY_ENDPOINT` and `IDENTITY_HEADER`.
//!
//! Every SDK supports these two variables, so they redirect clients that ignore other settings. Reference:
//! "How to use managed identities for App Service", api-version 2019-08-01.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{Method, StatusCode};
use serde_json::json;

use super::imds::issue_managed_identity_token;
use crate::operation_context::OperationContext;
use crate::operations::{OperationSupport, ServiceOperation};
use crate::request::ServiceReply;

/// The operations of App Service.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] = &[&[ServiceOperation {
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
