//! The way into Azure Resource Manager: who asks, and may they?

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::refusal::{Refusal, bad_request};
use crate::authorization::{AccessRequest, AccessScope, Plane};
use crate::call::{ApiVersionProblem, Call};
use crate::request::Reply;
use crate::token::{BearerProblem, Caller};

/// Lets a caller in who has the right to `action` at `scope`.
///
/// The right is decided before anything is looked up: a 404 proves the right too.
pub(super) fn enter(
    call: &mut Call<'_>,
    action: &str,
    scope: &AccessScope,
) -> Result<Caller, Reply> {
    let caller = authenticate(call)?;
    authorize(call, &caller, action, scope)?;
    Ok(caller)
}

/// Verifies token, `api-version` and, if the path has one, the subscription.
pub(super) fn authenticate(call: &mut Call<'_>) -> Result<Caller, Reply> {
    let subscription = path_subscription(call);
    let tenant =
        call.world().resources.subscription(&subscription).map(|known| known.tenant.clone());
    let authority = authority(call, tenant.as_ref().map_or("common", |tenant| tenant.as_str()));
    let refuse = |code, message| Refusal::Token { code, authority, message }.reply();
    let caller = match call.bearer(&audiences(call)) {
        Ok(caller) => caller,
        Err(problem) => {
            let (code, message) = token_problem(&problem);
            return Err(refuse(code, message));
        }
    };
    match call.api_version() {
        Ok(_) => {}
        Err(ApiVersionProblem::Missing) => return Err(Refusal::NoApiVersion.reply()),
        Err(ApiVersionProblem::Malformed(text)) => {
            return Err(Refusal::BadApiVersion(&text).reply());
        }
    }
    if subscription.is_empty() {
        return Ok(caller);
    }
    let Some(tenant) = tenant else {
        return Err(Refusal::NoSubscription(&subscription).reply());
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

/// The subscription that the path is in; empty if it is in none. Extension resources have their
/// scope, and with it the subscription, in one placeholder: so it is read from the path.
fn path_subscription(call: &Call<'_>) -> String {
    let mut segments = call.request.segments();
    match segments.next() {
        Some(first) if first.eq_ignore_ascii_case("subscriptions") => {
            segments.next().unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Refuses a caller who has no right to `action` at `scope`.
pub(super) fn authorize(
    call: &Call<'_>,
    caller: &Caller,
    action: &str,
    scope: &AccessScope,
) -> Result<(), Reply> {
    let plane = Plane::Control;
    let request = AccessRequest { principal_id: caller.object_id, plane, action, scope };
    match call.world().authorization.decide(request) {
        Ok(_) => Ok(()),
        Err(miss) => {
            let miss = miss.to_string();
            Err(Refusal::Unauthorized { caller, action, scope, miss }.reply())
        }
    }
}

/// Whether a caller has the right to `action` at `scope`.
pub(super) fn may(call: &Call<'_>, caller: &Caller, action: &str, scope: &AccessScope) -> bool {
    let plane = Plane::Control;
    let request = AccessRequest { principal_id: caller.object_id, plane, action, scope };
    call.world().authorization.decide(request).is_ok()
}

/// The scope that the path names, in the case of the request.
pub(super) fn path_scope(call: &Call<'_>) -> Result<AccessScope, Reply> {
    scope(&format!("/{}", call.request.segments().collect::<Vec<_>>().join("/")))
}

/// A scope from text of the request.
pub(super) fn scope(text: &str) -> Result<AccessScope, Reply> {
    text.parse().map_err(|error: crate::authorization::ParseAccessScopeError| {
        bad_request("InvalidResourceId", error.to_string())
    })
}

/// The resource group of the path.
pub(super) fn group_scope(call: &Call<'_>) -> Result<AccessScope, Reply> {
    let (subscription, group) = (call.parameter("subscription"), call.parameter("group"));
    scope(&format!("/subscriptions/{subscription}/resourceGroups/{group}"))
}

/// Refuses a call whose resource group does not exist.
pub(super) fn require_group(call: &Call<'_>) -> Result<(), Reply> {
    let group = group_scope(call)?;
    match call.world().resources.resource(&group) {
        Some(_) => Ok(()),
        None => Err(Refusal::NoResourceGroup(call.parameter("group")).reply()),
    }
}

/// The body as a JSON object.
pub(super) fn body(call: &Call<'_>) -> Result<Value, Reply> {
    match call.request.json::<Value>() {
        Ok(body) if body.is_object() => Ok(body),
        Ok(_) => Err(bad_request("InvalidRequestContent", "The body is not a JSON object.")),
        Err(error) => Err(bad_request(
            "InvalidRequestContent",
            format!("The body is not JSON: line {}, column {}.", error.line(), error.column()),
        )),
    }
}

/// A reply with the throttling headers; nothing is throttled here, so their numbers stay.
pub(super) fn reply(call: &Call<'_>, status: StatusCode, body: &Value) -> Reply {
    with_allowance(call, Reply::json(status, body))
}

/// As [`reply`], without a body.
pub(super) fn empty(call: &Call<'_>, status: StatusCode) -> Reply {
    with_allowance(call, Reply::empty(status))
}

fn with_allowance(call: &Call<'_>, reply: Reply) -> Reply {
    let (header, left) = match call.request.method {
        Method::GET | Method::HEAD => ("x-ms-ratelimit-remaining-subscription-reads", "11999"),
        Method::DELETE => ("x-ms-ratelimit-remaining-subscription-deletes", "14999"),
        _ => ("x-ms-ratelimit-remaining-subscription-writes", "1199"),
    };
    reply.with_header(header, left)
}

/// A list: `value`, and `nextLink` if `$top` leaves something over.
pub(super) fn list(call: &Call<'_>, items: Vec<Value>) -> Result<Reply, Reply> {
    let number = |name: &str| match call.request.query(name) {
        None => Ok(None),
        Some(text) => text.parse::<usize>().map(Some).map_err(|error| {
            bad_request("InvalidQueryParameter", format!("`{name}={text}`: {error}."))
        }),
    };
    let skip = number("$skiptoken")?.unwrap_or(0);
    let top = number("$top")?.filter(|top| *top > 0);
    let total = items.len();
    let page: Vec<_> = items.into_iter().skip(skip).take(top.unwrap_or(usize::MAX)).collect();
    let next = skip + page.len();
    let mut body = json!({ "value": page });
    if next < total {
        body["nextLink"] = json!(next_link(call, next));
    }
    Ok(reply(call, StatusCode::OK, &body))
}

/// The same list from `skip` on, on the host that the client used.
fn next_link(call: &Call<'_>, skip: usize) -> String {
    let request = call.request;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in &request.query {
        if !name.eq_ignore_ascii_case("$skiptoken") {
            query.append_pair(name, value);
        }
    }
    query.append_pair("$skiptoken", &skip.to_string());
    format!("https://{}{}?{}", request.host, request.path, query.finish())
}

fn authority(call: &Call<'_>, tenant: &str) -> String {
    let host =
        call.site.cloud.endpoints().map_or("login.microsoftonline.com", |e| e.authority_host);
    format!("https://{host}/{tenant}")
}

/// The audiences of Azure Resource Manager: its URL and its old name, with and without a slash.
fn audiences(call: &Call<'_>) -> Vec<String> {
    let Some(endpoints) = call.site.cloud.endpoints() else { return Vec::new() };
    let bases = [endpoints.arm_url(), endpoints.arm_audience.to_owned()];
    bases.into_iter().flat_map(|base| [format!("{base}/"), base]).collect()
}

fn token_problem(problem: &BearerProblem) -> (&'static str, String) {
    let code = match problem {
        BearerProblem::Missing => "AuthenticationFailed",
        BearerProblem::Malformed | BearerProblem::NotIssuedHere => "InvalidAuthenticationToken",
        BearerProblem::Audience { .. } => "InvalidAuthenticationTokenAudience",
        BearerProblem::Lifetime => "ExpiredAuthenticationToken",
    };
    (code, format!("Authentication failed: {problem}."))
}
