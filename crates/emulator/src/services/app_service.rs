//! The token endpoint of App Service: what `IDENTITY_ENDPOINT` and `IDENTITY_HEADER` point to.
//!
//! Every SDK follows these two variables, so they redirect clients that ignore any other setting.
//! Reference: "How to use managed identities for App Service", api-version 2019-08-01.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{Method, StatusCode};
use serde_json::json;

use super::imds::obtain;
use crate::call::Call;
use crate::operations::{Operation, Support};
use crate::request::Reply;

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[&[Operation {
    id: "AppService_GetToken",
    method: Method::GET,
    path: "/msi/token",
    support: Support::Full,
    handler: token,
}]];

fn token(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let sent = call.request.header("x-identity-header").unwrap_or_default();
    let wanted = call.world().imds.identity_header.as_ref();
    let accepted = wanted.is_some_and(|wanted| {
        verify_slices_are_equal(wanted.expose().as_bytes(), sent.as_bytes()).is_ok()
    });
    if !accepted {
        return Err(refused(StatusCode::UNAUTHORIZED, "X-IDENTITY-HEADER is missing or wrong"));
    }
    if call.request.query("api-version") != Some("2019-08-01") {
        return Err(refused(StatusCode::BAD_REQUEST, "The api-version must be 2019-08-01"));
    }
    let (issued, principal, resource) = obtain(call)?;
    Ok(Reply::json(
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

fn refused(status: StatusCode, message: &str) -> Reply {
    Reply::json(status, &json!({ "statusCode": status.as_u16(), "message": message }))
        .because(message)
}
