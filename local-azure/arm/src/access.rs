//! Authentication and authorization of ARM requests.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::{ApiVersionError, OperationContext};
use lanyard_emulator_core::token::{AuthenticatedCaller, BearerTokenError};
use lanyard_emulator_state::authorization::{
    AccessCheck, AccessScope, ActionPlane, AssignmentAttributes,
};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::error::{ArmServiceError, LinkedAction, bad_request};
use super::lock_check::require_unlocked;
use super::request_scopes::{group_scope, resource_type};

/// Authenticates the caller, and checks its permission and the locks for `action` at `scope`.
///
/// Authorization precedes any look-up: a 404 also proves the permission.
pub fn authorize_call(
    call: &mut OperationContext<'_>,
    action: &str,
    scope: &AccessScope,
) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
    let caller = authenticate(call)?;
    authorize(call, &caller, action, scope)?;
    require_unlocked(call, action, scope)?;
    Ok(caller)
}

/// Verifies the token and the `api-version`, and that the subscription in the path, if any, exists
/// in the token's tenant.
pub(super) fn authenticate(
    call: &mut OperationContext<'_>,
) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
    let subscription = path_subscription(call);
    let tenant =
        call.azure().resources.subscription(&subscription).map(|known| known.tenant.clone());
    let authority_tenant = tenant.as_ref().map_or("common", |tenant| tenant.as_str());
    let authority = format!("{}/{authority_tenant}", call.endpoint.cloud.authority_url());
    let refuse =
        |code, message| ArmServiceError::InvalidToken { code, authority, message }.to_reply();
    let caller = match call.authenticate_bearer(&call.endpoint.cloud.arm_audiences()) {
        Ok(caller) => caller,
        Err(problem) => {
            let (code, message) = token_error_code_and_message(&problem);
            return Err(refuse(code, message));
        }
    };
    match call.api_version() {
        Ok(_) => {}
        Err(ApiVersionError::Missing) => return Err(ArmServiceError::ApiVersionMissing.to_reply()),
        Err(ApiVersionError::Malformed(text)) => {
            return Err(ArmServiceError::ApiVersionInvalid(&text).to_reply());
        }
    }
    if subscription.is_empty() {
        return Ok(caller);
    }
    let Some(tenant) = tenant else {
        return Err(ArmServiceError::SubscriptionNotFound(&subscription).to_reply());
    };
    if !caller.tenant.as_str().eq_ignore_ascii_case(tenant.as_str()) {
        let message = format!(
            "The token is from tenant '{}', and the subscription trusts tenant '{tenant}'.",
            caller.tenant
        );
        return Err(refuse("InvalidAuthenticationTokenTenant", message));
    }
    Ok(caller)
}

/// The subscription in the path; empty if there is none. It is parsed from the path, because the scope of
/// extension resources is a single placeholder.
fn path_subscription<'a>(call: &OperationContext<'a>) -> Cow<'a, str> {
    let mut segments = call.request.segments();
    match segments.next() {
        Some(first) if first.eq_ignore_ascii_case("subscriptions") => {
            segments.next().unwrap_or_default()
        }
        _ => Cow::default(),
    }
}

/// Rejects a caller without the permission for `action` at `scope`.
pub(super) fn authorize(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    scope: &AccessScope,
) -> Result<(), ServiceReply> {
    authorize_assignment_change(call, caller, action, scope, None)
}

/// Like [`authorize`], for a request that writes or deletes a role assignment: conditions of the caller's
/// roles may limit its attributes.
pub(super) fn authorize_assignment_change(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    scope: &AccessScope,
    role_assignment: Option<AssignmentAttributes<'_>>,
) -> Result<(), ServiceReply> {
    let check = AccessCheck { role_assignment, ..access_check(call, caller, action, scope) };
    match check.decide(call.azure()) {
        Ok(_) => Ok(()),
        Err(miss) => {
            let client = client_name(call, caller);
            Err(ArmServiceError::Unauthorized { client, caller, action, scope, miss }.to_reply())
        }
    }
}

/// Rejects a caller that has the permission for `action` at `scope`, but not for the resources that its
/// request links. Call it after [`authorize`], before looking up a linked resource.
pub(super) fn authorize_links(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    scope: &AccessScope,
    links: &[LinkedAction<'_>],
) -> Result<(), ServiceReply> {
    for link in links {
        let Some(id) = link.scope.subscription_id() else { continue };
        let linked = call.azure().resources.subscription(id);
        if linked.is_none_or(|linked| linked.tenant != caller.tenant) {
            let action = link.action;
            return Err(
                ArmServiceError::LinkedSubscription { caller, action, scope, id }.to_reply()
            );
        }
    }
    let missing: Vec<_> =
        links.iter().filter(|link| !is_authorized(call, caller, link.action, link.scope)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let client = client_name(call, caller);
    Err(ArmServiceError::LinkedUnauthorized { client, caller, action, scope, missing }.to_reply())
}

/// Like `authorize_links`, for one linked resource, on which the caller needs `action`.
pub fn authorize_link(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    resource: &AccessScope,
    linked: &AccessScope,
) -> Result<(), ServiceReply> {
    let write = format!("{}/write", resource_type(resource)?);
    authorize_links(call, caller, &write, resource, &[LinkedAction { action, scope: linked }])
}

/// Whether a caller has the permission for `action` at `scope`.
pub fn is_authorized(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &str,
    scope: &AccessScope,
) -> bool {
    access_check(call, caller, action, scope).is_granted(call.azure())
}

fn access_check<'a>(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    action: &'a str,
    scope: &'a AccessScope,
) -> AccessCheck<'a> {
    AccessCheck {
        principal_id: caller.object_id,
        plane: ActionPlane::Control,
        action,
        scope,
        role_assignment: None,
        now: call.now,
    }
}

/// Whether a caller has a role assignment on a scope, on one above it or on one below it.
pub(super) fn has_assignment_around(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    scope: &AccessScope,
) -> bool {
    let azure = call.azure();
    azure.authorization.has_assignment_around(
        &azure.directory.principal_and_group_ids(caller.object_id),
        scope,
        &azure.management_groups_above(scope),
    )
}

/// Returns the caller as in error messages: a user principal name, or a client id.
fn client_name(call: &OperationContext<'_>, caller: &AuthenticatedCaller) -> String {
    match call.azure().directory.user(caller.object_id) {
        Some(user) => user.principal_name.clone(),
        None => caller.app_id.to_string(),
    }
}

/// Returns an error reply if the resource group in the path does not exist.
pub fn require_group(call: &OperationContext<'_>) -> Result<(), ServiceReply> {
    let group = group_scope(call)?;
    match call.azure().resources.resource(&group) {
        Some(_) => Ok(()),
        None => {
            Err(ArmServiceError::ResourceGroupNotFound(call.path_parameter("group")).to_reply())
        }
    }
}

/// Parses the request body as a JSON object.
pub fn json_body(call: &OperationContext<'_>) -> Result<Value, ServiceReply> {
    match call.request.parse_json_body::<Value>() {
        Ok(body) if body.is_object() => Ok(body),
        Ok(_) => Err(bad_request("InvalidRequestContent", "The body is not a JSON object.")),
        Err(error) => Err(bad_request(
            "InvalidRequestContent",
            format!("The body is not JSON: line {}, column {}.", error.line(), error.column()),
        )),
    }
}

/// A reply with the throttling headers; ARM is not throttled here, so their numbers are constant.
pub fn json_reply(call: &OperationContext<'_>, status: StatusCode, body: &Value) -> ServiceReply {
    with_rate_limit_header(call, ServiceReply::json(status, body))
}

/// Like [`json_reply`], without a body.
pub fn empty_reply(call: &OperationContext<'_>, status: StatusCode) -> ServiceReply {
    with_rate_limit_header(call, ServiceReply::empty(status))
}

fn with_rate_limit_header(call: &OperationContext<'_>, reply: ServiceReply) -> ServiceReply {
    let (header, left) = match call.request.method {
        Method::GET | Method::HEAD => ("x-ms-ratelimit-remaining-subscription-reads", "11999"),
        Method::DELETE => ("x-ms-ratelimit-remaining-subscription-deletes", "14999"),
        _ => ("x-ms-ratelimit-remaining-subscription-writes", "1199"),
    };
    reply.with_header(header, left)
}

/// Returns a list reply: `value`, and `nextLink` if `$top` or a setting truncates it.
pub fn list_reply(
    call: &OperationContext<'_>,
    items: Vec<Value>,
) -> Result<ServiceReply, ServiceReply> {
    let number = |name: &str| match call.request.query(name) {
        None => Ok(None),
        Some(text) => text.parse::<usize>().map(Some).map_err(|error| {
            bad_request("InvalidQueryParameter", format!("`{name}={text}`: {error}."))
        }),
    };
    let skip = number("$skiptoken")?.unwrap_or(0);
    let page_size = call.azure().resources.settings.page_size.map(NonZeroUsize::get);
    let top = number("$top")?.filter(|top| *top > 0);
    let top = top.into_iter().chain(page_size).min();
    let total = items.len();
    let page: Vec<_> = items.into_iter().skip(skip).take(top.unwrap_or(usize::MAX)).collect();
    let next = skip + page.len();
    let mut body = json!({ "value": page });
    if next < total {
        body["nextLink"] = json!(next_link(call, next));
    }
    Ok(json_reply(call, StatusCode::OK, &body))
}

/// Returns the URL of the page that starts at index `skip`, on the host that the client used.
fn next_link(call: &OperationContext<'_>, skip: usize) -> String {
    let request = call.request;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in &request.query {
        if !name.eq_ignore_ascii_case("$skiptoken") {
            query.append_pair(name, value);
        }
    }
    query.append_pair("$skiptoken", &skip.to_string());
    format!("{}{}?{}", request.origin(), request.path, query.finish())
}

fn token_error_code_and_message(problem: &BearerTokenError) -> (&'static str, String) {
    let code = match problem {
        BearerTokenError::Missing => "AuthenticationFailed",
        BearerTokenError::Malformed | BearerTokenError::NotIssuedHere => {
            "InvalidAuthenticationToken"
        }
        BearerTokenError::Audience { .. } => "InvalidAuthenticationTokenAudience",
        BearerTokenError::Lifetime => "ExpiredAuthenticationToken",
    };
    (code, format!("Authentication failed: {problem}."))
}
