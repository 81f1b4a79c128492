//! Authentication and authorization of the data plane of managed identities.

use std::sync::Arc;

use lanyard_emulator_core::operation_context::{ApiVersionError, OperationContext};
use lanyard_emulator_core::token::{AuthenticatedCaller, BearerTokenError};
use lanyard_emulator_state::authorization::{
    AccessCheck, AccessScope, ActionPlane, ParseAccessScopeError,
};
use lanyard_emulator_state::directory::ServicePrincipal;
use lanyard_emulator_state::identity_url::IdentityUrl;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{ArmResourceId, ParseArmResourceIdError};

use super::error::{ASSIGN_ACTION, IdentityServiceError};

/// Verifies the token and the `api-version`. The tenant is that of the URL (`tid`).
pub(super) fn authenticate(
    call: &mut OperationContext<'_>,
) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
    let named = call.request.query("tid").unwrap_or_default();
    let tenant = call.azure().directory.tenant(named).map(|tenant| tenant.id.clone());
    let path = tenant.as_ref().map_or("common", |tenant| tenant.as_str());
    let authority = format!("{}/{path}", call.endpoint.cloud.authority_url());
    let refuse = |message: String| {
        Err(IdentityServiceError::Unauthenticated { authority, message }.to_reply())
    };
    let caller = match call.authenticate_bearer(&call.endpoint.cloud.managed_identity_audiences()) {
        Ok(caller) => caller,
        Err(BearerTokenError::Missing) => {
            return refuse("The request has no bearer token.".to_owned());
        }
        Err(problem) => return refuse(format!("Authentication failed: {problem}.")),
    };
    if tenant.is_some_and(|tenant| tenant != caller.tenant) {
        return refuse(format!(
            "The token is from tenant '{}', and the URL belongs to another tenant.",
            caller.tenant
        ));
    }
    match call.api_version() {
        Ok(_) => Ok(caller),
        Err(ApiVersionError::Missing) => {
            Err(bad_request("The query parameter `api-version` is missing."))
        }
        Err(ApiVersionError::Malformed(_)) => {
            Err(bad_request("The query parameter `api-version` is not a version."))
        }
    }
}

/// The identity URL of the request: issued by Azure Resource Manager, complete, and not expired.
pub(super) fn require_identity_url(
    call: &OperationContext<'_>,
) -> Result<IdentityUrl, ServiceReply> {
    let url = path_resource(call)
        .ok()
        .and_then(|resource| call.azure().identity_urls.get(&IdentityUrl::table_key(&resource)))
        .filter(|url| url.matches_query(call.request))
        .ok_or_else(|| IdentityServiceError::InvalidUrl.to_reply())?;
    if url.is_renewable_at(call.now) {
        Ok(url.clone())
    } else {
        Err(IdentityServiceError::UrlExpired.to_reply())
    }
}

/// The user-assigned identity of a `client_secret_url`, whose query names the identity.
pub(super) fn require_identity_in_path(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
) -> Result<ServicePrincipal, ServiceReply> {
    let resource = path_resource(call)?;
    let principal = require_user_assigned_identity(call, caller, "The path", resource.as_str())?;
    let sent = |name| call.request.query(name).unwrap_or_default();
    let is_complete = sent("oid").parse() == Ok(principal.object_id)
        && sent("aid").parse() == Ok(principal.client_id)
        && sent("tid").eq_ignore_ascii_case(principal.tenant.as_str());
    if is_complete { Ok(principal) } else { Err(IdentityServiceError::InvalidUrl.to_reply()) }
}

/// The principal of a user-assigned identity that the caller may assign. Authorization precedes the look-up.
/// `source` is the part of the request that has the id.
pub(super) fn require_user_assigned_identity(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    source: &str,
    id: &str,
) -> Result<ServicePrincipal, ServiceReply> {
    let scope: AccessScope = id
        .parse()
        .map_err(|error: ParseAccessScopeError| bad_request(&format!("{source}: {error}.")))?;
    let check = AccessCheck {
        principal_id: caller.object_id,
        plane: ActionPlane::Control,
        action: ASSIGN_ACTION,
        scope: &scope,
        role_assignment: None,
        now: call.now,
    };
    if !check.is_granted(call.azure()) {
        return Err(IdentityServiceError::Unauthorized { caller, scope: &scope }.to_reply());
    }
    let resource = parse_resource_id(id)?;
    let found = call.azure().directory.managed_identity(&resource);
    found
        .filter(|principal| principal.user_assigned_identity().is_some())
        .filter(|principal| principal.tenant == caller.tenant)
        .cloned()
        .ok_or_else(|| IdentityServiceError::IdentityNotFound(id).to_reply())
}

/// The ARM id of the resource in the path.
fn path_resource(call: &OperationContext<'_>) -> Result<ArmResourceId, ServiceReply> {
    parse_resource_id(&format!("/{}", call.path_parameter("resource")))
}

pub(super) fn parse_resource_id(text: &str) -> Result<ArmResourceId, ServiceReply> {
    text.parse().map_err(|error: ParseArmResourceIdError| bad_request(&format!("{error}.")))
}

pub(super) fn bad_request(message: &str) -> ServiceReply {
    IdentityServiceError::BadRequest(message.to_owned()).to_reply()
}
