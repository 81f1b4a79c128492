//! Users: create, read, change, delete.

use http::StatusCode;
use lanyard_emulator_state::directory::{RestorableObject, Tenant, User};
use lanyard_emulator_state::keys::RedactedText;
use serde_json::{Map, Value};

use super::access::GraphCall;
use super::error::{GraphError, GraphResult};
use super::object_list::{list_objects, list_objects_of_type};
use super::path::PathCollection;
use super::query::ListQuery;
use super::replies::{count_reply, created_reply, entity_reply, list_reply, no_content};
use super::rights::GraphRight;
use super::schema::{optional_boolean, optional_text, required_text, store_properties};
use super::tenant_objects::path_user;
use super::user_entity::{USER, USER_PROPERTIES};

/// The name of the collection.
pub(super) const USERS: &str = "users";
/// The smallest length of a password.
const MIN_PASSWORD: usize = 8;
const MAX_PASSWORD: usize = 256;

pub(super) fn list_users(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadUsers)?;
    let query = ListQuery::parse::<User>(call)?;
    // Clients mostly look up one user by the principal name.
    if let Some(name) = query.required_text("userPrincipalName") {
        let found = call.directory().user_by_name(name).into_iter();
        let own = found.filter(|user| call.is_own_tenant(&user.tenant));
        let deleted = deleted_users(call);
        let deleted = deleted.filter(|user| user.principal_name.eq_ignore_ascii_case(name));
        return list_reply(call, USERS, &query, own.chain(deleted));
    }
    list_reply(call, USERS, &query, listed_users(call))
}

pub(super) fn count_users(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadUsers)?;
    count_reply(call, listed_users(call))
}

/// A user, or the signed-in user for `/me`.
pub(super) fn get_user(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    entity_reply(call, StatusCode::OK, USERS, path_user(call)?)
}

pub(super) fn create_user(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::WriteUsers)?;
    let body = call.body()?;
    let principal_name = required_text(&body, "userPrincipalName", USER)?;
    check_principal_name(call, principal_name, None)?;
    required_text(&body, "mailNickname", USER)?;
    let enabled = optional_boolean(&body, "accountEnabled", USER)?;
    let enabled = enabled.ok_or_else(|| GraphError::value_required("accountEnabled", USER))?;
    let password = parse_password(&body)?
        .ok_or_else(|| GraphError::value_required("passwordProfile", USER))?;
    let mut user = User {
        object_id: call.context.ids.next_uuid(),
        tenant: call.caller.tenant.clone(),
        principal_name: principal_name.to_owned(),
        display_name: required_text(&body, "displayName", USER)?.to_owned(),
        enabled,
        password,
        created: call.context.now,
        properties: Map::new(),
    };
    store_properties(&mut user.properties, &body, USER_PROPERTIES, USER, true)?;
    let reply = created_reply(call, USERS, &user)?;
    call.directory_mut().insert_user(user);
    Ok(reply)
}

pub(super) fn update_user(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::WriteUsers)?;
    let mut user = path_user(call)?.clone();
    let body = call.body()?;
    if let Some(name) = optional_text(&body, "displayName", USER)? {
        name.clone_into(&mut user.display_name);
    }
    if let Some(enabled) = optional_boolean(&body, "accountEnabled", USER)? {
        user.enabled = enabled;
    }
    if let Some(password) = parse_password(&body)? {
        user.password = password;
    }
    store_properties(&mut user.properties, &body, USER_PROPERTIES, USER, false)?;
    if let Some(name) = optional_text(&body, "userPrincipalName", USER)? {
        check_principal_name(call, name, Some(&user))?;
        name.clone_into(&mut user.principal_name);
    }
    call.directory_mut().insert_user(user);
    Ok(no_content())
}

pub(super) fn delete_user(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::DeleteUsers)?;
    let object_id = path_user(call)?.object_id;
    let now = call.context.now;
    call.directory_mut().delete_user(object_id, now);
    Ok(no_content())
}

/// The applications, service principals and groups that a user owns.
pub(super) fn list_owned_objects(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let user = path_user(call)?.object_id;
    let owned: Vec<_> = call.directory().objects_owned_by(user).collect();
    list_objects(call, &owned)
}

/// Like [`list_owned_objects`], limited to the type in the path.
pub(super) fn list_owned_objects_of_type(call: &mut GraphCall<'_, '_>) -> GraphResult {
    require_read(call)?;
    let user = path_user(call)?.object_id;
    let type_name = call.path_parameter("child");
    let owned = call.directory().objects_owned_by(user).collect();
    list_objects_of_type(call, owned, type_name)
}

/// Rejects a caller who may not read users; users may read themselves.
fn require_read(call: &GraphCall<'_, '_>) -> Result<(), GraphError> {
    match call.collection() {
        Some(PathCollection::Me) => Ok(()),
        _ => call.caller.require(GraphRight::ReadUsers),
    }
}

/// The users of the tenant, and the deleted ones that lists still contain.
fn listed_users<'c>(call: &'c GraphCall<'_, '_>) -> impl Iterator<Item = &'c User> {
    let users = call.directory().users().values();
    users.filter(|user| call.is_own_tenant(&user.tenant)).chain(deleted_users(call))
}

fn deleted_users<'c>(call: &'c GraphCall<'_, '_>) -> impl Iterator<Item = &'c User> {
    call.listed_deleted_objects().filter_map(|object| match object {
        RestorableObject::User(user) => Some(user),
        _ => None,
    })
}

/// Checks that a principal name is unique and has a verified domain of the tenant. `current` is the
/// user who gets the name; `None` for a new user.
fn check_principal_name(
    call: &GraphCall<'_, '_>,
    name: &str,
    current: Option<&User>,
) -> Result<(), GraphError> {
    let directory = call.directory();
    let tenant = directory.tenant(call.caller.tenant.as_str());
    let is_verified = |tenant: &Tenant, domain: &str| tenant.is_verified_domain(domain);
    let (alias, domain) = name.rsplit_once('@').unwrap_or((name, ""));
    if !tenant.is_some_and(|tenant| is_verified(tenant, domain)) {
        return Err(GraphError::bad_request(
            "The domain portion of the userPrincipalName property is invalid. You must use one of the verified domain names in your organization.",
        )
        .with_detail("InvalidValue", "userPrincipalName"));
    }
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "'.-_!#^~$+".contains(c);
    if alias.is_empty() || alias.len() > 64 || !alias.chars().all(is_valid) {
        return Err(GraphError::bad_request("Property userPrincipalName is invalid.")
            .with_detail("InvalidValue", "userPrincipalName"));
    }
    match directory.user_by_name(name) {
        Some(other) if current.is_none_or(|user| user.object_id != other.object_id) => {
            Err(GraphError::value_in_use("Request_BadRequest", "userPrincipalName"))
        }
        _ => Ok(()),
    }
}

/// The password of `passwordProfile`: at least eight characters of three kinds. `None` if the body
/// has none.
fn parse_password(body: &Map<String, Value>) -> Result<Option<RedactedText>, GraphError> {
    let profile = match body.get("passwordProfile") {
        None | Some(Value::Null) => return Ok(None),
        Some(profile) => profile,
    };
    let Some(profile) = profile.as_object() else {
        return Err(GraphError::invalid_value("passwordProfile", USER));
    };
    let password = match profile.get("password") {
        None | Some(Value::Null) => return Ok(None),
        Some(password) => password.as_str().unwrap_or_default(),
    };
    let kinds: [fn(char) -> bool; 4] = [
        |c| c.is_lowercase(),
        |c| c.is_uppercase(),
        |c| c.is_ascii_digit(),
        |c| !c.is_alphanumeric(),
    ];
    let used = kinds.iter().filter(|is_kind| password.chars().any(is_kind)).count();
    if used < 3 || !(MIN_PASSWORD..=MAX_PASSWORD).contains(&password.chars().count()) {
        return Err(GraphError::bad_request(
            "The specified password does not comply with password complexity requirements. Please provide a different password.",
        )
        .with_detail("InvalidPassword", "password"));
    }
    Ok(Some(RedactedText::new(password.to_owned())))
}
